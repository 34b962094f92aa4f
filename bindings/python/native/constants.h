/* The constants of include/ that have no table of their own there; bindings/mapping.py holds them against it. */
#ifndef RUNNEL_PYTHON_CONSTANTS_H
#define RUNNEL_PYTHON_CONSTANTS_H

#include "runnel_files.h"
#include "runnel_scores.h"

/* X(prefix, name) */
#define ENUM_KvType(X) \
    X(KV_, F16)        \
    X(KV_, F32)        \
    X(KV_, BF16)       \
    X(KV_, FP8)        \
    X(KV_, Q8)         \
    X(KV_, Q4)         \
    X(KV_, Q3)

#define ENUM_WeightOrder(X) \
    X(WEIGHTS_, MEASURED)   \
    X(WEIGHTS_, FILE)       \
    X(WEIGHTS_, TILES)

#define ENUM_LogLevel(X) \
    X(LOG_, NONE)        \
    X(LOG_, ERROR)       \
    X(LOG_, WARNING)     \
    X(LOG_, INFO)        \
    X(LOG_, DEBUG)

#define ENUM_TraceKind(X) \
    X(TRACE_, ACTOR)      \
    X(TRACE_, STEP)       \
    X(TRACE_, REQUEST)

#define ENUM_Finish(X) \
    X(FINISH_, NONE)   \
    X(FINISH_, STOP)   \
    X(FINISH_, LENGTH)

#define ENUM_GrammarKind(X)  \
    X(GRAMMAR_, NONE)        \
    X(GRAMMAR_, GBNF)        \
    X(GRAMMAR_, REGEX)       \
    X(GRAMMAR_, EBNF)        \
    X(GRAMMAR_, CHOICES)     \
    X(GRAMMAR_, JSON)        \
    X(GRAMMAR_, JSON_OBJECT) \
    X(GRAMMAR_, JSON_SCHEMA)

#define ENUM_Recommended(X)             \
    X(RECOMMENDED_, TEMPERATURE)        \
    X(RECOMMENDED_, TOP_K)              \
    X(RECOMMENDED_, TOP_P)              \
    X(RECOMMENDED_, MIN_P)              \
    X(RECOMMENDED_, REPETITION_PENALTY) \
    X(RECOMMENDED_, PENALTY_TOKENS)     \
    X(RECOMMENDED_, XTC_PROBABILITY)    \
    X(RECOMMENDED_, XTC_THRESHOLD)      \
    X(RECOMMENDED_, MIROSTAT)           \
    X(RECOMMENDED_, MIROSTAT_TAU)       \
    X(RECOMMENDED_, MIROSTAT_ETA)

#define ENUM_Draft(X) \
    X(DRAFT_, NONE)   \
    X(DRAFT_, NGRAM)  \
    X(DRAFT_, MODEL)

#define ENUM_CacheWait(X)  \
    X(CACHE_, BEST_EFFORT) \
    X(CACHE_, WAIT)        \
    X(CACHE_, DEADLINE)

#define ENUM_Pooling(X)  \
    X(POOLING_, DEFAULT) \
    X(POOLING_, MEAN)    \
    X(POOLING_, FIRST)   \
    X(POOLING_, LAST)

#define ENUM_ScoreForm(X) \
    X(SCORES_, OF_MODEL)  \
    X(SCORES_, LOGITS)    \
    X(SCORES_, PROBABILITIES)

#define ENUM_PenaltyScope(X) \
    X(PENALTY_, ALL)         \
    X(PENALTY_, ANSWER)

#define ENUM_TemplateTrait(X) \
    X(TEMPLATE_, SYSTEM)      \
    X(TEMPLATE_, TOOLS)       \
    X(TEMPLATE_, REASONING)   \
    X(TEMPLATE_, THINKING)    \
    X(TEMPLATE_, PARTS)

#define ENUM_TrainingState(X) \
    X(TRAINING_, RUNNING)     \
    X(TRAINING_, DONE)        \
    X(TRAINING_, CANCELLED)   \
    X(TRAINING_, FAILED)

#define ALL_ENUMS(X) \
    X(KvType)        \
    X(WeightOrder)   \
    X(LogLevel)      \
    X(TraceKind)     \
    X(Finish)        \
    X(GrammarKind)   \
    X(Recommended)   \
    X(Draft)         \
    X(CacheWait)     \
    X(Pooling)       \
    X(ScoreForm)     \
    X(PenaltyScope)  \
    X(TemplateTrait) \
    X(TrainingState)

#define ALL_LIMITS(X)     \
    X(VERSION_MAJOR)      \
    X(VERSION_MINOR)      \
    X(VERSION_PATCH)      \
    X(MAX_STOPS)          \
    X(MAX_STOP_BYTES)     \
    X(MAX_TOP_LOGPROBS)   \
    X(MAX_COALESCE_BYTES) \
    X(MAX_DRAFTS)         \
    X(LABEL_BYTES)        \
    X(MAX_GRAMMAR_BYTES)  \
    X(MAX_BREAKERS)       \
    X(MAX_BREAKER_BYTES)  \
    X(MAX_ADAPTERS)       \
    X(ADAPTER_BYTES)

#endif
