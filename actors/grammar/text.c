/* What an answer may be, as it is asked for: see text.h. */
#include "actors/grammar/text.h"

#include <string.h>

#include "actors/prompt/chat.h"
#include "base/check.h"
#include "base/sized.h"
#include "runnel_fields.h"
#include "sampling/grammar/front.h"
#include "text/answer/tools.h"
#include "text/vocab.h"

#define MOST_CHOICES 65536u

/* The table has every member: the struct has no padding, so the sizes of its members add up to its own. */
#define SIZE(type, name) +sizeof(type)
#define SAME(type, name) &&_Generic(((runnel_grammar *)0)->name, type : 1, default : 0)
static_assert(sizeof(size_t) RUNNEL_GRAMMAR_FIELDS(SIZE) + sizeof((runnel_grammar *)0)->reserved ==
                      sizeof(runnel_grammar) &&
                  1 RUNNEL_GRAMMAR_FIELDS(SAME),
              "RUNNEL_GRAMMAR_FIELDS lacks a member");

void runnel_grammar_init(runnel_grammar *grammar, size_t struct_size)
{
    const runnel_grammar own = {.free_reasoning = 1};

    rn_sized_write(grammar, struct_size, &own, sizeof own);
}

void(runnel_grammar_default)(runnel_grammar *grammar)
{
    runnel_grammar_init(grammar, RN_FIRST_SIZE(runnel_grammar, reserved));
}

static bool reads_text(runnel_grammar_kind kind)
{
    return kind == RUNNEL_GRAMMAR_GBNF || kind == RUNNEL_GRAMMAR_REGEX || kind == RUNNEL_GRAMMAR_EBNF ||
           kind == RUNNEL_GRAMMAR_JSON_SCHEMA;
}

static runnel_status check(const runnel_grammar *grammar, runnel_error *error)
{
    bool text = reads_text(grammar->kind), choices = grammar->kind == RUNNEL_GRAMMAR_CHOICES;

    if (!rn_all_zero(grammar->reserved, sizeof grammar->reserved))
        return rn_error_set_about(error, RUNNEL_ABOUT_GRAMMAR, RUNNEL_INVALID, "grammar: reserved is not zero");
    if (grammar->kind > RUNNEL_GRAMMAR_JSON_SCHEMA)
        return rn_error_set_about(error, RUNNEL_ABOUT_GRAMMAR, RUNNEL_INVALID, "grammar.kind %u is not known",
                                  grammar->kind);
    if (grammar->text == NULL && (grammar->text_bytes > 0 || text))
        return rn_error_set_about(error, RUNNEL_ABOUT_GRAMMAR, RUNNEL_INVALID, "grammar.text is NULL");
    if (grammar->text != NULL && !text)
        return rn_error_set_about(error, RUNNEL_ABOUT_GRAMMAR, RUNNEL_INVALID, "grammar.text does not go with kind %u",
                                  grammar->kind);
    if (grammar->text_bytes > RUNNEL_MAX_GRAMMAR_BYTES)
        return rn_error_set_about(error, RUNNEL_ABOUT_GRAMMAR, RUNNEL_INVALID,
                                  "grammar.text_bytes %zu are more than %u", grammar->text_bytes,
                                  RUNNEL_MAX_GRAMMAR_BYTES);
    if (text && !rn_utf8_valid(grammar->text, grammar->text_bytes))
        return rn_error_set_about(error, RUNNEL_ABOUT_GRAMMAR, RUNNEL_INVALID, "grammar.text is not UTF-8");
    if (!choices && (grammar->choices != NULL || grammar->n_choices > 0))
        return rn_error_set_about(error, RUNNEL_ABOUT_GRAMMAR, RUNNEL_INVALID, "grammar.choices do not go with kind %u",
                                  grammar->kind);
    if (choices && (grammar->choices == NULL || grammar->n_choices == 0 || grammar->n_choices > MOST_CHOICES))
        return rn_error_set_about(error, RUNNEL_ABOUT_GRAMMAR, RUNNEL_INVALID, "grammar.choices: 1 to %u",
                                  MOST_CHOICES);
    return RUNNEL_OK;
}

static runnel_status copy_choices(struct rn_grammar_text *text, const runnel_grammar *grammar, runnel_error *error)
{
    size_t *bytes = rn_alloc(text->heap, grammar->n_choices, sizeof *bytes), sum = 0;
    runnel_status status = RUNNEL_OK;

    if (bytes == NULL)
        return RUNNEL_NO_MEMORY;
    for (size_t i = 0; i < grammar->n_choices && status == RUNNEL_OK; i++) {
        const char *choice = grammar->choices[i];

        bytes[i] = choice != NULL ? strnlen(choice, RUNNEL_MAX_GRAMMAR_BYTES) : 0;
        sum += bytes[i];
        if (choice == NULL || !rn_utf8_valid(choice, bytes[i]))
            status = rn_error_set_about(error, RUNNEL_ABOUT_GRAMMAR, RUNNEL_INVALID, "grammar.choices[%zu] is %s", i,
                                        choice == NULL ? "NULL" : "not UTF-8");
        else if (sum >= RUNNEL_MAX_GRAMMAR_BYTES)
            status = rn_error_set_about(error, RUNNEL_ABOUT_GRAMMAR, RUNNEL_INVALID,
                                        "grammar.choices have %u bytes or more", RUNNEL_MAX_GRAMMAR_BYTES);
    }
    if (status == RUNNEL_OK &&
        !rn_choices_text(text->heap, grammar->choices, bytes, grammar->n_choices, &text->text, &text->text_bytes))
        status = RUNNEL_NO_MEMORY;
    rn_free(text->heap, bytes);
    return status;
}

static runnel_status copy_grammar(struct rn_grammar_text *text, const runnel_grammar *grammar, runnel_error *error)
{
    text->kind = (runnel_grammar_kind)grammar->kind;
    text->free_white = grammar->free_white != 0;
    text->any_order = grammar->any_order != 0;
    text->closed = grammar->closed != 0;
    text->one_of_as_any_of = grammar->one_of_as_any_of != 0;
    text->allow_unenforced = grammar->allow_unenforced != 0;
    text->free_reasoning = grammar->free_reasoning != 0;
    if (text->kind == RUNNEL_GRAMMAR_CHOICES)
        return copy_choices(text, grammar, error);
    if (!reads_text(text->kind))
        return RUNNEL_OK;
    text->text = rn_strndup(text->heap, grammar->text, grammar->text_bytes);
    text->text_bytes = grammar->text_bytes;
    return text->text != NULL ? RUNNEL_OK : RUNNEL_NO_MEMORY;
}

static bool copy_string(struct rn_heap *heap, const char *string, char **copy)
{
    *copy = string == NULL ? NULL : rn_strndup(heap, string, strlen(string));
    return string == NULL || *copy != NULL;
}

/* Of a chat; it was checked when it was copied itself. */
static runnel_status copy_choice(struct rn_grammar_text *text, const runnel_chat *chat, runnel_error *error)
{
    if (chat->tool_choice != NULL && !rn_utf8_valid(chat->tool_choice, strlen(chat->tool_choice)))
        return rn_error_set_about(error, RUNNEL_ABOUT_TOOLS, RUNNEL_INVALID, "chat.tool_choice is not UTF-8");
    if (chat->tool_choice != NULL && text->format == NULL)
        return rn_error_set_about(error, RUNNEL_ABOUT_TOOLS, RUNNEL_INVALID,
                                  "chat.tool_choice does not go with raw_answer");
    text->single_call = chat->single_call != 0;
    return copy_string(text->heap, chat->tools, &text->tools) &&
                   copy_string(text->heap, chat->tool_choice, &text->tool_choice)
               ? RUNNEL_OK
               : RUNNEL_NO_MEMORY;
}

runnel_status rn_grammar_text_new(struct rn_heap *heap, const runnel_request *request, const struct rn_chat *chat,
                                  struct rn_grammar_text **out, runnel_error *error)
{
    const struct rn_chat *read_back = request->raw_answer ? NULL : chat;
    struct rn_grammar_text *text;
    runnel_grammar grammar;
    runnel_chat asked;
    runnel_status status;
    bool binds; /* calls, by their schemas: by a choice, or where there is none by a tool that is strict */

    *out = NULL;
    runnel_grammar_default(&grammar);
    runnel_chat_default(&asked);
    if (request->grammar != NULL && !rn_sized_read(&grammar, sizeof grammar, request->grammar))
        return rn_error_set(error, RUNNEL_INVALID,
                            "grammar: struct_size is not of this library; use runnel_grammar_default");
    if (request->chat != NULL)
        rn_sized_read(&asked, sizeof asked, request->chat);
    status = check(&grammar, error);
    binds = asked.tool_choice != NULL || (read_back != NULL && rn_answer_tools_any_strict(&read_back->tools));
    if (status != RUNNEL_OK || (grammar.kind == RUNNEL_GRAMMAR_NONE && !binds))
        return status;
    text = rn_calloc(heap, 1, sizeof *text);
    if (text == NULL)
        return RUNNEL_NO_MEMORY;
    text->heap = heap;
    text->format = read_back != NULL ? read_back->format : NULL;
    status = copy_grammar(text, &grammar, error);
    if (status == RUNNEL_OK)
        status = copy_choice(text, &asked, error);
    if (status == RUNNEL_OK)
        *out = text;
    else
        rn_grammar_text_free(text);
    return status;
}

void rn_grammar_text_free(struct rn_grammar_text *text)
{
    if (text == NULL)
        return;
    rn_free(text->heap, text->text);
    rn_free(text->heap, text->tools);
    rn_free(text->heap, text->tool_choice);
    rn_free(text->heap, text);
}

size_t rn_grammar_text_bytes(const struct rn_grammar_text *text)
{
    return sizeof *text + text->text_bytes + (text->tools != NULL ? strlen(text->tools) : 0) +
           (text->tool_choice != NULL ? strlen(text->tool_choice) : 0);
}
