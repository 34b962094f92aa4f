/* See grammar_kinds.h. */
#include "tests/actors/grammar/grammar_kinds.h"

#include <jansson.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char schema[] =
    "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": 12}, "
    "\"age\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 120}, \"pets\": {\"type\": \"array\", \"items\": "
    "{\"enum\": [\"dog\", \"cat\", \"bird\"]}, \"maxItems\": 3}}, \"required\": [\"name\", \"age\", \"pets\"], "
    "\"additionalProperties\": false}";

static bool is_person(const char *text)
{
    json_t *value = json_loads(text, JSON_REJECT_DUPLICATES, NULL), *pet;
    const json_t *name = json_object_get(value, "name"), *age = json_object_get(value, "age"),
                 *pets = json_object_get(value, "pets");
    bool good = json_object_size(value) == 3 && json_is_string(name) && json_is_integer(age) && json_is_array(pets) &&
                json_array_size(pets) <= 3 && json_integer_value(age) >= 0 && json_integer_value(age) <= 120;
    size_t i, characters = 0;

    json_array_foreach(pets, i, pet) good =
        good && (strcmp(json_string_value(pet), "dog") == 0 || strcmp(json_string_value(pet), "cat") == 0 ||
                 strcmp(json_string_value(pet), "bird") == 0);
    for (const char *c = good ? json_string_value(name) : ""; *c != '\0'; c++)
        characters += (*c & 0xc0) != 0x80;
    json_decref(value);
    return good && characters <= 12;
}

bool matches_regex(const char *text, const char *pattern)
{
    regex_t regex;
    bool good;

    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    good = regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return good;
}

static bool is_date(const char *text)
{
    return matches_regex(text, "^(19|20)[0-9]{2}-(0[1-9]|1[0-2])-[0-9]{2}$");
}

static bool is_sum(const char *text)
{
    return matches_regex(text, "^[0-9]{1,3}( [+*-] [0-9]{1,3}){0,3} = [0-9]{1,4}$");
}

static bool is_list(const char *text)
{
    return matches_regex(text, "^- [a-z]{1,10}\n(- [a-z]{1,10}\n){1,4}$");
}

static bool is_choice(const char *text)
{
    return strcmp(text, "yes") == 0 || strcmp(text, "no") == 0 || strcmp(text, "I do not know") == 0;
}

static bool is_json(const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);

    json_decref(value);
    return value != NULL;
}

static const char *const choices[] = {"yes", "no", "I do not know"};

const struct grammar_kind grammar_kinds[N_GRAMMAR_KINDS] = {
    {RUNNEL_GRAMMAR_JSON_SCHEMA, schema, is_person, true},
    {RUNNEL_GRAMMAR_REGEX, "(19|20)[0-9]{2}-(0[1-9]|1[0-2])-[0-9]{2}", is_date, true},
    {RUNNEL_GRAMMAR_GBNF, "root ::= n ( \" \" [-+*] \" \" n ){0,3} \" = \" [0-9]{1,4}\nn ::= [0-9]{1,3}", is_sum, true},
    {RUNNEL_GRAMMAR_EBNF, "start: item item~1..4\nitem: \"- \" WORD \"\\n\"\nWORD: /[a-z]{1,10}/", is_list, true},
    {RUNNEL_GRAMMAR_CHOICES, NULL, is_choice, true},
    {RUNNEL_GRAMMAR_JSON, NULL, is_json, false},
    {RUNNEL_GRAMMAR_JSON_OBJECT, NULL, is_json, false},
};

runnel_grammar grammar_of(size_t kind)
{
    runnel_grammar grammar;

    runnel_grammar_default(&grammar);
    grammar.kind = (uint32_t)grammar_kinds[kind].kind;
    if (grammar_kinds[kind].text != NULL) {
        grammar.text = grammar_kinds[kind].text;
        grammar.text_bytes = strlen(grammar_kinds[kind].text);
    }
    if (grammar_kinds[kind].kind == RUNNEL_GRAMMAR_CHOICES) {
        grammar.choices = choices;
        grammar.n_choices = sizeof choices / sizeof choices[0];
    }
    return grammar;
}
