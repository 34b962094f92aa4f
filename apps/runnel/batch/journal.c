/* The journal of a batch job: see journal.h. */
#include "journal.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/runnel/common.h"

#define APPLICATION 0x72756e6c /* "runl": tells our journals from other people's databases */
#define FORMAT "1"

enum statement {
    FIND,
    CLAIM,
    NAME,
    NAMED,
    ANSWER,
    SHIFT,
    KEEP,
    SET,
    GET,
    VISIT,
    WRITTEN,
    COUNT,
    KNOWN,
    WAITING,
    BEGIN,
    COMMIT,
    N_STATEMENTS
};

static const char *const texts[N_STATEMENTS] = {
    [FIND] = "SELECT state, hash FROM line WHERE number = ?1",
    [CLAIM] = "INSERT INTO line (number, hash, state) VALUES (?1, ?2, 0) ON CONFLICT DO NOTHING",
    [NAME] = "INSERT INTO custom (id, number) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
    [NAMED] = "SELECT number FROM custom WHERE id = ?1",
    [ANSWER] = "INSERT OR REPLACE INTO line (number, hash, state, good, prompt, cached, completion)"
               " VALUES (?1, ?2, 1, ?3, ?4, ?5, ?6)",
    [SHIFT] = "INSERT OR REPLACE INTO shift (number, shifts, shifted) VALUES (?1, ?2, ?3)",
    [KEEP] = "INSERT OR REPLACE INTO answer (number, text) VALUES (?1, ?2)",
    [SET] = "INSERT OR REPLACE INTO job (key, value) VALUES (?1, ?2)",
    [GET] = "SELECT value FROM job WHERE key = ?1",
    [VISIT] = "SELECT answer.number, text, good FROM answer JOIN line USING (number) ORDER BY answer.number",
    [WRITTEN] = "DELETE FROM answer WHERE number <= ?1",
    [COUNT] = "SELECT sum(good IS NOT NULL), sum(good = 1), sum(good = 0), sum(prompt), sum(cached), sum(completion),"
              " sum(shifts), sum(shifted) FROM line LEFT JOIN shift USING (number) WHERE state > 0",
    [KNOWN] = "SELECT max(number) FROM line",
    [WAITING] = "SELECT sum(length(text)) FROM answer",
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
};

/* One transaction makes all of it: there is a whole job or none. */
static const char schema[] =
    "BEGIN IMMEDIATE;"
    "DROP TABLE IF EXISTS job; DROP TABLE IF EXISTS line; DROP TABLE IF EXISTS answer; DROP TABLE IF EXISTS custom;"
    "DROP TABLE IF EXISTS shift;"
    "CREATE TABLE job (key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
    "CREATE TABLE line (number INTEGER PRIMARY KEY, hash INTEGER NOT NULL, state INTEGER NOT NULL,"
    " good INTEGER, prompt INTEGER, cached INTEGER, completion INTEGER);"
    "CREATE TABLE answer (number INTEGER PRIMARY KEY, text BLOB NOT NULL);"
    "CREATE TABLE custom (id BLOB PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;";

/* Beside the tables that every version knows, so that each goes on with the other's journals. */
static const char shift_table[] = "CREATE TABLE IF NOT EXISTS shift"
                                  " (number INTEGER PRIMARY KEY, shifts INTEGER NOT NULL, shifted INTEGER NOT NULL)";

struct batch_journal {
    char *path;
    sqlite3 *db;
    sqlite3_stmt *statements[N_STATEMENTS];
    bool open; /* a transaction is */
};

static bool complain(struct batch_journal *journal)
{
    int system = sqlite3_system_errno(journal->db);
    int code = sqlite3_errcode(journal->db);
    bool of_disk = code == SQLITE_IOERR || code == SQLITE_FULL || code == SQLITE_CANTOPEN;

    if (code == SQLITE_BUSY)
        app_error("%s: another process is working with it", journal->path);
    else if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT)
        app_error("%s is damaged, or no journal of runnel batch: %s", journal->path, sqlite3_errmsg(journal->db));
    else
        app_error("%s: %s%s%s%s", journal->path, sqlite3_errmsg(journal->db), of_disk && system != 0 ? " (" : "",
                  of_disk && system != 0 ? strerror(system) : "", of_disk && system != 0 ? ")" : "");
    return false;
}

static bool execute(struct batch_journal *journal, const char *text)
{
    return sqlite3_exec(journal->db, text, NULL, NULL, NULL) == SQLITE_OK || complain(journal);
}

/* ---- Statements -------------------------------------------------------------------------- */

static bool prepare(struct batch_journal *journal)
{
    for (int i = 0; i < N_STATEMENTS; i++)
        if (sqlite3_prepare_v3(journal->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &journal->statements[i], NULL) !=
            SQLITE_OK)
            return complain(journal);
    return true;
}

static void bind(struct batch_journal *journal, enum statement which, int at, uint64_t value)
{
    sqlite3_bind_int64(journal->statements[which], at, (sqlite3_int64)value);
}

static uint64_t column(struct batch_journal *journal, enum statement which, int at)
{
    return (uint64_t)sqlite3_column_int64(journal->statements[which], at);
}

/* Runs a statement up to its first row; *row says whether there was one. The caller resets it. */
static bool step(struct batch_journal *journal, enum statement which, bool *row)
{
    int result = sqlite3_step(journal->statements[which]);

    *row = result == SQLITE_ROW;
    return result == SQLITE_ROW || result == SQLITE_DONE || complain(journal);
}

/* Runs a statement without rows. */
static bool act(struct batch_journal *journal, enum statement which)
{
    bool row = false, good = step(journal, which, &row);

    sqlite3_reset(journal->statements[which]);
    return good;
}

static bool begin(struct batch_journal *journal)
{
    if (!journal->open && !act(journal, BEGIN))
        return false;
    journal->open = true;
    return true;
}

bool batch_journal_commit(struct batch_journal *journal)
{
    if (journal->open && !act(journal, COMMIT))
        return false;
    journal->open = false;
    return true;
}

/* ---- The job ----------------------------------------------------------------------------- */

static bool set_number(struct batch_journal *journal, const char *key, uint64_t value)
{
    sqlite3_bind_text(journal->statements[SET], 1, key, -1, SQLITE_STATIC);
    bind(journal, SET, 2, value);
    return act(journal, SET);
}

static bool set_text(struct batch_journal *journal, const char *key, const char *value)
{
    sqlite3_bind_text(journal->statements[SET], 1, key, -1, SQLITE_STATIC);
    sqlite3_bind_text(journal->statements[SET], 2, value, -1, SQLITE_STATIC);
    return act(journal, SET);
}

/* *value is "" where there is no such key. */
static bool get_text(struct batch_journal *journal, const char *key, char *value, size_t size)
{
    sqlite3_stmt *get = journal->statements[GET];
    bool row = false, good = false;

    sqlite3_bind_text(get, 1, key, -1, SQLITE_STATIC);
    good = step(journal, GET, &row);
    snprintf(value, size, "%s",
             row && sqlite3_column_text(get, 0) != NULL ? (const char *)sqlite3_column_text(get, 0) : "");
    sqlite3_reset(get);
    return good;
}

static bool get_number(struct batch_journal *journal, const char *key, uint64_t *value)
{
    char text[32];

    if (!get_text(journal, key, text, sizeof text))
        return false;
    *value = (uint64_t)strtoll(text, NULL, 10); /* SQLite's integers are signed */
    return true;
}

/* Of a statement that takes nothing: the number in its only row; 0 for null. */
static bool first_number(struct batch_journal *journal, enum statement which, uint64_t *value)
{
    bool row = false, good = step(journal, which, &row);

    *value = row ? column(journal, which, 0) : 0;
    sqlite3_reset(journal->statements[which]);
    return good;
}

static const char *const place_keys[BATCH_FILES][2] = {{"out_bytes", "tail_hash"}, {"error_bytes", "error_hash"}};

static bool write_job(struct batch_journal *journal, const struct batch_job *job)
{
    bool good = set_number(journal, "next", job->next);

    for (size_t i = 0; i < BATCH_FILES; i++)
        good = good && set_number(journal, place_keys[i][0], job->places[i].bytes) &&
               set_number(journal, place_keys[i][1], job->places[i].tail_hash);
    return good;
}

static bool read_job(struct batch_journal *journal, struct batch_job *job)
{
    uint64_t created = 0;
    bool good = get_number(journal, "created", &created) && get_number(journal, "next", &job->next) &&
                get_number(journal, "lines", &job->lines) && first_number(journal, KNOWN, &job->known) &&
                first_number(journal, WAITING, &job->waiting_bytes);

    for (size_t i = 0; i < BATCH_FILES; i++) /* what an older version did not write is 0 */
        good = good && get_number(journal, place_keys[i][0], &job->places[i].bytes) &&
               get_number(journal, place_keys[i][1], &job->places[i].tail_hash);
    job->created = (int64_t)created;
    return good;
}

static bool check_settings(struct batch_journal *journal, const struct batch_setting *settings, size_t n)
{
    char was[sizeof settings->value];

    for (size_t i = 0; i < n; i++) {
        if (!get_text(journal, settings[i].name, was, sizeof was))
            return false;
        if (strcmp(was, settings[i].value) != 0) {
            app_error("%s belongs to another job: its %s: %s there, %s now", journal->path, settings[i].name,
                      was[0] != '\0' ? was : "none", settings[i].value[0] != '\0' ? settings[i].value : "none");
            return false;
        }
    }
    return true;
}

/* ---- Opening ----------------------------------------------------------------------------- */

static bool pragma(struct batch_journal *journal, const char *text, int64_t *value)
{
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v2(journal->db, text, -1, &statement, NULL);

    if (result == SQLITE_OK)
        result = sqlite3_step(statement);
    if (result == SQLITE_ROW)
        *value = sqlite3_column_int64(statement, 0);
    if (result != SQLITE_ROW) /* before the statement's own end overwrites why */
        complain(journal);
    sqlite3_finalize(statement);
    return result == SQLITE_ROW;
}

/* *ours: there is a journal; false of both: an empty database. Anything else is refused. */
static bool recognise(struct batch_journal *journal, bool *ours)
{
    int64_t application = 0, objects = 0;

    if (!pragma(journal, "PRAGMA application_id", &application) ||
        !pragma(journal, "SELECT count(*) FROM sqlite_schema", &objects))
        return false;
    *ours = application == APPLICATION && objects > 0;
    if (application == APPLICATION || objects == 0)
        return true;
    app_error("%s is a database, but no journal of runnel batch", journal->path);
    return false;
}

/* It holds answers: a new one is for its owner alone, whatever the umask. Where it cannot be made SQLite says why. */
static void make_private(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0)
        return;
    (void)!fchmod(fd, 0600);
    close(fd);
}

/* Exclusive: nobody else can work on the same job, and no file is shared in memory. */
static bool open_database(struct batch_journal *journal, bool nowhere)
{
    char *path = NULL; /* as SQLite takes it: "", ":memory:" and "file:.." are no files to it, "./.." always is one */
    int code = SQLITE_NOMEM;

    if (!nowhere)
        make_private(journal->path);
    if (nowhere || asprintf(&path, "%s%s", journal->path[0] == '/' ? "" : "./", journal->path) >= 0)
        code = sqlite3_open_v2(nowhere ? ":memory:" : path, &journal->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
                               NULL);
    free(path);
    if (code == SQLITE_OK)
        return execute(journal, "PRAGMA locking_mode = EXCLUSIVE");
    if (journal->db != NULL)
        return complain(journal);
    app_error("not enough memory");
    return false;
}

bool batch_journal_open(struct batch_journal **out, const char *path, enum batch_begin how, bool *fresh)
{
    struct batch_journal *journal = calloc(1, sizeof *journal);
    bool ours = false;

    *out = journal;
    if (journal == NULL || (journal->path = strdup(path != BATCH_JOURNAL_NOWHERE ? path : "the journal")) == NULL) {
        app_error("not enough memory");
        return false;
    }
    if (!open_database(journal, path == BATCH_JOURNAL_NOWHERE) || !recognise(journal, &ours))
        return false;
    *fresh = !ours || how == BATCH_OVERWRITE;
    /* When the process dies nothing that was committed is lost; when the machine does, the last commits may be, but
     * never their order. */
    return execute(journal, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                            "PRAGMA wal_autocheckpoint = 4096");
}

bool batch_journal_create(struct batch_journal *journal, const struct batch_setting *settings, size_t n,
                          struct batch_job *job)
{
    char stamp[64];

    *job = (struct batch_job){.created = job->created, .next = 1};
    snprintf(stamp, sizeof stamp, "PRAGMA application_id = %d", APPLICATION);
    if (!execute(journal, schema))
        return false;
    journal->open = true;
    if (!execute(journal, stamp) || !execute(journal, shift_table) || !prepare(journal) ||
        !set_text(journal, "format", FORMAT) || !set_number(journal, "created", (uint64_t)job->created) ||
        !set_number(journal, "lines", 0) || !write_job(journal, job))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!set_text(journal, settings[i].name, settings[i].value))
            return false;
    return batch_journal_commit(journal);
}

bool batch_journal_load(struct batch_journal *journal, const struct batch_setting *settings, size_t n,
                        struct batch_job *job)
{
    char format[8];

    if (!execute(journal, shift_table) || !prepare(journal) || !get_text(journal, "format", format, sizeof format))
        return false;
    if (strcmp(format, FORMAT) != 0) {
        app_error("%s was made by another version of runnel", journal->path);
        return false;
    }
    return check_settings(journal, settings, n) && read_job(journal, job);
}

void batch_journal_close(struct batch_journal *journal)
{
    if (journal == NULL)
        return;
    for (int i = 0; i < N_STATEMENTS; i++)
        sqlite3_finalize(journal->statements[i]);
    sqlite3_close(journal->db);
    free(journal->path);
    free(journal);
}

/* ---- Lines ------------------------------------------------------------------------------- */

bool batch_journal_find(struct batch_journal *journal, uint64_t number, enum batch_state *state, uint64_t *hash)
{
    bool row = false, good = false;

    bind(journal, FIND, 1, number);
    good = step(journal, FIND, &row);
    *state = row ? (enum batch_state)column(journal, FIND, 0) : BATCH_UNKNOWN;
    *hash = row ? column(journal, FIND, 1) : 0;
    sqlite3_reset(journal->statements[FIND]);
    return good;
}

bool batch_journal_claim(struct batch_journal *journal, uint64_t number, uint64_t hash)
{
    bind(journal, CLAIM, 1, number);
    bind(journal, CLAIM, 2, hash);
    return begin(journal) && act(journal, CLAIM);
}

bool batch_journal_name(struct batch_journal *journal, uint64_t number, const char *id, size_t n, uint64_t *first)
{
    bool row = false, good = false;

    sqlite3_bind_blob64(journal->statements[NAME], 1, id, n, SQLITE_STATIC);
    bind(journal, NAME, 2, number);
    if (!begin(journal) || !act(journal, NAME))
        return false;
    sqlite3_bind_blob64(journal->statements[NAMED], 1, id, n, SQLITE_STATIC);
    good = step(journal, NAMED, &row);
    *first = row ? column(journal, NAMED, 0) : number;
    sqlite3_reset(journal->statements[NAMED]);
    return good;
}

bool batch_journal_answer(struct batch_journal *journal, const struct batch_answer *answer)
{
    sqlite3_stmt *statement = journal->statements[ANSWER];

    bind(journal, ANSWER, 1, answer->number);
    bind(journal, ANSWER, 2, answer->hash);
    if (answer->n > 0)
        sqlite3_bind_int(statement, 3, answer->good);
    else
        sqlite3_bind_null(statement, 3);
    bind(journal, ANSWER, 4, answer->prompt_tokens);
    bind(journal, ANSWER, 5, answer->cached_tokens);
    bind(journal, ANSWER, 6, answer->completion_tokens);
    bind(journal, KEEP, 1, answer->number);
    sqlite3_bind_blob64(journal->statements[KEEP], 2, answer->n > 0 ? answer->text : "", answer->n, SQLITE_STATIC);
    bind(journal, SHIFT, 1, answer->number);
    bind(journal, SHIFT, 2, answer->shifts);
    bind(journal, SHIFT, 3, answer->shifted_tokens);
    return begin(journal) && act(journal, ANSWER) && (answer->shifts == 0 || act(journal, SHIFT)) && act(journal, KEEP);
}

bool batch_journal_end(struct batch_journal *journal, uint64_t lines)
{
    return begin(journal) && set_number(journal, "lines", lines);
}

bool batch_journal_visit(struct batch_journal *journal, batch_visit_fn visit, void *user)
{
    sqlite3_stmt *statement = journal->statements[VISIT];
    bool row = true, good = true, more = true;

    while (good && more && row) {
        good = step(journal, VISIT, &row);
        if (!good || !row)
            break;
        more = visit(user, column(journal, VISIT, 0), sqlite3_column_int(statement, 2) != 0,
                     sqlite3_column_blob(statement, 1), (size_t)sqlite3_column_bytes(statement, 1));
    }
    sqlite3_reset(statement);
    return good;
}

bool batch_journal_written(struct batch_journal *journal, uint64_t last, const struct batch_job *job)
{
    bind(journal, WRITTEN, 1, last);
    return begin(journal) && act(journal, WRITTEN) && write_job(journal, job) && batch_journal_commit(journal);
}

bool batch_journal_count(struct batch_journal *journal, struct batch_counts *counts)
{
    bool row = false, good = step(journal, COUNT, &row);

    *counts = (struct batch_counts){0};
    if (row)
        *counts = (struct batch_counts){column(journal, COUNT, 0), column(journal, COUNT, 1), column(journal, COUNT, 2),
                                        column(journal, COUNT, 3), column(journal, COUNT, 4), column(journal, COUNT, 5),
                                        column(journal, COUNT, 6), column(journal, COUNT, 7)};
    sqlite3_reset(journal->statements[COUNT]);
    return good;
}
