/* The judge: the right answer of any request to the oracle model, in closed form and apart from the
 * library: its own UTF-8 (Unicode 15, table 3-7), its own search for stop strings, whole texts and not pieces. */
#ifndef RN_TESTS_SIM_JUDGE_H
#define RN_TESTS_SIM_JUDGE_H

#include "runnel.h"
#include "tests/sim/oracle_backend.h"

#define JUDGE_TOKENS 832
#define JUDGE_TEXT (3 * JUDGE_TOKENS)

struct judge_stops {
    const char *const *strings;
    size_t n_strings;
    const int32_t *tokens;
    size_t n_tokens;
};

/* A grammar whose every place allows either what the model wants or one token alone: behind each `first` comes
 * `second`, and of such pairs and other tokens there are n. So its texts do not depend on how one draws. */
struct judge_grammar {
    uint32_t n; /* 0: none */
    int32_t first, second;
};

struct judge_request {
    const struct oracle_alphabet *alphabet;
    uint64_t salt;
    const int32_t *history, *prompt;
    uint32_t n_history, n_prompt;
    int64_t max_tokens; /* -1: up to the room */
    uint32_t room;      /* longest sequence: the context, or all blocks */
    int64_t keep;       /* -1: the answer ends there. Else it goes on behind so many tokens of the prompt */
    struct judge_stops stops;
    struct judge_grammar grammar;
    uint32_t turn; /* its host draws the token so many behind the wanted one; without a grammar */
};

struct judge_answer {
    bool fits; /* false: the prompt is too long, nothing below counts */
    int32_t tokens[JUDGE_TOKENS];
    uint32_t n;                             /* tokens of the answer, the one that ends it included */
    uint32_t n_shown;                       /* those whose text counts: without a stop token */
    uint32_t shifts, shifted[JUDGE_TOKENS]; /* how often the room was full, in all; before token i is drawn */
    uint32_t lost;                          /* tokens that went each time */
    runnel_finish finish;
    int32_t stop, stop_token; /* of the event: the string that ended it, or the token; -1 */
    char text[JUDGE_TEXT];
    size_t text_bytes;
};

/* The whole answer, were it never cancelled. */
void judge_answer(const struct judge_request *request, struct judge_answer *answer);

/* The text after tokens[n] (each a byte): what is certain by then, or with `end` what it is if nothing
 * follows. Into text[JUDGE_TEXT]; *stop: the stop string that was found, the shortest of those that begin there; -1:
 * none. */
size_t judge_text(const int32_t *tokens, uint32_t n, const struct judge_stops *stops, bool end, char *text,
                  int32_t *stop);

/* True when text[n] is whole, well-formed UTF-8. */
bool judge_utf8(const char *text, size_t n);

#endif
