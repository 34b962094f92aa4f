/* Any bytes as a template and its context. The input is the template up to its last "CONTEXT" mark and the JSON
 * behind it. Whatever it is: an end within the bounds, a sentence with an error, ranges of data that lie within the
 * text in order, and nothing left in memory. Rendered twice, it gives the same. Seeds: small templates that use every
 * tag, most filters and methods, written here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/check.h"
#include "text/template/template.h"
#include "text/vocab.h"

#define MARK "CONTEXT"
#define MARK_BYTES (sizeof MARK - 1)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static const struct rn_template_limits limits = {
    .steps = 2000000, .output_bytes = 1 << 20, .memory_bytes = 16 << 20, .depth = 100};

static void check(const struct rn_rendered *r)
{
    size_t i;

    RN_CHECK(r->text != NULL && rn_utf8_valid(r->text, r->n) && r->n <= limits.output_bytes);
    for (i = 0; i < r->n_data; i++) {
        RN_CHECK(r->data[i].begin < r->data[i].end && r->data[i].end <= r->n);
        RN_CHECK(i == 0 || r->data[i - 1].end < r->data[i].begin);
    }
}

static void use(struct rn_heap *heap, const struct rn_template *tmpl, const char *json, size_t n)
{
    const struct rn_template_string strings[] = {{"bos_token", {"<s>", 3}}};
    const struct rn_template_context context = {
        .json = json, .json_bytes = n, .strings = strings, .n_strings = 1, .now_s = 1767323045};
    struct rn_rendered first, second;
    runnel_error error = {0};
    runnel_status status = rn_template_render(tmpl, heap, &context, &limits, &first, &error);

    RN_CHECK(status == RUNNEL_OK || status == RUNNEL_INVALID);
    if (status != RUNNEL_OK) {
        RN_CHECK(error.status == status);
        return;
    }
    check(&first);
    RN_CHECK(rn_template_render(tmpl, heap, &context, &limits, &second, NULL) == RUNNEL_OK);
    RN_CHECK(first.n == second.n && memcmp(first.text, second.text, first.n) == 0 && first.n_data == second.n_data);
    rn_rendered_free(&first, heap);
    rn_rendered_free(&second, heap);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t split = size;
    runnel_error error = {0};
    struct rn_template *tmpl;
    struct rn_heap heap;
    runnel_status status;

    while (split >= MARK_BYTES && memcmp(data + split - MARK_BYTES, MARK, MARK_BYTES) != 0)
        split--;
    if (split < MARK_BYTES)
        return 0;
    rn_heap_init(&heap, NULL);
    status = rn_template_parse(&heap, (const char *)data, split - MARK_BYTES, &tmpl, &error);
    RN_CHECK(status == RUNNEL_OK || (status == RUNNEL_FORMAT && error.message[0] != '\0'));
    if (status == RUNNEL_OK) {
        use(&heap, tmpl, (const char *)data + split, size - split);
        rn_template_free(tmpl);
    }
    RN_CHECK(rn_heap_blocks(&heap) == 0);
    return 0;
}

/* ---- Seeds -------------------------------------------------------------------------------- */

static const char context[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"hi <|im_end|>\"}, {\"role\": \"assistant\", \"content\": "
    "null, "
    "\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": [1, 2.5, true]}}}]}], \"tools\": "
    "[{\"k\": 2}, "
    "{\"k\": 1}], \"s\": \"Stra\\u00dfe a-b c\\n\", \"n\": 3, \"l\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": [null]}}";

static const char *const seeds[] = {
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content or '') | trim }}<|im_end|>\n"
    "{% if m.tool_calls is defined %}{{ m.tool_calls[0].function | tojson(indent=2) }}{% endif %}{%- endfor -%}",
    "{% set ns = namespace(a=0, b=[]) %}{% for x in l if x > 1 %}{% set ns.a = ns.a + x %}{{ loop.index ~ loop.last ~ "
    "loop.previtem ~ loop.nextitem ~ loop.cycle('a', 'b') ~ loop.changed(x) ~ loop.revindex }}{% break %}{% else %}-"
    "{% endfor %}{{ ns.a }}",
    "{% macro m(a, b=2, *c) %}{% endmacro %}",
    "{% macro m(a, b=n) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{{ caller(1) }}{% endmacro %}{% call(x) m(1, 2, *l, "
    "**d) %}"
    "{{ x }}{% endcall %}",
    "{% filter upper | replace('A', 'b') %}x{{ s }}{% endfilter %}{% set y | indent(2) %}a\nb{% endset %}{{ y }}"
    "{% with a = 1, b = l %}{{ a }}{{ b }}{% endwith %}{% raw %}{{ x }}{% endraw %}{# c #}{% generation %}g{% "
    "endgeneration %}",
    "{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}{{ loop.depth }}{% endfor %}",
    "{{ l | sort(reverse=true) | map('string') | join(', ') }}{{ tools | groupby('k') }}{{ tools | selectattr('k', "
    "'gt', 1) "
    "| list }}{{ d | dictsort }}{{ l | batch(2, 'x') | list }}{{ l | slice(2) | list }}{{ l | unique | list | first | "
    "last }}",
    "{{ s | upper | lower | title | capitalize }}{{ s | wordwrap(3) }}{{ s | truncate(5, true, '.', 0) }}{{ s | "
    "urlencode }}"
    "{{ s | e | safe + '<' }}{{ s.split('a', 1) }}{{ s.rsplit() }}{{ s.partition('-') }}{{ s.find('b', 1, -1) }}{{ "
    "s[::-1] }}",
    "{{ '%s|%5.2f|%-4d|%x|%r|%c|%(a)s' % (s, 1.5, 2, 255, s, 65, 1) }}{{ '{:>8}|{0!r:^9}|{a[b]:,.2f}'.format(s, a=d) "
    "}}",
    "{{ 7 // 2 ** -1 % 3 * 1.5e3 - -n }}{{ 1 < 2 <= n in l }}{{ not (n is divisibleby 3) and s in d or none }}{{ n if "
    "l }}"
    "{{ range(1, 9, 2) | list | sum }}{{ strftime_now('%Y-%m-%d %j %p') }}{{ {'a': (1,), 2: [n]} }}{{ "
    "raise_exception(s) }}",
};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *folder = getenv("RUNNEL_FUZZ_SEEDS");
    char path[1024];
    FILE *file;
    size_t i;

    (void)argc;
    (void)argv;
    for (i = 0; folder != NULL && i < sizeof seeds / sizeof seeds[0]; i++) {
        snprintf(path, sizeof path, "%s/seed_%zu", folder, i);
        file = fopen(path, "wb");
        RN_CHECK(file != NULL);
        fprintf(file, "%s" MARK "%s", seeds[i], context);
        fclose(file);
    }
    return 0;
}
