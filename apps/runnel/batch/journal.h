/* The journal of a batch job: what a job that was killed needs to end as if it had not been.
 *
 * An SQLite file in WAL mode, locked for one process. Tables:
 *
 *     job(key, value)      settings that must not change between runs, and how far the output is
 *     line(number, hash, state, good, prompt, cached, completion)
 *     shift(number, shifts, shifted)   lines whose context was full; a journal of an older version gets the table
 *     answer(number, text) what is not in the output yet
 *     custom(id, number)   which line had a custom_id first
 *
 *     line:  CLAIMED ──▶ ANSWERED, and its text in `answer` ──▶ ANSWERED, and its text in the output alone
 *
 * Invariants: a line's row is there before the line is computed; an answer is in the journal before it is in the
 * output; its text goes, and the job's place moves behind it, only after the output is on the disk. So the output is
 * never behind the journal, and what it is ahead (a torn tail) is cut off by --resume. The file of errors likewise.
 *
 * Changes gather in a transaction until batch_journal_commit. Without a commit nothing has happened. All functions
 * are for one thread and return false after a message, the journal then being good for nothing but closing. */
#ifndef RUNNEL_APP_BATCH_JOURNAL_H
#define RUNNEL_APP_BATCH_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct batch_journal;

/* The path of a journal that ends with its process, for a job that cannot go on: its input cannot be read again, or its
 * output not be compared. */
#define BATCH_JOURNAL_NOWHERE NULL

enum batch_state { BATCH_UNKNOWN = -1, BATCH_CLAIMED = 0, BATCH_ANSWERED = 1 };
enum batch_begin { BATCH_FRESH, BATCH_RESUME, BATCH_OVERWRITE };

/* A setting: the text that must be the same in every run of the job. */
struct batch_setting {
    const char *name;
    char value[192];
};

/* The files that answers go to: the output, and where it was asked for (--errors) one for what is wrong. */
enum { BATCH_OUTPUT, BATCH_ERRORS, BATCH_FILES };

struct batch_job {
    int64_t created; /* what answers are dated with */
    struct batch_place {
        uint64_t bytes;     /* that are complete */
        uint64_t tail_hash; /* of the last of them */
    } places[BATCH_FILES];
    uint64_t next;          /* ordered: the first line that is in no file */
    uint64_t lines;         /* of the input; 0: its end was not reached */
    uint64_t known;         /* number of the last line that has a row */
    uint64_t waiting_bytes; /* of the answers that are in no file yet */
};

struct batch_counts {
    uint64_t lines, good, bad, prompt_tokens, cached_tokens, completion_tokens, shifts, shifted_tokens;
};

struct batch_answer {
    uint64_t number, hash;
    const char *text; /* a line of the output with its newline; n 0: the line has none */
    size_t n;
    bool good;
    uint64_t prompt_tokens, cached_tokens, completion_tokens, shifts, shifted_tokens;
};

/* Opens the journal at `path`, or an empty file for one. *fresh: there is no job in it that would go on, and
 * batch_journal_create must be called; else batch_journal_load. What is there is not touched before. */
bool batch_journal_open(struct batch_journal **journal, const char *path, enum batch_begin begin, bool *fresh);

/* Begins a job: job->created is given, the rest of *job is set. */
bool batch_journal_create(struct batch_journal *journal, const struct batch_setting *settings, size_t n,
                          struct batch_job *job);

/* Tells the job that is there; refuses one with other settings. */
bool batch_journal_load(struct batch_journal *journal, const struct batch_setting *settings, size_t n,
                        struct batch_job *job);

/* Drops what was not committed. NULL is allowed. */
void batch_journal_close(struct batch_journal *journal);

/* What is known of a line: its state and hash. */
bool batch_journal_find(struct batch_journal *journal, uint64_t number, enum batch_state *state, uint64_t *hash);

/* A row for a line that is about to be computed, unless it has one. */
bool batch_journal_claim(struct batch_journal *journal, uint64_t number, uint64_t hash);

/* *first: the line that has this id, which is `number` itself if no other had it before. */
bool batch_journal_name(struct batch_journal *journal, uint64_t number, const char *id, size_t n, uint64_t *first);

bool batch_journal_answer(struct batch_journal *journal, const struct batch_answer *answer);

/* The input has so many lines. */
bool batch_journal_end(struct batch_journal *journal, uint64_t lines);

/* Answers that are not written yet, by number. `visit` gets one after another until it says no. */
typedef bool (*batch_visit_fn)(void *user, uint64_t number, bool good, const char *text, size_t n);
bool batch_journal_visit(struct batch_journal *journal, batch_visit_fn visit, void *user);

/* The answers up to number `last` are in their files and on the disk; commits. */
bool batch_journal_written(struct batch_journal *journal, uint64_t last, const struct batch_job *job);

bool batch_journal_commit(struct batch_journal *journal);
bool batch_journal_count(struct batch_journal *journal, struct batch_counts *counts);

#endif
