/* Prints docs/ARCHITECTURES.md from the table of architectures. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "model/arch/table.h"
#include "tests/oracle/arch_models.h"

/* Of the oracle's file: the architecture, and behind it -dense, -moe or -made, perhaps with more. */
static bool is_of(const char *oracle, const char *architecture)
{
    size_t n = strlen(architecture);

    return strncmp(oracle, architecture, n) == 0 &&
           (strcmp(oracle + n, "-dense") == 0 || strcmp(oracle + n, "-moe") == 0 ||
            strncmp(oracle + n, "-made", 5) == 0);
}

/* Tables of arch_models.h, and who has computed the logits. */
static const struct {
    const char *name;
    bool by_formula;
} oracles[] = {
#define NAME(name, context) {name, false},
#define FORMULA(name, context) {name, true},
    ARCH_MODELS(NAME) ROUNDED_MODELS(NAME) MADE_MODELS(NAME) KEYED_MODELS(NAME) FORMULA_MODELS(FORMULA)
#undef FORMULA
#undef NAME
};

enum { N_ORACLES = sizeof oracles / sizeof oracles[0] };

static bool is_by_formula(const char *name)
{
    size_t i;

    for (i = 0; i < N_ORACLES; i++)
        if (oracles[i].by_formula && strcmp(oracles[i].name, name) == 0)
            return true;
    return false;
}

/* Those of arch_models.h; *by_formula: one at least is another program's no more than ours. */
static size_t print_judges(const char *architecture, size_t *by_formula)
{
    size_t i, n = 0;

    *by_formula = 0;
    for (i = 0; i < N_ORACLES; i++) {
        if (oracles[i].by_formula || !is_of(oracles[i].name, architecture))
            continue;
        printf("%s%s", n++ == 0 ? "" : ", ", oracles[i].name);
        *by_formula += is_by_formula(oracles[i].name);
    }
    printf("%s", n == 0 ? "none" : "");
    return n;
}

static void print_status(const struct rn_arch *arch, size_t judges, size_t by_formula)
{
    printf("%s%s",
           judges == 0           ? "not judged"
           : by_formula < judges ? "agrees with llama.cpp"
                                 : "agrees with a formula",
           (arch->flags & (RN_ARCH_BIDIRECTIONAL | RN_ARCH_NO_LOGITS)) == RN_ARCH_BIDIRECTIONAL
               ? "; forward passes alone"
               : "");
}

/* Features by the names that runnel_architecture_row reads. */
static void print_names(void)
{
    char name[RN_ARCH_NAME_BYTES];
    unsigned bit;
    int act;

    puts(
        "\n## Architectures that are not listed\n\n"
        "A file of another architecture is taken for a standard decoder if its tensors are those of one: token_embd, "
        "output_norm,\n"
        "in each block attn_q, attn_k, attn_v (or attn_qkv), attn_output and a feed-forward or experts, with the norms "
        "and biases\n"
        "that the file has. What stands in the file counts: norms before, behind, or of queries and keys, windows by "
        "attention.sliding_window_pattern,\n"
        "softcaps, ALiBi, learned positions, shared experts. Five things do not stand there and are assumed:\n\n"
        "- Halves are rotated, as most converters leave them; neighbours if key tensor_data_layout is \"Meta AI "
        "original "
        "pth\".\n"
        "- Positions are told by that rotation, too, where no key or tensor tells of any.\n"
        "- Norms of queries and keys stand before the rotation.\n"
        "- The activation is SiLU before a gate, else GELU.\n"
        "- Experts are weighted by a softmax, and divided by the sum of the chosen, unless keys say otherwise.\n\n"
        "The log warns once of what was assumed. A key or tensor that may change the result and that this plan does "
        "not "
        "know is an\n"
        "error that names it.\n\n"
        "A host that knows better describes a row: `runnel_engine_options.architectures` (runnel.h), for files that "
        "are "
        "only looked\n"
        "into `runnel_file_set_architectures`, and in the program `--architecture NAME=LIKE[,FEATURE][,-FEATURE]"
        "[,activation=NAME]`.\n\n"
        "```c\n"
        "runnel_architecture_row row;\n"
        "const runnel_architecture_row *rows[] = {&row};\n\n"
        "runnel_architecture_row_default(&row);\n"
        "row.name = \"of-our-house\"; /* general.architecture */\n"
        "row.like = \"qwen3\";\n"
        "row.without = \"head-norm\";\n"
        "options.architectures = rows;\n"
        "options.n_architectures = 1;\n"
        "```\n\n"
        "| feature | of the architectures above |\n|---|---|");
    for (bit = 0; bit < RN_ARCH_BITS; bit++) {
        const struct rn_arch *arch;
        unsigned n = 0;

        rn_arch_flag_name((enum rn_arch_bit)bit, name);
        printf("| %s | ", name);
        for (size_t i = 0; (arch = rn_arch_at(i)) != NULL; i++)
            if ((arch->flags >> bit & 1) != 0 && n++ < 4)
                printf("%s%s", n > 1 ? ", " : "", arch->name);
        puts(n > 4 ? ", ... |" : n == 0 ? "none |" : " |");
    }
    printf("\nActivations:");
    for (act = 0; rn_arch_act_name((enum rn_activation)act) != NULL; act++)
        printf("%s %s", act > 0 ? "," : "", rn_arch_act_name((enum rn_activation)act));
    puts(".");
}

int main(void)
{
    const struct rn_arch *arch;
    char features[RN_ARCH_FEATURES_BYTES];
    size_t i, judges, by_formula;

    puts(
        "# Architectures\n\n"
        "Names are those of the key general.architecture. The table is printed from model/arch/table.c by\n"
        "tests/oracle/print_architectures.c; a test compares them. A judge is a tiny model of random weights whose "
        "logits\n"
        "another program has computed; the reference and the fast path agree with each to a normalised mean squared "
        "error of\n"
        "1e-6, and chunks, company and places of blocks do not change a bit (tests/oracle/test_arch.c).\n\n"
        "Of models with attention in both directions whole texts are computed: their embeddings and scores "
        "(runnel_embed,\n"
        "runnel_score), and their logits, by requests with want_logits and no tokens to come and by `runnel logits`. "
        "A text\n"
        "may be as long as a step (`--batch`; without it 512 tokens or the context). Other requests are refused, since "
        "such\n"
        "models do not generate one token after the other. Encoders, whose features are embeddings alone, give no "
        "logits; they are\n"
        "judged by another program's features of each position. A text is one sentence to them: all of its tokens "
        "are of the first\n"
        "type. Windows of models that see both ways are to both sides, half of their width each.\n\n"
        "Status says whose logits are met. The judge of rwkv7-dense is another one than the logits of ../shared: "
        "these have been\n"
        "computed across heads (tests/oracle/exact/README.md). A file whose tensors choose experts is refused where "
        "no experts are\n"
        "among the features.\n\n"
        "With ALiBi a model has no chunk-mean: a mean of positions has no distance. Windows of phi3 and starcoder2 "
        "files are\n"
        "not applied, and norms of phimoe are RMS norms with biases, as the judge has it. Groups of experts "
        "(expert_group_count) are ranked by\n"
        "the sum of their two best experts, also in DeepSeek-V2 files, whose paper takes the best one: so does the "
        "judge.\n\n"
        "Without a word for it, norms are RMS norms before attention and feed-forward, and neighbours are rotated.\n\n"
        "| name | features | judge | status |\n|---|---|---|---|");
    for (i = 0; (arch = rn_arch_at(i)) != NULL; i++) {
        rn_arch_features(arch, features);
        printf("| %s | %s | ", arch->name, features);
        judges = print_judges(arch->name, &by_formula);
        printf(" | ");
        print_status(arch, judges, by_formula);
        puts(" |");
    }
    print_names();
    return 0;
}
