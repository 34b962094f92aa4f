/* What the head of a model's file says of it, for lists of models: see served_models.h. Read on a thread of libuv's,
 * when the model is loaded. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "apps/serve/keys/digest.h"
#include "runnel_files.h"
#include "serve.h"

enum { HEAD_BYTES = 1 << 20 }; /* of the file, for its digest */

/* llama.cpp's numbers of general.file_type. */
static const char *const file_types[] = {
    [0] = "F32",     [1] = "F16",     [2] = "Q4_0",      [3] = "Q4_1",    [7] = "Q8_0",     [8] = "Q5_0",
    [9] = "Q5_1",    [10] = "Q2_K",   [11] = "Q3_K_S",   [12] = "Q3_K_M", [13] = "Q3_K_L",  [14] = "Q4_K_S",
    [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",   [18] = "Q6_K",   [19] = "IQ2_XXS", [20] = "IQ2_XS",
    [21] = "Q2_K_S", [22] = "IQ3_XS", [23] = "IQ3_XXS",  [24] = "IQ1_S",  [25] = "IQ4_NL",  [26] = "IQ3_S",
    [27] = "IQ3_M",  [28] = "IQ2_S",  [29] = "IQ2_M",    [30] = "IQ4_XS", [31] = "IQ1_M",   [32] = "BF16",
    [36] = "TQ1_0",  [37] = "TQ2_0",  [38] = "MXFP4_MOE"};

static void copy_text(const runnel_file *file, const char *prefix, const char *rest, char *to, size_t room)
{
    size_t n = 0;
    char *text = app_file_text(file, prefix, rest, &n);

    snprintf(to, room, "%s", text != NULL ? text : "");
    free(text);
}

/* Of the type that has the most bytes. */
static void read_largest_type(const runnel_file *file, char *to, size_t room)
{
    struct {
        const char *type;
        uint64_t bytes;
    } types[32] = {0};
    runnel_tensor tensor = {.struct_size = sizeof tensor};
    size_t n = 0, most = 0;

    for (uint64_t i = 0; runnel_file_tensor(file, i, &tensor) == RUNNEL_OK; i++) {
        size_t k = 0;

        while (k < n && strcmp(types[k].type, tensor.type) != 0)
            k++;
        if (k == sizeof types / sizeof types[0])
            continue;
        types[k].type = tensor.type;
        types[k].bytes += tensor.bytes;
        n = k == n ? n + 1 : n;
    }
    for (size_t k = 1; k < n; k++)
        most = types[k].bytes > types[most].bytes ? k : most;
    snprintf(to, room, "%s", n > 0 ? types[most].type : "");
}

static void read_type(const runnel_file *file, char *to, size_t room)
{
    char number[16], *end = NULL;
    unsigned long type = 0;

    copy_text(file, "general", ".file_type", number, sizeof number);
    type = strtoul(number, &end, 10);
    if (end != number && type < sizeof file_types / sizeof file_types[0] && file_types[type] != NULL)
        snprintf(to, room, "%s", file_types[type]);
    else
        read_largest_type(file, to, room);
}

/* "8B", "1.1B", "751.63M": as Ollama writes numbers of parameters. */
static void put_size(uint64_t parameters, char *to, size_t room)
{
    double billions = (double)parameters / 1e9, millions = (double)parameters / 1e6;

    if (parameters >= 1000000000)
        snprintf(to, room, parameters % 1000000000 == 0 ? "%.0fB" : "%.1fB", billions);
    else if (parameters >= 1000000)
        snprintf(to, room, parameters % 1000000 == 0 ? "%.0fM" : "%.2fM", millions);
    else
        snprintf(to, room, "%.0fK", (double)parameters / 1e3);
}

/* Of the file's length and its beginning: the same for each copy, and another one for another file. */
static void read_digest(const char *path, uint64_t file_bytes, char *to, size_t room)
{
    uint8_t digest[DIGEST_BYTES], *head = malloc(HEAD_BYTES + sizeof file_bytes);
    FILE *file = fopen(path, "rbe");
    size_t n = head != NULL && file != NULL ? fread(head + sizeof file_bytes, 1, HEAD_BYTES, file) : 0;

    if (n > 0) {
        memcpy(head, &file_bytes, sizeof file_bytes);
        if (digest_of(head, n + sizeof file_bytes, digest))
            for (size_t i = 0; i < DIGEST_BYTES; i++)
                snprintf(to + 2 * i, room - 2 * i, "%02x", digest[i]);
    }
    if (file != NULL)
        fclose(file);
    free(head);
}

void serve_place_digest(const char *path, char digest[SERVE_DIGEST_BYTES])
{
    struct stat status = {0};
    char *text = NULL;
    int n = 0;

    (void)!stat(path, &status);
    n = asprintf(&text, "%s %lld %lld.%09ld", path, (long long)status.st_size, (long long)status.st_mtim.tv_sec,
                 status.st_mtim.tv_nsec);
    for (unsigned i = 0; n > 0 && i < 4; i++)
        snprintf(digest + 16 * i, 17, "%016llx", (unsigned long long)XXH3_64bits_withSeed(text, (size_t)n, i));
    if (n > 0)
        free(text);
}

/* The template by which chats become prompts, and what it does: the server's own, or the file's. */
static void read_template(const struct serve_model *model, const runnel_file *file, struct serve_facts *facts)
{
    const struct app_text *own = &model->serve->template_text;
    const char *name = model->options.template_name;
    runnel_template_info info = {.struct_size = sizeof info};
    char key[80];
    size_t n = 0;

    snprintf(key, sizeof key, "%s%.60s", name != NULL ? "." : "", name != NULL ? name : "");
    facts->template_text =
        own->bytes != NULL ? strndup(own->bytes, own->size) : app_file_text(file, "tokenizer.chat_template", key, &n);
    if (facts->template_text != NULL &&
        runnel_inspect_template(facts->template_text, strlen(facts->template_text), &info, NULL) == RUNNEL_OK)
        facts->knows = info.knows;
}

static bool begins(const runnel_tensor *tensor, const char *text)
{
    return tensor->name_bytes >= strlen(text) && memcmp(tensor->name, text, strlen(text)) == 0;
}

/* Whether the tensor's data lie on the device that has the blocks from `first` on, and what follows them. The embedding
 * is there where it is the head, too; experts that are apart from their layers are not. */
static bool is_on_device(const runnel_tensor *tensor, uint32_t first, bool has_head, bool apart)
{
    if (apart && memmem(tensor->name, tensor->name_bytes, "_exps.", strlen("_exps.")) != NULL)
        return false;
    if (begins(tensor, "blk."))
        return strtoul(tensor->name + strlen("blk."), NULL, 10) >= first;
    return first == 0 || !begins(tensor, "token_embd.") || !has_head;
}

/* Where not all is there, the weights of the layers that are, the experts that have a place, and a part of the KV. */
static uint64_t read_device_bytes(const struct serve_model *model, const runnel_file *file)
{
    const runnel_model_info *info = &model->info;
    runnel_tensor tensor = {.struct_size = sizeof tensor};
    bool apart = model->options.device_experts > 0, has_head = false;
    uint64_t bytes = 0;

    if (info->device_layers == 0)
        return 0;
    if (info->device_layers >= info->layers && !apart)
        return info->weight_bytes + info->kv_bytes + info->state_bytes + info->draft_weight_bytes +
               info->draft_kv_bytes;
    for (uint64_t i = 0; runnel_file_tensor(file, i, &tensor) == RUNNEL_OK; i++)
        has_head = has_head || begins(&tensor, "output.");
    for (uint64_t i = 0; runnel_file_tensor(file, i, &tensor) == RUNNEL_OK; i++)
        if (is_on_device(&tensor, info->layers - info->device_layers, has_head, apart))
            bytes += tensor.bytes;
    return bytes + info->device_expert_bytes + (uint64_t)((double)info->kv_bytes * info->device_layers / info->layers);
}

/* For batches, of what was loaded; not where that is not known. */
static void read_files(const struct serve_model *model, struct serve_facts *facts)
{
    char sentence[512];

    facts->files = calloc(model->adapters.n + 1, sizeof *facts->files);
    if (facts->files != NULL && app_fingerprints(model->path, &model->options, model->stamp, facts->files, sentence))
        return;
    free(facts->files);
    facts->files = NULL;
}

void serve_facts_read(const struct serve_model *model, struct serve_facts *facts)
{
    runnel_file_info info = {.struct_size = sizeof info};
    runnel_file *file = NULL;

    *facts = (struct serve_facts){0};
    if (model->serve->options->files_dir != NULL)
        read_files(model, facts);
    if (runnel_file_open(model->path, &file, NULL) != RUNNEL_OK)
        return; /* it is loaded: the file has gone meanwhile */
    copy_text(file, "general", ".architecture", facts->family, sizeof facts->family);
    read_type(file, facts->quantization, sizeof facts->quantization);
    if (runnel_file_get_info(file, &info) == RUNNEL_OK)
        put_size(info.parameters, facts->size, sizeof facts->size);
    read_digest(model->path, info.file_bytes, facts->digest, sizeof facts->digest);
    read_template(model, file, facts);
    facts->device_bytes = read_device_bytes(model, file);
    runnel_file_close(file);
}

void serve_facts_fini(struct serve_facts *facts)
{
    free(facts->template_text);
    free(facts->files);
    *facts = (struct serve_facts){0};
}
