/* Adapters (LoRA) by options: see options.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "apps/utf8.h"
#include "common.h"
#include "option_table.h"

/* ---- One ------------------------------------------------------------------------------------ */

static bool is_text(const char *text, size_t n)
{
    for (size_t i = 0, length = 0; i < n; i += length) {
        length = app_utf8_length((const unsigned char *)text + i, n - i);
        if (length == 0 || (unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return false;
    }
    return n > 0;
}

static bool set_name(struct app_lora *lora, const char *name, size_t n)
{
    if (n >= sizeof lora->name || !is_text(name, n))
        return false;
    memcpy(lora->name, name, n);
    lora->name[n] = '\0';
    return true;
}

/* The file's, without its directories and ".gguf". */
static bool set_own_name(struct app_lora *lora)
{
    const char *slash = memrchr(lora->path, '/', lora->path_bytes), *name = slash != NULL ? slash + 1 : lora->path;
    size_t n = lora->path_bytes - (size_t)(name - lora->path);

    if (n > 5 && memcmp(name + n - 5, ".gguf", 5) == 0)
        n -= 5;
    return set_name(lora, name, n);
}

/* Behind the last colon, where that is a number: else it is of the path. */
static bool take_scale(struct app_lora *lora)
{
    const char *colon = strrchr(lora->path, ':');
    double scale = 0;

    lora->scale = 1;
    lora->path_bytes = strlen(lora->path);
    if (colon == NULL || !app_read_real(colon + 1, &scale))
        return true;
    lora->path_bytes = (size_t)(colon - lora->path);
    lora->scale = (float)scale;
    return lora->scale != 0; /* the library takes 0 for 1 */
}

bool app_lora_read(const char *text, struct app_lora *lora)
{
    const char *equal = strchr(text, '=');
    bool named = equal != NULL && memchr(text, '/', (size_t)(equal - text)) == NULL; /* as MODELs of a server are */

    lora->path = named ? equal + 1 : text;
    if (!take_scale(lora) || lora->path_bytes == 0)
        return false;
    return named ? set_name(lora, text, (size_t)(equal - text)) : set_own_name(lora);
}

/* ---- All ------------------------------------------------------------------------------------ */

bool app_has_adapter(const struct app_options *options, const char *name)
{
    struct app_lora lora;

    for (size_t i = 0; i < options->n_loras; i++)
        if (app_lora_read(options->loras[i], &lora) && strcmp(lora.name, name) == 0)
            return true;
    return false;
}

runnel_adapter *app_adapters(const struct app_options *options)
{
    size_t n = options->n_loras, bytes = n * sizeof(runnel_adapter);
    runnel_adapter *adapters = NULL;
    char *at = NULL;

    for (size_t i = 0; i < n; i++)
        bytes += RUNNEL_ADAPTER_BYTES + strlen(options->loras[i]) + 1;
    adapters = n > 0 ? calloc(1, bytes) : NULL;
    at = (char *)(adapters + n);
    for (size_t i = 0; adapters != NULL && i < n; i++) {
        struct app_lora lora;

        app_lora_read(options->loras[i], &lora); /* the table has checked it */
        adapters[i].name = memcpy(at, lora.name, sizeof lora.name);
        at += sizeof lora.name;
        adapters[i].path = memcpy(at, lora.path, lora.path_bytes); /* a zero behind it is there */
        at += lora.path_bytes + 1;
        adapters[i].scale = lora.scale;
    }
    return adapters;
}

static bool are_apart(const struct app_options *options)
{
    struct app_lora lora, other;

    for (size_t i = 0; i < options->n_loras; i++)
        for (size_t k = 0; k < i; k++)
            if (app_lora_read(options->loras[i], &lora) && app_lora_read(options->loras[k], &other) &&
                strcmp(lora.name, other.name) == 0) {
                app_error("--lora: two adapters are called '%s'; NAME=PATH gives one another name", lora.name);
                return false;
            }
    return true;
}

static void complain_unknown(const struct app_options *options)
{
    char names[512] = "";
    struct app_lora lora;

    for (size_t i = 0; i < options->n_loras; i++)
        if (app_lora_read(options->loras[i], &lora) && strlen(names) + strlen(lora.name) + 3 < sizeof names)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i > 0 ? ", " : "", lora.name);
    if (options->n_loras == 0)
        app_error("--adapter '%.80s' needs --lora: no adapter is loaded", options->adapter);
    else
        app_error("--adapter '%.80s' is none of --lora; there %s %s", options->adapter,
                  options->n_loras == 1 ? "is" : "are", names);
}

bool app_adapter_choose(struct app_options *options)
{
    struct app_lora lora;

    options->request_adapter[0] = '\0';
    if (!are_apart(options))
        return false;
    if (options->adapter != NULL && options->adapter[0] != '\0') {
        if (!app_has_adapter(options, options->adapter)) {
            complain_unknown(options);
            return false;
        }
        snprintf(options->request_adapter, sizeof options->request_adapter, "%s", options->adapter);
    } else if (options->adapter == NULL && options->n_loras == 1 && app_lora_read(options->loras[0], &lora)) {
        memcpy(options->request_adapter, lora.name, sizeof lora.name);
    }
    return true;
}
