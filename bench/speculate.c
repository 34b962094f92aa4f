/* What speculation costs and gives, on the real backend, against plain decoding in the same process.
 *
 *   grid        a proposer that lies: it knows the answers, and each of its drafts is right with a set chance, for
 *               streams x chances; a chance of -1: right and wrong in turn for 48 tokens each. The figure is the rate
 *               of tokens of requests that draft over that of those that do not; no less than 0.98 is the goal.
 *   proposers   requests with a text (--prompt-file: one in each line, \n for a new line), one after another: plain,
 *               with n-grams of the text itself, with those of the other texts' answers too (shared), and with
 *               --draft FILE with that drafter (model), with it and no runners-up (chain), and with all (both). The
 *               answers must be the same.
 *
 *   bench_speculate MODEL.gguf [--test grid|proposers] [--streams N[,N...]] [--chances P[,P...]] [--tokens N]
 *                   [--rounds N] [--prompt-file FILE] [--draft FILE] [--only NAME[,NAME...]] [--draft-max N]
 *                   [--measure MS] [--threads N] [--csv]
 *
 * --measure: draft_measure_ms of the load.
 *
 * Variants go in turn, round by round, so that the machine's moods meet all of them; a figure is the median of the
 * rounds' ratios, least and most beside it. The grid's prompts are short, so that all streams soon run at once.
 * Everything runs on one host thread; greedy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/engine.h"
#include "base/rng.h"
#include "streams_device.h"

enum { STREAMS_MOST = 64, TOKENS_MOST = 1024, PROMPT = 4, ROUNDS_MOST = 64, TURN = 48 };

struct talk {
    runnel_stream stream;
    const int32_t *prompt; /* or text */
    uint32_t n_prompt;
    const char *text;
    int32_t tokens[TOKENS_MOST];
    uint64_t at_ns[TOKENS_MOST];
    uint32_t n_tokens;
    bool done, share, chain;
    uint64_t salt;
    uint64_t drafted, accepted;
};

struct liar {
    struct rn_proposer proposer; /* first */
    struct rn_heap *heap;
    uint64_t random;
};

static struct {
    const char *model, *test, *prompts, *draft, *only;
    uint32_t streams[8], n_streams, n_chances, n_tokens, n_rounds, draft_max, threads, measure_ms;
    double chances[8];
    bool csv;
} arguments = {.streams = {1, 4, 16, 64},
               .n_streams = 4,
               .chances = {0, 0.4, 0.8, 1, -1},
               .n_chances = 5,
               .n_tokens = 96,
               .n_rounds = 5,
               .test = "grid"};

static runnel_engine *engine;
static runnel_model *model;
static uint32_t n_vocab;
static struct talk talks[STREAMS_MOST];
static int32_t prompts[STREAMS_MOST][PROMPT];
static int32_t answers[STREAMS_MOST][TOKENS_MOST];
static double chance; /* below 0: turns */

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_speculate: %s: %s\n", what, why);
    exit(1);
}

/* ---- The liar ---- */

/* The stream is told by its prompt's first token: see make_prompts. */
static uint32_t lie(struct rn_proposer *proposer, const int32_t *tokens, uint32_t n_tokens, uint32_t most,
                    int32_t *drafts)
{
    struct liar *liar = (struct liar *)proposer;
    uint32_t who = (uint32_t)(tokens[0] - prompts[0][0]), at = n_tokens - PROMPT, n = 0;

    for (; n < most && at < arguments.n_tokens; n++, at++) {
        double right = chance >= 0 ? chance : at / TURN % 2 == 0 ? 1 : 0;
        bool lies = (double)(rn_splitmix64(&liar->random) >> 11) * 0x1p-53 >= right;

        drafts[n] = lies ? (answers[who][at] + 1) % (int32_t)n_vocab : answers[who][at];
    }
    return n;
}

static void free_liar(struct rn_proposer *proposer)
{
    rn_free(((struct liar *)proposer)->heap, proposer);
}

static const struct rn_proposer_ops liar_ops = {.propose = lie, .free = free_liar};

static struct rn_proposer *new_liar(void *user, struct rn_heap *heap)
{
    struct liar *liar = rn_calloc(heap, 1, sizeof *liar);

    if (liar != NULL)
        *liar = (struct liar){{&liar_ops}, heap, ++*(uint64_t *)user};
    return liar == NULL ? NULL : &liar->proposer;
}

/* ---- Requests ---- */

static void on_event(void *user, const runnel_event *event)
{
    struct talk *talk = user;

    if (event->type == RUNNEL_EVENT_TOKEN && event->token >= 0 && talk->n_tokens < TOKENS_MOST) {
        talk->at_ns[talk->n_tokens] = monotonic_ns();
        talk->tokens[talk->n_tokens++] = event->token;
    }
    if (event->type < RUNNEL_EVENT_DONE)
        return;
    if (event->type == RUNNEL_EVENT_FAILED)
        die("a stream failed", event->error);
    talk->drafted = event->usage.drafted_tokens;
    talk->accepted = event->usage.accepted_tokens;
    talk->done = true;
}

static void submit(struct talk *talk, uint32_t draft)
{
    runnel_request request;
    runnel_error error = {0};

    runnel_request_default(&request);
    request.tokens = talk->prompt;
    request.n_tokens = talk->n_prompt;
    if (talk->text != NULL) {
        request.prompt = talk->text;
        request.prompt_bytes = strlen(talk->text);
    }
    request.max_tokens = arguments.n_tokens;
    request.ignore_eos = 1;
    request.on_event = on_event;
    request.user = talk;
    request.draft = draft;
    request.draft_max = arguments.draft_max;
    request.draft_share = talk->share;
    request.draft_chain = talk->chain;
    request.cache_salt = talk->salt;
    talk->n_tokens = 0;
    talk->done = false;
    if (runnel_generate(model, &request, &talk->stream, &error) != RUNNEL_OK)
        die("submit", error.message);
}

/* Tokens per second of n talks at once, from the first token of all to the last of all: streams that draft well end
 * early, so that there may be no time in which all of them go on. */
static double run(uint32_t n, uint32_t draft)
{
    uint64_t begin = UINT64_MAX, end = 0, tokens = 0;

    for (uint32_t i = 0; i < n; i++)
        submit(&talks[i], draft);
    for (uint32_t i = 0; i < n; i++)
        while (!talks[i].done) {
            runnel_engine_wait(engine, 1000);
            runnel_engine_dispatch(engine, 0);
        }
    for (uint32_t i = 0; i < n; i++) {
        begin = talks[i].at_ns[0] < begin ? talks[i].at_ns[0] : begin;
        end = talks[i].at_ns[talks[i].n_tokens - 1] > end ? talks[i].at_ns[talks[i].n_tokens - 1] : end;
        tokens += talks[i].n_tokens;
    }
    return (double)(tokens - 1) / ((double)(end - begin) * 1e-9);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* ---- The grid ---- */

static void make_prompts(void)
{
    uint64_t random = 7;
    int32_t first = n_vocab > 1000 ? 300 : 0;

    for (uint32_t i = 0; i < STREAMS_MOST; i++) {
        prompts[i][0] = first + (int32_t)i;
        for (uint32_t k = 1; k < PROMPT; k++)
            prompts[i][k] = first + (int32_t)(rn_splitmix64(&random) % (n_vocab - (uint32_t)first));
        talks[i] = (struct talk){.prompt = prompts[i], .n_prompt = PROMPT};
    }
}

static void same_answers(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (talks[i].n_tokens != arguments.n_tokens ||
            memcmp(talks[i].tokens, answers[i], arguments.n_tokens * sizeof(int32_t)) != 0)
            die("grid", "drafts have changed a text");
}

/* One cell: the median ratio of the rounds. */
static bool cell(uint32_t n, double with_chance)
{
    double ratios[ROUNDS_MOST], plain = 0, drafting = 0, median;
    uint64_t drafted = 0, accepted = 0;
    uint32_t rounds = arguments.n_rounds, r, i;

    chance = with_chance;
    for (r = 0; r < rounds; r++) {
        double a = r % 2 == 0 ? run(n, RUNNEL_DRAFT_NONE) : 0, b = run(n, RUNNEL_DRAFT_NGRAM);

        same_answers(n);
        for (i = 0, drafted = accepted = 0; i < n; i++) {
            drafted += talks[i].drafted;
            accepted += talks[i].accepted;
        }
        a = r % 2 == 0 ? a : run(n, RUNNEL_DRAFT_NONE);
        ratios[r] = b / a;
        plain += a / rounds;
        drafting += b / rounds;
    }
    qsort(ratios, rounds, sizeof *ratios, by_size);
    median = ratios[rounds / 2];
    if (arguments.csv)
        printf("grid,%u,%g,%.1f,%.1f,%.3f,%.3f,%.3f,%llu,%llu\n", n, with_chance, plain, drafting, median, ratios[0],
               ratios[rounds - 1], (unsigned long long)drafted, (unsigned long long)accepted);
    else
        printf("%3u streams, right %5.2f: plain %7.1f, drafting %7.1f tokens/s; ratio %.3f (%.3f to %.3f); "
               "drafted %llu, accepted %llu%s\n",
               n, with_chance, plain, drafting, median, ratios[0], ratios[rounds - 1], (unsigned long long)drafted,
               (unsigned long long)accepted, median < 0.98 ? "  BELOW 0.98" : "");
    return median >= 0.98;
}

static bool grid(void)
{
    static uint64_t seed = 1;
    bool good = true;

    make_prompts();
    model->parts.new_proposer = new_liar;
    model->parts.proposer_user = &seed;
    for (uint32_t s = 0; s < arguments.n_streams; s++) {
        run(arguments.streams[s], RUNNEL_DRAFT_NONE);
        for (uint32_t i = 0; i < arguments.streams[s]; i++)
            memcpy(answers[i], talks[i].tokens, sizeof answers[i]);
        for (uint32_t c = 0; c < arguments.n_chances; c++)
            good &= cell(arguments.streams[s], arguments.chances[c]);
    }
    return good;
}

/* ---- Proposers ---- */

enum { TEXTS_MOST = 64, LINE = 16384 };

static struct proposer {
    const char *name;
    uint32_t draft;
    bool share, chain, asked;
    double rates[TEXTS_MOST][ROUNDS_MOST];
    uint64_t drafted[TEXTS_MOST], accepted[TEXTS_MOST]; /* of the last round */
} proposers[] = {{.name = "plain"},
                 {.name = "ngram", .draft = RUNNEL_DRAFT_NGRAM},
                 {.name = "shared", .draft = RUNNEL_DRAFT_NGRAM, .share = true},
                 {.name = "model", .draft = RUNNEL_DRAFT_MODEL},
                 {.name = "chain", .draft = RUNNEL_DRAFT_MODEL, .chain = true},
                 {.name = "both", .draft = RUNNEL_DRAFT_NGRAM | RUNNEL_DRAFT_MODEL, .share = true}};

enum { PROPOSERS = sizeof proposers / sizeof *proposers };

static char texts[TEXTS_MOST][LINE];
static uint32_t n_texts;

/* \n becomes a new line. */
static void unescape(char *line)
{
    char *to = line;

    line[strcspn(line, "\n")] = 0;
    for (const char *from = line; *from != 0; from++, to++)
        if (from[0] == '\\' && from[1] == 'n') {
            *to = '\n';
            from++;
        } else {
            *to = *from;
        }
    *to = 0;
}

static void read_texts(void)
{
    FILE *file = arguments.prompts == NULL ? NULL : fopen(arguments.prompts, "r");

    if (file == NULL)
        die("--prompt-file", arguments.prompts == NULL ? "is missing" : "cannot be read");
    while (n_texts < TEXTS_MOST && fgets(texts[n_texts], LINE, file) != NULL)
        unescape(texts[n_texts++]);
    fclose(file);
}

/* "plain" always runs: the others are compared with it. */
static void choose(void)
{
    for (uint32_t i = 0; i < PROPOSERS; i++) {
        bool can = (proposers[i].draft & RUNNEL_DRAFT_MODEL) == 0 || arguments.draft != NULL;
        bool named = arguments.only == NULL || strstr(arguments.only, proposers[i].name) != NULL;

        proposers[i].asked = i == 0 || (can && named);
    }
}

/* One text: all proposers in turn, in each round another one first. Each has a salt of its own in each round, so that
 * what is shared are its answers to the texts before, not this one's of another proposer. */
static void race(uint32_t text, uint32_t round)
{
    for (uint32_t k = 0, n = 0; k < PROPOSERS; k++) {
        struct proposer *p = &proposers[(round + k) % PROPOSERS];

        uint64_t salt = (uint64_t)round * PROPOSERS + (uint64_t)(p - proposers) + 1;

        if (!p->asked)
            continue;
        talks[0] = (struct talk){.text = texts[text], .share = p->share, .chain = p->chain, .salt = salt};
        p->rates[text][round] = run(1, p->draft);
        p->drafted[text] = talks[0].drafted;
        p->accepted[text] = talks[0].accepted;
        if (n++ == 0)
            memcpy(answers[0], talks[0].tokens, sizeof answers[0]);
        if (memcmp(talks[0].tokens, answers[0], talks[0].n_tokens * sizeof(int32_t)) != 0)
            die(p->name, "drafts have changed a text");
    }
}

/* The rate over texts [first, last) of equally many tokens, over plain's of the same round: rounds' median. */
static double ratio_of(const struct proposer *p, uint32_t first, uint32_t last, double *rate)
{
    double ratios[ROUNDS_MOST];

    *rate = 0;
    for (uint32_t r = 0; r < arguments.n_rounds; r++) {
        double time = 0, plain = 0;

        for (uint32_t t = first; t < last; t++) {
            time += 1 / p->rates[t][r];
            plain += 1 / proposers[0].rates[t][r];
        }
        ratios[r] = plain / time;
        *rate += (last - first) / time / arguments.n_rounds;
    }
    qsort(ratios, arguments.n_rounds, sizeof *ratios, by_size);
    return ratios[arguments.n_rounds / 2];
}

static void tell(const struct proposer *p, uint32_t first, uint32_t last)
{
    double rate, ratio = ratio_of(p, first, last, &rate);
    uint64_t drafted = 0, accepted = 0;
    char name[32] = "all";

    for (uint32_t t = first; t < last; t++) {
        drafted += p->drafted[t];
        accepted += p->accepted[t];
    }
    if (last - first < n_texts)
        snprintf(name, sizeof name, "%u", first + 1);
    if (arguments.csv)
        printf("proposers,%s,%s,%.2f,%.3f,%llu,%llu\n", name, p->name, rate, ratio, (unsigned long long)drafted,
               (unsigned long long)accepted);
    else
        printf("text %-3s %-7s %7.2f tokens/s; ratio %.3f; drafted %llu, accepted %llu (%.0f %%)\n", name, p->name,
               rate, ratio, (unsigned long long)drafted, (unsigned long long)accepted,
               drafted == 0 ? 0.0 : 100.0 * (double)accepted / (double)drafted);
}

static void race_all(void)
{
    read_texts();
    choose();
    for (uint32_t r = 0; r < arguments.n_rounds; r++)
        for (uint32_t t = 0; t < n_texts; t++)
            race(t, r);
    for (uint32_t t = 0; t <= n_texts; t++)
        for (uint32_t i = 0; i < PROPOSERS; i++)
            if (proposers[i].asked && (t < n_texts || n_texts > 1))
                tell(&proposers[i], t < n_texts ? t : 0, t < n_texts ? t + 1 : n_texts);
}

/* ---- The program ---- */

static uint32_t numbers(const char *list, double *out, uint32_t most)
{
    uint32_t n = 0;
    char *end = NULL;

    for (; n < most && *list != 0; n++, list = *end == ',' ? end + 1 : end) {
        out[n] = strtod(list, &end);
        if (end == list)
            die(list, "is not a number");
    }
    return n;
}

static void set(const char *name, const char *value)
{
    double list[8];

    if (strcmp(name, "--test") == 0)
        arguments.test = value;
    else if (strcmp(name, "--prompt-file") == 0)
        arguments.prompts = value;
    else if (strcmp(name, "--draft") == 0)
        arguments.draft = value;
    else if (strcmp(name, "--only") == 0)
        arguments.only = value;
    else if (strcmp(name, "--chances") == 0)
        arguments.n_chances = numbers(value, arguments.chances, 8);
    else if (strcmp(name, "--tokens") == 0)
        arguments.n_tokens = (uint32_t)atoi(value);
    else if (strcmp(name, "--rounds") == 0)
        arguments.n_rounds = (uint32_t)atoi(value);
    else if (strcmp(name, "--draft-max") == 0)
        arguments.draft_max = (uint32_t)atoi(value);
    else if (strcmp(name, "--measure") == 0)
        arguments.measure_ms = (uint32_t)atoi(value);
    else if (strcmp(name, "--threads") == 0)
        arguments.threads = (uint32_t)atoi(value);
    else if (strcmp(name, "--streams") == 0)
        for (uint32_t i = 0, n = arguments.n_streams = numbers(value, list, 8); i < n; i++)
            arguments.streams[i] = (uint32_t)list[i];
    else
        die(name, "is no option");
}

static void read_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--csv") == 0)
            arguments.csv = true;
        else if (argv[i][0] != '-')
            arguments.model = argv[i];
        else if (i + 1 == argc)
            die(argv[i], "wants a value");
        else
            set(argv[i], argv[i + 1]), i++;
    if (arguments.model == NULL)
        die("usage", "bench_speculate MODEL.gguf [--test grid|proposers] ...: see the head of bench/speculate.c");
    if (arguments.n_tokens < 2 || arguments.n_tokens > TOKENS_MOST || arguments.n_rounds < 1 ||
        arguments.n_rounds > ROUNDS_MOST)
        die("--tokens, --rounds", "2 to 1024, 1 to 64");
    for (uint32_t i = 0; i < arguments.n_streams; i++)
        if (arguments.streams[i] < 1 || arguments.streams[i] > STREAMS_MOST)
            die("--streams", "1 to 64");
}

static void open_model(void)
{
    runnel_model_info info = {.struct_size = sizeof info};
    runnel_engine_options options;
    runnel_model_options model_options;
    runnel_error error = {0};

    runnel_engine_options_default(&options);
    options.max_streams = STREAMS_MOST;
    options.compute_threads = arguments.threads;
    runnel_model_options_default(&model_options);
    model_options.context_tokens = 2048;
    model_options.draft_path = arguments.draft;
    model_options.draft_measure_ms = arguments.measure_ms;
    model_options.kv_bytes = (uint64_t)1 << 30;
    if (runnel_engine_new(&options, &engine, &error) != RUNNEL_OK ||
        runnel_model_load(engine, arguments.model, &model_options, &model, &error) != RUNNEL_OK ||
        runnel_model_wait(model, -1, &error) != RUNNEL_OK || runnel_model_get_info(model, &info) != RUNNEL_OK)
        die(arguments.model, error.message);
    n_vocab = info.vocab_tokens;
}

/* What the policy believes that steps cost. */
static void tell_costs(void)
{
    fprintf(stderr, "steps of 1, 2, ... rows, ms:");
    for (uint32_t rows = 1; rows <= 1 + RN_DRAFT_MOST; rows++)
        fprintf(stderr, " %.2f", (double)rn_step_cost_of(&model->decode.cost, rows) * 1e-3);
    fprintf(stderr, "\n");
}

int main(int argc, char **argv)
{
    bool good = true;

    read_arguments(argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_model();
    if (strcmp(arguments.test, "grid") == 0)
        good = grid();
    else if (strcmp(arguments.test, "proposers") == 0)
        race_all();
    else
        die(arguments.test, "is no test");
    tell_costs();
    runnel_engine_free(engine);
    return good ? 0 : 1;
}
