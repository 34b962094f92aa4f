/* The first program: load a model, ask, print what comes.
 *
 *     hello [MODEL [PROMPT]] */
#include <runnel.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "examples/models/runnel-tiny-Q8_0.gguf";
    runnel_engine *engine = NULL;
    runnel_model *model = NULL;
    runnel_request request;
    runnel_stream stream;
    runnel_event event = {0};
    runnel_error error = {0};

    runnel_request_default(&request);
    request.prompt = argc > 2 ? argv[2] : "Once upon a time";
    request.prompt_bytes = strlen(request.prompt);
    request.max_tokens = 100;
    if (runnel_engine_new(NULL, &engine, &error) == RUNNEL_OK &&
        runnel_model_load(engine, path, NULL, &model, &error) == RUNNEL_OK &&
        runnel_model_wait(model, -1, &error) == RUNNEL_OK &&
        runnel_generate(model, &request, &stream, &error) == RUNNEL_OK)
        while (event.type < RUNNEL_EVENT_DONE && runnel_stream_next(engine, stream, -1, &event) == RUNNEL_OK)
            printf("%.*s", (int)event.text_bytes, event.text);
    printf("\n");
    if (event.type != RUNNEL_EVENT_DONE)
        fprintf(stderr, "hello: %s\n", event.type == RUNNEL_EVENT_FAILED ? event.error : error.message);
    runnel_model_free(model);
    runnel_engine_free(engine);
    return event.type == RUNNEL_EVENT_DONE ? 0 : 1;
}
