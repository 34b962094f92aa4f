/* The cold store on a fake disk, by seed: lives of a store, each a few dozen random calls and an end (closed, killed,
 * killed in the middle of a call, power lost), then the next life in what the last has left, some with a broken disk.
 *
 * The judge knows no store. A prefix is a salt and tokens; what was appended for it is a pure function of both. So a
 * record that is told of or read must be one that was appended under that very salt and prefix, and its bytes are
 * right or it is a miss, whatever the disk did. Tokens are drawn from so few that the same ones stand behind many
 * parents and under several salts. On a disk in order nothing is lost: not by a close, and not by a kill.
 *
 *     test_tiers_cold_seeds [SEEDS [FIRST]] */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cache/store/cold_store.h"
#include "tests/sim/fake_disk.h"

enum { B = 2, MOST_PAYLOAD = 300, SALTS = 3, TOKENS = 3, KNOWN = 4096, EVER = 1 << 14, MOST_DEPTH = 12 };

/* A record as the judge has it. */
struct known {
    uint64_t handle, parent, path; /* path: a number for salt and all tokens up to here */
    uint32_t salt, depth;
    int32_t tokens[B];
    bool live; /* as far as the store has said in this life */
};

struct world {
    uint64_t seed, rng;
    struct rn_heap heap;
    struct fake_disk *disk;
    struct rn_cold_limits limits;
    struct rn_cold_store *store;
    struct known known[KNOWN];
    size_t n_known;
    uint64_t before[KNOWN]; /* handles that the last life had in the end */
    size_t n_before;
    uint64_t ever[EVER]; /* paths that were appended; open addressing */
    size_t n_ever;
    bool spotless; /* no life so far had a fault, lost power, or died in a call */
    bool order;    /* of this life: but for short calls and its end, the disk does what it should */
};

static struct {
    uint64_t appended, read, missed, told, lives, errors;
} total;

static uint64_t draw(struct world *world, uint64_t below)
{
    return rn_splitmix64(&world->rng) % below;
}

static bool in_order(const struct world *world)
{
    return world->order && fake_disk_alive(world->disk, 0);
}

/* ---- The judge ---- */

static uint64_t path_of(uint64_t parent_path, uint32_t salt, const int32_t *tokens)
{
    uint64_t state = parent_path * 31 + salt + 1;

    for (unsigned i = 0; i < B; i++) {
        state ^= rn_splitmix64(&state) + (uint64_t)tokens[i];
        rn_splitmix64(&state);
    }
    return state | 1;
}

static size_t payload_of(uint64_t path, uint8_t *payload)
{
    uint64_t state = path;
    size_t n = 1 + rn_splitmix64(&state) % MOST_PAYLOAD;

    for (size_t i = 0; i < n; i++)
        payload[i] = (uint8_t)rn_splitmix64(&state);
    return n;
}

static struct rn_prefix_salt salt_of(uint32_t salt)
{
    return (struct rn_prefix_salt){{salt, salt * 7919u}};
}

static uint64_t *ever_place(struct world *world, uint64_t path)
{
    size_t at = (size_t)(path >> 7) % EVER;

    while (world->ever[at] != 0 && world->ever[at] != path)
        at = (at + 1) % EVER;
    return &world->ever[at];
}

static void add_ever(struct world *world, uint64_t path)
{
    uint64_t *place = ever_place(world, path);

    world->n_ever += *place == 0;
    assert_true(world->n_ever < EVER - 100);
    *place = path;
}

static struct known *find(struct world *world, uint64_t handle)
{
    for (size_t i = world->n_known; i-- > 0;)
        if (world->known[i].handle == handle && world->known[i].live)
            return &world->known[i];
    return NULL;
}

static void add_known(struct world *world, const struct known *known)
{
    assert_true(world->n_known < KNOWN);
    assert_null(find(world, known->handle));
    world->known[world->n_known++] = *known;
}

/* What an open tells of: appended once, under this salt, behind this parent. */
static void on_record(void *user, const struct rn_tier_record *record)
{
    struct world *world = user;
    const struct known *parent = record->parent == 0 ? NULL : find(world, record->parent);
    struct known known = {.handle = record->handle, .parent = record->parent, .live = true};
    uint8_t payload[MOST_PAYLOAD];

    assert_true(record->handle != 0 && (record->parent == 0 || parent != NULL));
    known.depth = parent == NULL ? 0 : parent->depth + 1;
    known.salt = (uint32_t)record->salt.word[0];
    memcpy(known.tokens, record->tokens, sizeof known.tokens);
    known.path = path_of(parent == NULL ? 0 : parent->path, known.salt, known.tokens);
    assert_true(record->salt.word[1] == salt_of(known.salt).word[1]);
    assert_true(parent == NULL || parent->salt == known.salt);
    assert_int_equal(record->depth, known.depth);
    assert_true(*ever_place(world, known.path) == known.path);
    assert_int_equal(record->payload_bytes, payload_of(known.path, payload));
    add_known(world, &known);
    total.told++;
}

static void on_gone(void *user, uint64_t handle)
{
    struct known *known = find(user, handle);

    if (known != NULL) /* else the test has forgotten it itself */
        known->live = false;
    assert_int_equal(rn_tier_store_payload_bytes(rn_cold_store_tier(((struct world *)user)->store), handle), 0);
}

/* ---- Calls ---- */

static struct known *any(struct world *world)
{
    struct known *known = world->n_known == 0 ? NULL : &world->known[draw(world, world->n_known)];

    return known != NULL && known->live ? known : NULL;
}

static void append(struct world *world)
{
    const struct known *parent = draw(world, 4) == 0 ? NULL : any(world);
    struct known known = {.live = true};
    uint8_t payload[MOST_PAYLOAD];
    runnel_status status;
    size_t n;

    if (parent != NULL && parent->depth >= MOST_DEPTH)
        parent = NULL;
    known.salt = parent == NULL ? (uint32_t)draw(world, SALTS) : parent->salt;
    known.parent = parent == NULL ? 0 : parent->handle;
    known.depth = parent == NULL ? 0 : parent->depth + 1;
    for (unsigned i = 0; i < B; i++)
        known.tokens[i] = (int32_t)draw(world, TOKENS);
    known.path = path_of(parent == NULL ? 0 : parent->path, known.salt, known.tokens);
    n = payload_of(known.path, payload);
    add_ever(world, known.path); /* one that is refused may be on the disk all the same */
    status = rn_tier_store_put(rn_cold_store_tier(world->store),
                               &(struct rn_tier_key){known.parent, salt_of(known.salt), known.tokens}, payload, n,
                               &known.handle);
    assert_true((status == RUNNEL_OK) == (known.handle != 0));
    if (status == RUNNEL_OK) {
        add_known(world, &known);
        total.appended++;
    } else if (status == RUNNEL_NOT_FOUND) { /* its parent was damaged in an earlier life, and this one saw it */
        assert_true(parent != NULL &&
                    rn_tier_store_payload_bytes(rn_cold_store_tier(world->store), parent->handle) == 0);
    } else if (in_order(world)) {
        assert_int_equal(status, RUNNEL_BUSY);
    }
}

/* With the right salt, parent and tokens; or with one of them wrong. */
static void read_one(struct world *world)
{
    const struct known *known = any(world);
    uint8_t payload[MOST_PAYLOAD], right[MOST_PAYLOAD];
    uint32_t wrong = draw(world, 3) == 0 ? 1 + (uint32_t)draw(world, 3) : 0;
    uint64_t parent;
    int32_t tokens[B];
    runnel_status status;

    if (known == NULL)
        return;
    memcpy(tokens, known->tokens, sizeof tokens);
    parent = known->parent;
    if (wrong == 1)
        tokens[draw(world, B)] ^= 4;
    if (wrong == 2)
        parent = world->known[draw(world, world->n_known)].handle;
    wrong = wrong == 2 && parent == known->parent ? 0 : wrong;
    status = rn_tier_store_get(rn_cold_store_tier(world->store), known->handle,
                               &(struct rn_tier_key){parent, salt_of(known->salt + (wrong == 3)), tokens}, payload);
    total.read++;
    total.missed += status != RUNNEL_OK;
    assert_true(status == RUNNEL_OK || status == RUNNEL_NOT_FOUND || (status == RUNNEL_IO && !in_order(world)));
    assert_true(wrong == 0 || status != RUNNEL_OK);
    if (in_order(world) && wrong == 0 &&
        rn_tier_store_payload_bytes(rn_cold_store_tier(world->store), known->handle) > 0)
        assert_int_equal(status, RUNNEL_OK);
    if (status == RUNNEL_OK)
        assert_memory_equal(payload, right, payload_of(known->path, right));
}

static void forget_children(struct world *world, uint64_t handle)
{
    for (size_t i = 0; i < world->n_known; i++) {
        if (world->known[i].live && world->known[i].parent == handle) {
            world->known[i].live = false;
            forget_children(world, world->known[i].handle);
        }
    }
}

static void forget(struct world *world)
{
    struct known *known = any(world);
    uint32_t salt = (uint32_t)draw(world, SALTS);
    uint64_t n;

    if (draw(world, 20) == 0) {
        rn_cold_store_wipe_salt(world->store, salt_of(salt).word[0], &n);
        for (size_t i = 0; i < world->n_known; i++)
            if (world->known[i].salt == salt)
                world->known[i].live = false;
    } else if (known != NULL && draw(world, 3) == 0) {
        rn_tier_store_forget(rn_cold_store_tier(world->store), known->handle);
        known->live = false;
        forget_children(world, known->handle);
    }
}

static void act(struct world *world)
{
    const struct known *known = any(world);

    switch (draw(world, 10)) {
    case 0:
    case 1:
    case 2:
    case 3:
        append(world);
        break;
    case 4:
    case 5:
    case 6:
        read_one(world);
        break;
    case 7:
        if (known != NULL) {
            rn_tier_store_will_get(rn_cold_store_tier(world->store), &known->handle, 1);
            rn_tier_store_used(rn_cold_store_tier(world->store), known->handle);
        }
        break;
    case 8:
        rn_cold_store_maintain(world->store, 1 + draw(world, 4000), on_gone, world);
        break;
    default:
        forget(world);
    }
}

/* ---- Lives ---- */

enum end { CLOSED, KILLED, KILLED_IN_A_CALL, POWER, ENDS };

/* Faults of one life; in order in most, so that there is something to lose. */
static void plan(struct world *world, enum end end)
{
    struct fake_disk_faults *faults = fake_disk_faults(world->disk);

    *faults = (struct fake_disk_faults){.room_bytes = UINT64_MAX, .short_call = draw(world, 2) == 0 ? 6000 : 0};
    faults->grain_bytes = 1u << draw(world, 10);
    world->order = draw(world, 4) != 0;
    if (end == KILLED_IN_A_CALL)
        faults->die_at = 1 + draw(world, 250);
    if (world->order)
        return;
    switch (draw(world, 6)) {
    case 0:
        faults->read_error = 1000;
        break;
    case 1:
        faults->write_error = 500;
        break;
    case 2:
        faults->flipped = 3000;
        break;
    case 3:
        faults->room_bytes = fake_disk_bytes(world->disk) + draw(world, 6000);
        break;
    case 4:
        faults->lazy = FAKE_DISK_ALWAYS;
        fake_disk_rot(world->disk, 1 + (unsigned)draw(world, 4));
        break;
    default:
        faults->fail_at = 1 + draw(world, 100);
        faults->fail_error = draw(world, 2) == 0 ? 5 : 0;
        faults->fail_for_good = draw(world, 2) == 0;
    }
}

/* What the last life had is there, and, if there never was damage, nothing else: what was forgotten stays forgotten.
 * (Damage of an earlier life is found again at each open: its records may take the places of others.) */
static void nothing_lost(struct world *world)
{
    if (world->spotless)
        assert_int_equal(world->n_known, world->n_before);
    if (world->n_known == world->limits.max_records)
        return;
    for (size_t i = 0; i < world->n_before; i++)
        assert_non_null(find(world, world->before[i]));
}

/* A second process looks in, while the first is at work. */
static void look_in(struct world *world)
{
    const struct rn_tier_id id = {.block_tokens = B, .block_bytes = MOST_PAYLOAD, .name = "seeds"};
    struct world *other = calloc(1, sizeof *other);

    assert_non_null(other);
    other->disk = world->disk;
    other->rng = draw(world, UINT64_MAX);
    memcpy(other->ever, world->ever, sizeof other->ever);
    fake_disk_start(world->disk, 1);
    if (rn_cold_store_open(&world->heap, fake_disk_io(world->disk, 1), "/cache", &id, &world->limits, on_record, other,
                           &other->store, NULL) == RUNNEL_OK) {
        for (unsigned i = 0; i < 20; i++)
            read_one(other);
        assert_true(rn_cold_store_check(other->store));
        rn_cold_store_close(other->store);
    }
    free(other);
}

static void end_life(struct world *world, enum end end)
{
    runnel_error error;

    rn_cold_store_maintain(world->store, 1, on_gone, world);
    assert_true(rn_cold_store_check(world->store));
    total.errors += rn_tier_store_error(rn_cold_store_tier(world->store), &error);
    world->n_before = 0;
    for (size_t i = 0; i < world->n_known; i++)
        if (world->known[i].live)
            world->before[world->n_before++] = world->known[i].handle;
    if (end == KILLED)
        fake_disk_kill(world->disk, 0);
    if (end == POWER)
        fake_disk_lose_power(world->disk);
    rn_cold_store_close(world->store);
    if (end == CLOSED && fake_disk_alive(world->disk, 0))
        assert_int_equal(fake_disk_descriptors(world->disk, 0), 0);
}

/* True: what this life had in the end must be there in the next, if that finds a disk in order. */
static bool live(struct world *world, bool must_be_there)
{
    const struct rn_tier_id id = {.block_tokens = B, .block_bytes = MOST_PAYLOAD, .name = "seeds"};
    enum end end = (enum end)draw(world, ENDS);
    unsigned acts = 10 + (unsigned)draw(world, 60);
    runnel_error error = {0};
    bool opened;

    fake_disk_start(world->disk, 0);
    plan(world, end);
    world->n_known = 0;
    if (rn_cold_store_open(&world->heap, fake_disk_io(world->disk, 0), "/cache", &id, &world->limits, on_record, world,
                           &world->store, &error) != RUNNEL_OK) {
        assert_true(!world->order || end == KILLED_IN_A_CALL);
        assert_int_equal(error.status, RUNNEL_IO);
        fake_disk_kill(world->disk, 0);
        world->spotless = false;
        return world->order && must_be_there;
    }
    opened = in_order(world); /* else it may have missed what says that a record is dead */
    if (must_be_there && opened)
        nothing_lost(world);
    for (unsigned i = 0; i < acts; i++) {
        act(world);
        if (draw(world, 200) == 0)
            look_in(world);
    }
    end_life(world, end);
    total.lives++;
    world->spotless &= opened && (end == CLOSED || end == KILLED);
    return opened && end != POWER;
}

static void run_seed(uint64_t seed)
{
    static struct world world;
    unsigned lives;
    bool must_be_there = false;

    memset(&world, 0, sizeof world);
    world.seed = world.rng = seed;
    world.spotless = true;
    rn_heap_init(&world.heap, NULL);
    world.disk = fake_disk_new(seed * 2 + 1);
    world.limits = (struct rn_cold_limits){.segment_bytes = 1u << (11 + draw(&world, 4)),
                                           .dirty_bytes = 1u << (9 + draw(&world, 6)),
                                           .max_records = draw(&world, 4) == 0 ? 60 : 1000};
    world.limits.max_bytes = world.limits.segment_bytes * (4 + draw(&world, 8));
    lives = 2 + (unsigned)draw(&world, 6);
    for (unsigned i = 0; i < lives; i++)
        must_be_there = live(&world, must_be_there);
    fake_disk_free(world.disk);
    assert_int_equal(rn_heap_blocks(&world.heap), 0);
}

static uint64_t first_seed = 1, n_seeds = 5000;

static void test_seeds(void **state)
{
    uint64_t at = 0;

    (void)state;
    for (at = first_seed; at < first_seed + n_seeds; at++) {
        if (getenv("TELL_SEED") != NULL)
            fprintf(stderr, "seed %llu\n", (unsigned long long)at);
        run_seed(at);
    }
    print_message("%llu lives, %llu appended, %llu read, %llu of them missed, %llu told of at open, %llu errors\n",
                  (unsigned long long)total.lives, (unsigned long long)total.appended, (unsigned long long)total.read,
                  (unsigned long long)total.missed, (unsigned long long)total.told, (unsigned long long)total.errors);
    assert_true(n_seeds < 1000 || (total.told > 10 * n_seeds && total.read > 20 * n_seeds && total.errors > 10));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds)};

    if (argc > 1)
        n_seeds = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        first_seed = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
