/* What a submit costs the thread that calls, which is the host's loop: of a chat with messages or tools of so many
 * bytes (runnel_chat.messages_json and tools), and of a text that fits by its bytes. The streams are cancelled, for
 * what becomes of them is not asked.
 *
 * Processor time of the call, in microseconds: the median of the rounds.
 *
 *   bench_submit MODEL [--rounds N] [--only text|messages|tools] */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "runnel.h"

#define ROUNDS_MOST 10000u
#define SIZE_MOST ((size_t)4 << 20)

enum kind { TEXT, MESSAGES, TOOLS, KINDS };
static const char *const names[] = {"text", "messages", "tools"};

static const char chatml[] = "{%- for t in tools or [] %}{{ t | tojson }}\n<tool_call>{\"name\": \"\", \"arguments\": "
                             "{}}</tool_call>{% endfor %}"
                             "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                             "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* Of which a list is made until it has the bytes. */
static const char message[] =
    "{\"role\":\"user\",\"content\":\"A question of some lines, as people write them:\\n\\n> with what "
    "\\\"somebody\\\" "
    "has said\\n\\nand some words more about it, so that it is not too short to be one of them at all.\"}";
static const char tool[] =
    "{\"type\":\"function\",\"function\":{\"name\":\"read_file\",\"description\":\"Reads a file of the workspace. "
    "Lines that "
    "are longer than 2000 characters are cut; of a long file only the first lines are read unless an offset is "
    "given.\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"description\":\"The absolute "
    "path of "
    "the file\"},\"offset\":{\"type\":\"integer\",\"description\":\"The line to begin "
    "at\"},\"limit\":{\"type\":\"integer\","
    "\"description\":\"How many lines to read\"}},\"required\":[\"path\"],\"additionalProperties\":false}}}";

static char *list_of(const char *item, size_t bytes)
{
    char *list = malloc(bytes + strlen(item) + 3);
    size_t n = 0;

    RN_CHECK(list != NULL);
    list[n++] = '[';
    do {
        n += (size_t)sprintf(list + n, "%s%s", n > 1 ? "," : "", item);
    } while (n < bytes);
    list[n] = ']';
    list[n + 1] = '\0';
    return list;
}

static void on_event(void *user, const runnel_event *event)
{
    bool *ended = user;

    *ended |=
        event->type == RUNNEL_EVENT_DONE || event->type == RUNNEL_EVENT_CANCELLED || event->type == RUNNEL_EVENT_FAILED;
}

/* Microseconds of this thread's. */
static double submit(runnel_engine *engine, runnel_model *model, const runnel_request *request)
{
    struct timespec begin, end;
    runnel_error error = {0};
    runnel_stream stream;
    runnel_status status;
    bool *ended = request->user;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    status = runnel_generate(model, request, &stream, &error);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    if (status != RUNNEL_OK) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    runnel_stream_cancel(engine, stream);
    for (*ended = false; !*ended;)
        runnel_engine_dispatch(engine, 0);
    return (double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) * 1e-3;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median_of(runnel_engine *engine, runnel_model *model, enum kind kind, size_t bytes, uint32_t rounds)
{
    static double us[ROUNDS_MOST];
    bool ended;
    char *list = list_of(kind == TOOLS ? tool : message, bytes), *text = calloc(bytes + 1, 1);
    runnel_request request;
    runnel_chat chat;

    RN_CHECK(text != NULL);
    memset(text, 'a', bytes);
    runnel_chat_default(&chat);
    chat.template_text = chatml;
    chat.messages_json = kind == MESSAGES ? list : "[{\"role\":\"user\",\"content\":\"Hello\"}]";
    chat.tools = kind == TOOLS ? list : NULL;
    runnel_request_default(&request);
    request.on_event = on_event;
    request.user = &ended;
    request.max_tokens = 1;
    request.chat = kind == TEXT ? NULL : &chat;
    request.prompt = kind == TEXT ? text : NULL;
    request.prompt_bytes = kind == TEXT ? bytes : 0;
    for (uint32_t i = 0; i < rounds; i++)
        us[i] = submit(engine, model, &request);
    free(list);
    free(text);
    qsort(us, rounds, sizeof us[0], ascending);
    return us[rounds / 2];
}

static runnel_model *load(runnel_engine *engine, const char *path)
{
    runnel_model_options options;
    runnel_model *model = NULL;
    runnel_error error = {0};

    runnel_model_options_default(&options);
    options.context_tokens = 512;
    error.status = runnel_model_load(engine, path, &options, &model, &error);
    if (error.status == RUNNEL_OK)
        error.status = runnel_model_wait(model, -1, &error);
    if (error.status == RUNNEL_OK)
        return model;
    fprintf(stderr, "%s\n", error.message);
    exit(1);
}

int main(int argc, char **argv)
{
    runnel_engine_options options;
    runnel_engine *engine = NULL;
    runnel_model *model;
    const char *only = "";
    uint32_t rounds = 51;

    for (int i = 2; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--rounds") == 0)
            rounds = (uint32_t)atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--only") == 0)
            only = argv[i + 1];
        else
            rounds = 0;
    }
    if (argc < 2 || argc % 2 != 0 || rounds == 0 || rounds > ROUNDS_MOST) {
        fprintf(stderr, "usage: bench_submit MODEL [--rounds 1..%u] [--only text|messages|tools]\n", ROUNDS_MOST);
        return 2;
    }
    runnel_engine_options_default(&options);
    options.compute_threads = 1;
    RN_CHECK(runnel_engine_new(&options, &engine, NULL) == RUNNEL_OK);
    model = load(engine, argv[1]);
    printf("us a submit, by bytes\n%-10s", "");
    for (size_t bytes = 256; bytes <= SIZE_MOST; bytes *= 16)
        printf(" %9zu", bytes);
    printf("\n");
    for (enum kind kind = 0; kind < KINDS; kind++) {
        if (strncmp(names[kind], only, strlen(only)) != 0)
            continue;
        printf("%-10s", names[kind]);
        for (size_t bytes = 256; bytes <= (kind == TEXT ? 256 : SIZE_MOST); bytes *= 16) {
            printf(" %9.1f", median_of(engine, model, kind, bytes, rounds));
            fflush(stdout);
        }
        printf("\n");
    }
    runnel_engine_free(engine);
    return 0;
}
