/* Prints an answer of the bundled model, and then what becomes of each address of a shared cache: the status of the
 * load and its sentence.
 *
 *     host MODEL ADDRESS... */
#include <stdio.h>
#include <string.h>

#include "runnel.h"

static int answer(runnel_engine *engine, const char *path)
{
    runnel_model *model = NULL;
    runnel_request request;
    runnel_stream stream;
    runnel_event event = {0};

    runnel_request_default(&request);
    request.prompt = "Once upon a time";
    request.prompt_bytes = strlen(request.prompt);
    request.max_tokens = 40;
    if (runnel_model_load(engine, path, NULL, &model, NULL) != RUNNEL_OK ||
        runnel_model_wait(model, -1, NULL) != RUNNEL_OK || runnel_generate(model, &request, &stream, NULL) != RUNNEL_OK)
        return 1;
    while (event.type < RUNNEL_EVENT_DONE && runnel_stream_next(engine, stream, -1, &event) == RUNNEL_OK)
        printf("%.*s", (int)event.text_bytes, event.text);
    printf("\n");
    runnel_model_free(model);
    return event.type != RUNNEL_EVENT_DONE;
}

static void share(runnel_engine *engine, const char *path, const char *address)
{
    runnel_model_options options;
    runnel_model *model = NULL;
    runnel_error error = {0};
    runnel_status status;

    runnel_model_options_default(&options);
    options.cache_shared = address;
    status = runnel_model_load(engine, path, &options, &model, &error);
    if (status == RUNNEL_OK)
        status = runnel_model_wait(model, -1, &error);
    printf("%s %s %s\n", address, runnel_status_name(status), error.message);
    runnel_model_free(model);
}

int main(int argc, char **argv)
{
    runnel_engine *engine = NULL;
    int code = 1;

    if (argc < 2 || runnel_engine_new(NULL, &engine, NULL) != RUNNEL_OK)
        return 2;
    code = answer(engine, argv[1]);
    for (int i = 2; i < argc; i++)
        share(engine, argv[1], argv[i]);
    runnel_engine_free(engine);
    return code;
}
