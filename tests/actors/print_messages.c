/* Prints docs/MESSAGES.md from the rows of actors/protocol.h. */
#include <stdio.h>

#include "actors/bounds.h"
#include "actors/draft/drafter.h"
#include "actors/lists.h"
#include "actors/tier/session_slot.h"
#include "actors/tier/move.h"

#define STREAMS 1024 /* as by default */
#define SESSIONS (1024 + RN_SESSIONS_LEAVING)
#define MODELS 64

static void print_roles(uint32_t roles)
{
    const char *before = "";

    for (uint32_t role = 0; role < RN_ROLES_END; role++)
        if ((roles >> role & 1) != 0) {
            printf("%s%s", before, rn_role_name((enum rn_role)role));
            before = ", ";
        }
}

static void print_messages(void)
{
    puts("| message | carries | from | to | at once | meaning |\n|---|---|---|---|---|---|");
    for (uint32_t kind = 0; kind < RN_MSG_KINDS; kind++) {
        const struct rn_message_row *row = rn_message_row((enum rn_message_kind)kind);

        printf("| %s | %s | ", row->name, row->payload);
        print_roles(row->senders);
        printf(" | ");
        print_roles(row->receivers);
        printf(" | %s | %s |\n", row->bound, row->meaning);
    }
}

static void print_mailboxes(void)
{
    struct rn_bounds bounds = {STREAMS, SESSIONS, MODELS, 1};

    printf("\n| mailbox | credits, at %d streams and %d places of sessions |\n|---|---|\n", STREAMS, SESSIONS);
    for (enum rn_role role = RN_ROLE_ROUTER; role < RN_ROLES_END; role++) {
        bounds.per_model = role == RN_ROLE_ROUTER ? MODELS : 1;
        printf("| %s | %d |\n", rn_role_name(role), rn_bounds_credits(&bounds, role));
    }
    bounds.per_model = MODELS;
    printf("\nThe pool then holds %u messages of a cache line each.\n", rn_bounds_pool(&bounds));
}

static void print_objects(void)
{
    puts("\nThe pool has room for each kind at each of its receivers. Of messages that carry an object or speak of the "
         "place of a\nsession or model there are never more than of those:\n\n| payload | in all |\n|---|---|");
#define X(payload, count) puts("| " #payload " | " #count " |");
    RN_OBJECTS(X)
#undef X
    puts("\nNor are there more of these, which go from one receiver to the next:\n\n| message | in all |\n|---|---|");
#define X(kind, count) puts("| " #kind " | " #count " |");
    RN_IN_ALL(X)
#undef X
}

int main(void)
{
    puts("# Messages\n\n"
         "Generated from `actors/protocol.h` by `tests/actors/print_messages.c`; a test compares. Every bound follows "
         "from how\n"
         "often its message can exist for one stream, session or model. It holds for the mailbox of each receiver. "
         "`actors/bounds.c`\n"
         "sums the bounds of what an actor receives: these are its mailbox's credits, so no send between actors is "
         "refused. Only\n"
         "the host's calls are: those that begin a stream return BUSY when all streams are taken (`runnel_generate`, "
         "`runnel_embed`,\n`runnel_score`, `runnel_session_export`, `runnel_session_import`), and those that make a "
         "session when all places of sessions are\n(`runnel_session_new`, `runnel_session_fork`, "
         "`runnel_session_import`); `runnel_model_load` does when there are M models.\n"
         "The receiver owns what the message carries.\n\n"
         "S: streams at once; N: places of sessions; M: models; P: models whose messages meet, 1 in the mailbox of a "
         "model's actor.");
    printf("Constants: RN_STEPS %d, RN_PROMPTS %d, RN_TOKEN_LISTS %d, RN_COMPUTED_LISTS %d, RN_NEWS_LISTS %d, "
           "RN_DRAFTS_LISTS %d, "
           "RN_MOVES %u.\n\n",
           RN_STEPS, RN_PROMPTS, RN_TOKEN_LISTS, RN_COMPUTED_LISTS, RN_NEWS_LISTS, RN_DRAFTS_LISTS, RN_MOVES);
    print_messages();
    print_objects();
    print_mailboxes();
    return 0;
}
