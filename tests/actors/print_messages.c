/* Prints docs/MESSAGES.md from the one X-macro of actors/protocol.h. */
#include <stdio.h>

#include "actors/protocol.h"

int main(void)
{
    puts("# Messages\n\n"
         "Generated from `actors/protocol.h` by `tests/actors/print_messages.c`; a test compares. S: streams at once, "
         "M: models,\n"
         "N: sessions. Every bound follows from how often its message can exist for one stream, session or model, and "
         "the\n"
         "mailboxes have room for their sum: no send between actors is refused. The one place that refuses is\n"
         "`runnel_generate`, which returns BUSY when all S streams are taken. The receiver owns what the message "
         "carries.\n\n"
         "| message | carries | from | to | at once | meaning |\n|---|---|---|---|---|---|");
#define X(kind, payload, from, to, bound, meaning) \
    puts("| " #kind " | " #payload " | " from " | " to " | " bound " | " meaning " |");
    RN_MESSAGES(X)
#undef X
    return 0;
}
