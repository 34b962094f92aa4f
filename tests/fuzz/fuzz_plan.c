/* A file of any architecture with a real table of tensors, and things wrong with it: the plan is one that its checker
 * accepts, or there is a sentence that says what is wrong; the same for its prediction layer.
 *
 * The input is a program: byte 0 picks the architecture (behind the table's last: one that nobody knows), byte 1 what
 * the file has (the bits below), then four bytes for each change. Seeds: each architecture with each single bit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/check.h"
#include "model/arch/table.h"
#include "model/heads/head.h"
#include "model/plan.h"
#include "model/plan_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { WIDTH = 32, HEADS = 4, KV_HEADS = 2, FEED = 64, VOCAB = 32, EXPERTS = 4, BLOCKS = 3 };
enum { MOST_KEYS = 160, MOST_TENSORS = 256, BYTES = 1 << 20 };
enum { FUSED = 1, WITH_EXPERTS = 2, NORMS_AFTER = 4, HEAD_NORMS = 8, PLAIN = 16, NEXTN = 32, BIASES = 64, TIED = 128 };

struct key {
    char name[96];
    uint32_t type; /* of GGUF; an array: RN_GGUF_ARRAY with `count` items U32 */
    uint32_t count;
    uint32_t value;
};

struct tensor {
    char name[64];
    uint64_t dims[4];
    uint32_t n_dims;
};

static struct file {
    struct key keys[MOST_KEYS];
    uint32_t n_keys;
    struct tensor tensors[MOST_TENSORS];
    uint32_t n_tensors;
    uint8_t bytes[BYTES];
    size_t n;
} f;

/* Keys behind the architecture's name. */
static const char *const rests[] = {"block_count",
                                    "context_length",
                                    "embedding_length",
                                    "feed_forward_length",
                                    "vocab_size",
                                    "attention.head_count",
                                    "attention.head_count_kv",
                                    "attention.key_length",
                                    "attention.value_length",
                                    "attention.layer_norm_epsilon",
                                    "attention.layer_norm_rms_epsilon",
                                    "attention.scale",
                                    "attention.causal",
                                    "attention.clamp_kqv",
                                    "attention.max_alibi_bias",
                                    "attention.sliding_window",
                                    "attention.sliding_window_pattern",
                                    "attention.chunk_size",
                                    "attention.kv_lora_rank",
                                    "attention.q_lora_rank",
                                    "attention.key_length_mla",
                                    "attention.value_length_mla",
                                    "attention.indexer.head_count",
                                    "attention.indexer.key_length",
                                    "attention.indexer.top_k",
                                    "attention.temperature_length",
                                    "attention.temperature_scale",
                                    "attention.shared_kv_layers",
                                    "attention.group_norm_groups",
                                    "attention.group_norm_epsilon",
                                    "attn_logit_softcapping",
                                    "final_logit_softcapping",
                                    "embedding_scale",
                                    "residual_scale",
                                    "logit_scale",
                                    "use_parallel_residual",
                                    "pooling_type",
                                    "nextn_predict_layers",
                                    "leading_dense_block_count",
                                    "interleave_moe_layer_step",
                                    "full_attention_interval",
                                    "expert_count",
                                    "expert_used_count",
                                    "expert_feed_forward_length",
                                    "expert_shared_count",
                                    "expert_shared_feed_forward_length",
                                    "expert_gating_func",
                                    "expert_weights_norm",
                                    "expert_weights_scale",
                                    "expert_group_count",
                                    "expert_group_used_count",
                                    "rope.dimension_count",
                                    "rope.dimension_sections",
                                    "rope.freq_base",
                                    "rope.freq_base_swa",
                                    "rope.scale_linear",
                                    "rope.scaling.type",
                                    "rope.scaling.factor",
                                    "rope.scaling.original_context_length",
                                    "rope.scaling.attn_factor",
                                    "rope.scaling.yarn_log_multiplier",
                                    "rope.scaling.low_freq_factor",
                                    "rope.scaling.high_freq_factor",
                                    "ssm.inner_size",
                                    "ssm.conv_kernel",
                                    "ssm.state_size",
                                    "ssm.time_step_rank",
                                    "ssm.group_count",
                                    "wkv.head_size",
                                    "shortconv.l_cache",
                                    "kda.head_dim",
                                    "swiglu_clamp_exp",
                                    "tensor_data_layout"};

/* What a block of some architecture has, beside those of put_block. */
static const char *const others[] = {"attn_sinks.weight",
                                     "attn_sub_norm.weight",
                                     "ffn_sub_norm.weight",
                                     "attn_norm_2.weight",
                                     "exp_probs_b.bias",
                                     "ffn_gate_inp_shexp.weight",
                                     "ffn_gate_shexp.weight",
                                     "ffn_up_shexp.weight",
                                     "ffn_down_shexp.weight",
                                     "ffn_gate_up_exps.weight",
                                     "ffn_gate_exps.bias",
                                     "attn_q_a.weight",
                                     "attn_q_b.weight",
                                     "attn_q_a_norm.weight",
                                     "attn_kv_a_mqa.weight",
                                     "attn_kv_a_norm.weight",
                                     "attn_kv_b.weight",
                                     "attn_k_b.weight",
                                     "attn_v_b.weight",
                                     "attn_gate.weight",
                                     "ssm_in.weight",
                                     "ssm_conv1d.weight",
                                     "ssm_a",
                                     "ssm_d",
                                     "ssm_dt.weight",
                                     "ssm_dt.bias",
                                     "ssm_x.weight",
                                     "ssm_norm.weight",
                                     "ssm_out.weight",
                                     "shortconv.conv.weight",
                                     "shortconv.in_proj.weight",
                                     "layer_output_norm.weight",
                                     "nextn.shared_head_head.weight",
                                     "nextn.embed_tokens.weight",
                                     "rope_freqs.weight"};

/* ---- The file before it is changed ---- */

static void put_key(const char *arch, const char *rest, uint32_t type, uint32_t value)
{
    struct key *key = &f.keys[f.n_keys++];

    RN_CHECK(f.n_keys <= MOST_KEYS);
    *key = (struct key){.type = type, .count = BLOCKS, .value = value};
    snprintf(key->name, sizeof key->name, "%s.%s", arch, rest);
}

static void put_tensor(int block, const char *rest, uint64_t cols, uint64_t rows, uint64_t experts)
{
    struct tensor *tensor = &f.tensors[f.n_tensors];

    if (f.n_tensors == MOST_TENSORS)
        return;
    *tensor = (struct tensor){.dims = {cols, rows, experts, 1}, .n_dims = experts > 1 ? 3 : rows > 1 ? 2 : 1};
    if (block < 0)
        snprintf(tensor->name, sizeof tensor->name, "%s", rest);
    else
        snprintf(tensor->name, sizeof tensor->name, "blk.%d.%s", block, rest);
    f.n_tensors++;
}

static void put_attention(int i, unsigned has)
{
    const uint32_t head = WIDTH / HEADS, narrow = KV_HEADS * head;

    if ((has & FUSED) != 0) {
        put_tensor(i, "attn_qkv.weight", WIDTH, WIDTH + 2 * narrow, 1);
    } else {
        put_tensor(i, "attn_q.weight", WIDTH, WIDTH, 1);
        put_tensor(i, "attn_k.weight", WIDTH, narrow, 1);
        put_tensor(i, "attn_v.weight", WIDTH, narrow, 1);
    }
    if ((has & HEAD_NORMS) != 0) {
        put_tensor(i, "attn_q_norm.weight", head, 1, 1);
        put_tensor(i, "attn_k_norm.weight", head, 1, 1);
    }
    put_tensor(i, "attn_output.weight", WIDTH, WIDTH, 1);
    if ((has & BIASES) != 0)
        put_tensor(i, "attn_output.bias", WIDTH, 1, 1);
}

static void put_ffn(int i, unsigned has)
{
    if ((has & WITH_EXPERTS) != 0) {
        put_tensor(i, "ffn_gate_inp.weight", WIDTH, EXPERTS, 1);
        put_tensor(i, "ffn_gate_exps.weight", WIDTH, FEED, EXPERTS);
        put_tensor(i, "ffn_up_exps.weight", WIDTH, FEED, EXPERTS);
        put_tensor(i, "ffn_down_exps.weight", FEED, WIDTH, EXPERTS);
        return;
    }
    if ((has & PLAIN) == 0)
        put_tensor(i, "ffn_gate.weight", WIDTH, FEED, 1);
    put_tensor(i, "ffn_up.weight", WIDTH, FEED, 1);
    put_tensor(i, "ffn_down.weight", FEED, WIDTH, 1);
}

static void put_block(int i, unsigned has)
{
    put_tensor(i, "attn_norm.weight", WIDTH, 1, 1);
    put_attention(i, has);
    if ((has & NORMS_AFTER) != 0) {
        put_tensor(i, "post_attention_norm.weight", WIDTH, 1, 1);
        put_tensor(i, "post_ffw_norm.weight", WIDTH, 1, 1);
    }
    put_tensor(i, "ffn_norm.weight", WIDTH, 1, 1);
    put_ffn(i, has);
    if ((has & NEXTN) != 0 && i == BLOCKS - 1) {
        put_tensor(i, "nextn.eh_proj.weight", 2 * WIDTH, WIDTH, 1);
        put_tensor(i, "nextn.enorm.weight", WIDTH, 1, 1);
        put_tensor(i, "nextn.hnorm.weight", WIDTH, 1, 1);
    }
}

static void put_file(const char *arch, unsigned has)
{
    const uint32_t u32 = RN_GGUF_U32, f32 = RN_GGUF_F32;
    const float eps = 1e-5f;
    uint32_t bits;

    memcpy(&bits, &eps, sizeof bits);
    f.n_keys = f.n_tensors = 0;
    put_key(arch, "block_count", u32, BLOCKS);
    put_key(arch, "context_length", u32, 64);
    put_key(arch, "embedding_length", u32, WIDTH);
    put_key(arch, "feed_forward_length", u32, FEED);
    put_key(arch, "attention.head_count", u32, HEADS);
    put_key(arch, "attention.head_count_kv", u32, KV_HEADS);
    put_key(arch, "attention.layer_norm_rms_epsilon", f32, bits);
    put_key(arch, "attention.layer_norm_epsilon", f32, bits);
    if ((has & WITH_EXPERTS) != 0) {
        put_key(arch, "expert_count", u32, EXPERTS);
        put_key(arch, "expert_used_count", u32, 2);
        put_key(arch, "expert_feed_forward_length", u32, FEED);
    }
    if ((has & NEXTN) != 0)
        put_key(arch, "nextn_predict_layers", u32, 1);
    put_tensor(-1, "token_embd.weight", WIDTH, VOCAB, 1);
    put_tensor(-1, "output_norm.weight", WIDTH, 1, 1);
    if ((has & TIED) == 0)
        put_tensor(-1, "output.weight", WIDTH, VOCAB, 1);
    for (int i = 0; i < BLOCKS; i++)
        put_block(i, has);
}

/* ---- Changes ---- */

/* Numbers that keys may have: small ones, sizes of the file, and absurd ones. */
static uint32_t number(uint8_t b)
{
    static const uint32_t absurd[] = {0x7fffffff, UINT32_MAX, 0x7fc00000 /* NaN */, 0x7f800000, 0xbf800000,
                                      1u << 24,   4097,       0x3f000000,           0x40000000, 65537};

    return b < 128 ? b : b < 192 ? (uint32_t)(b - 128) * 32 : absurd[b % (sizeof absurd / sizeof absurd[0])];
}

static void set_key(const char *arch, const char *rest, uint8_t type, uint8_t value)
{
    static const uint32_t types[] = {RN_GGUF_U32,   RN_GGUF_F32, RN_GGUF_BOOL, RN_GGUF_STRING,
                                     RN_GGUF_ARRAY, RN_GGUF_I32, RN_GGUF_U32,  RN_GGUF_F32};
    char name[96];
    uint32_t i;

    snprintf(name, sizeof name, "%s.%s", arch, rest);
    for (i = 0; i < f.n_keys && strcmp(f.keys[i].name, name) != 0;)
        i++;
    if (i == f.n_keys)
        put_key(arch, rest, 0, 0);
    f.keys[i].type = types[type % 8];
    f.keys[i].value = number(value);
    f.keys[i].count = type >> 3; /* of an array: up to 31 */
}

static bool has_tensor(const char *name)
{
    for (uint32_t i = 0; i < f.n_tensors; i++)
        if (strcmp(f.tensors[i].name, name) == 0)
            return true;
    return false;
}

static void rename_tensor(struct tensor *tensor, int block, const char *rest)
{
    char name[64];

    snprintf(name, sizeof name, "blk.%d.%s", block, rest);
    if (!has_tensor(name))
        strcpy(tensor->name, name);
}

static void change(const char *arch, const uint8_t op[4])
{
    struct tensor *tensor = &f.tensors[op[1] % f.n_tensors];
    const char *rest = others[op[2] % (sizeof others / sizeof others[0])];
    uint64_t size = number(op[3]);

    switch (op[0] % 6) {
    case 0:
    case 1:
        if (f.n_keys < MOST_KEYS)
            set_key(arch, rests[op[1] % (sizeof rests / sizeof rests[0])], op[2], op[3]);
        break;
    case 2:
        if (f.n_tensors > 1)
            *tensor = f.tensors[--f.n_tensors];
        break;
    case 3:
        if (size > 0 && size <= 4096)
            tensor->dims[op[2] % 3] = size;
        tensor->n_dims = 3;
        break;
    case 4:
        rename_tensor(tensor, op[3] % (BLOCKS + 1), rest);
        break;
    case 5:
        for (int i = 0; i < BLOCKS; i++) {
            char name[64];

            snprintf(name, sizeof name, "blk.%d.%s", i, rest);
            if (!has_tensor(name))
                put_tensor(i, rest, op[1] % 4 == 0 ? HEADS : WIDTH, op[3] % 128 + 1, 1);
        }
    }
}

/* ---- Bytes ---- */

static void put(const void *bytes, size_t n)
{
    RN_CHECK(n <= sizeof f.bytes - f.n);
    memcpy(f.bytes + f.n, bytes, n);
    f.n += n;
}

static void put_number(uint64_t value, size_t n)
{
    put(&value, n);
}

static void put_string(const char *text)
{
    put_number(strlen(text), 8);
    put(text, strlen(text));
}

static void write_key(const struct key *key)
{
    put_string(key->name);
    put_number(key->type, 4);
    if (key->type == RN_GGUF_STRING) {
        put_string(key->value % 2 == 0 ? "yarn" : "longrope");
    } else if (key->type == RN_GGUF_ARRAY) {
        put_number(RN_GGUF_U32, 4);
        put_number(key->count, 8);
        for (uint32_t i = 0; i < key->count; i++)
            put_number(key->value + i % 2, 4);
    } else {
        put_number(key->type == RN_GGUF_BOOL ? key->value % 2 : key->value, key->type == RN_GGUF_BOOL ? 1 : 4);
    }
}

/* All tensors are F32 zeros and overlap nothing. False: they need too much room. */
static bool write_file(const char *arch)
{
    uint64_t at = 0, elements;

    f.n = 0;
    put("GGUF\x03\0\0\0", 8);
    put_number(f.n_tensors, 8);
    put_number(f.n_keys + 1, 8);
    put_string("general.architecture");
    put_number(RN_GGUF_STRING, 4);
    put_string(arch);
    for (uint32_t i = 0; i < f.n_keys; i++)
        write_key(&f.keys[i]);
    for (uint32_t i = 0; i < f.n_tensors; i++) {
        struct tensor *tensor = &f.tensors[i];

        put_string(tensor->name);
        put_number(tensor->n_dims, 4);
        put(tensor->dims, 8 * tensor->n_dims);
        put_number(0, 4);
        put_number(at, 8);
        elements = tensor->dims[0] * tensor->dims[1] * tensor->dims[2];
        at += (4 * elements + 31) / 32 * 32;
    }
    f.n = (f.n + 31) / 32 * 32;
    if (at > BYTES - f.n)
        return false;
    memset(f.bytes + f.n, 0, at);
    f.n += at;
    return true;
}

/* ---- Judging ---- */

static void judge(const struct rn_plan *plan, runnel_status status, const runnel_error *error)
{
    char text[64];

    RN_CHECK((status == RUNNEL_OK) == (plan != NULL) && error->status == status);
    RN_CHECK(status == RUNNEL_OK || strstr(error->message, "fuzz.gguf") != NULL);
    if (plan == NULL)
        return;
    RN_CHECK(rn_plan_check(plan));
    RN_CHECK(rn_plan_text(plan, text, sizeof text) > 0);
}

static void look(struct rn_heap *heap, const struct rn_gguf *gguf)
{
    runnel_error error = {0};
    struct rn_plan *plan = NULL;
    runnel_status status = rn_plan_new(heap, gguf, 0, &plan, &error);

    judge(plan, status, &error);
    rn_plan_free(plan);
    plan = NULL;
    memset(&error, 0, sizeof error);
    status = rn_plan_new_nextn(heap, gguf, 64, 0, &plan, &error);
    judge(plan, status, &error);
    rn_plan_free(plan);
}

static const char *architecture(uint8_t index)
{
    size_t n = 0;

    while (rn_arch_at(n) != NULL)
        n++;
    return index % (n + 1) < n ? rn_arch_at(index % (n + 1))->name : "unheard-of";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *arch;
    struct rn_heap heap;
    struct rn_gguf *gguf = NULL;
    size_t at;

    if (size < 2)
        return 0;
    arch = architecture(data[0]);
    put_file(arch, data[1]);
    for (at = 2; at + 4 <= size && at < 2 + 4 * 64; at += 4)
        change(arch, data + at);
    rn_heap_init(&heap, NULL);
    if (write_file(arch) && rn_gguf_parse(&heap, f.bytes, f.n, "fuzz.gguf", &gguf, NULL) == RUNNEL_OK)
        look(&heap, gguf);
    rn_gguf_free(gguf);
    RN_CHECK(rn_heap_blocks(&heap) == 0);
    return 0;
}

/* With RUNNEL_FUZZ_SEEDS set, writes the seeds there before anything else: see run.sh. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *folder = getenv("RUNNEL_FUZZ_SEEDS");
    char name[512];

    (void)argc;
    (void)argv;
    for (uint32_t arch = 0; folder != NULL && arch < 256; arch++)
        for (uint32_t bit = 0; bit <= 8; bit++) {
            uint8_t seed[2] = {(uint8_t)arch, (uint8_t)(1u << bit)};
            FILE *file;

            snprintf(name, sizeof name, "%s/seed-%u-%u", folder, arch, bit);
            file = fopen(name, "wb");
            RN_CHECK(file != NULL && fwrite(seed, 1, 2, file) == 2 && fclose(file) == 0);
        }
    return 0;
}
