/* The mover: see mover.h. */
#include "actors/tier/mover.h"

#include <string.h>
#include <time.h>

#include "actors/context.h"
#include "base/check.h"

static uint32_t place_of(uint64_t tier_directory)
{
    return (uint32_t)tier_directory - 1;
}

static unsigned char *bytes_of(const struct rn_mover *mover, uint32_t item)
{
    return mover->blocks + item * mover->block_bytes;
}

/* ---- From a tier's handle to the place ---- */

static uint32_t home(const struct rn_mover_find *find, uint64_t handle)
{
    return (uint32_t)((handle * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - find->bits));
}

static uint32_t seek(const struct rn_mover_find *find, uint64_t handle)
{
    uint32_t mask = (1u << find->bits) - 1, i = home(find, handle);

    while (find->slots[i].handle != 0 && find->slots[i].handle != handle)
        i = (i + 1) & mask;
    return i;
}

uint32_t rn_mover_find_place(const struct rn_mover_find *find, uint64_t handle)
{
    uint32_t i = seek(find, handle);

    return find->slots[i].handle != 0 ? find->slots[i].place : RN_MOVER_NO_PLACE;
}

void rn_mover_find_add(struct rn_mover_find *find, uint64_t handle, uint32_t place)
{
    uint32_t i = seek(find, handle);

    RN_ASSERT(handle != 0);
    RN_CHECK(find->slots[i].handle == 0 && find->n < 1u << (find->bits - 1));
    find->slots[i] = (struct rn_mover_slot){handle, place};
    find->n++;
}

/* Those behind it move up, as far as their homes let them. */
void rn_mover_find_remove(struct rn_mover_find *find, uint64_t handle)
{
    uint32_t mask = (1u << find->bits) - 1, hole = seek(find, handle), i = hole;

    if (find->slots[hole].handle == 0)
        return;
    for (;;) {
        i = (i + 1) & mask;
        if (find->slots[i].handle == 0)
            break;
        if (((i - home(find, find->slots[i].handle)) & mask) >= ((i - hole) & mask)) {
            find->slots[hole] = find->slots[i];
            hole = i;
        }
    }
    RN_ASSERT(find->n > 0);
    find->slots[hole].handle = 0;
    find->n--;
}

/* ---- Places ---- */

static uint8_t has(const struct rn_mover_place *place)
{
    uint8_t bits = 0;

    for (unsigned kind = 0; kind < RN_TIERS; kind++)
        bits |= place->at[kind].handle != 0 ? RN_TIER_BIT(kind) : 0;
    return bits;
}

/* The place of the number, NULL when it is another's now. */
static struct rn_mover_place *find_place(struct rn_mover *mover, uint64_t tier_directory)
{
    struct rn_mover_place *place = tier_directory != 0 && place_of(tier_directory) < mover->n_places
                                       ? &mover->places[place_of(tier_directory)]
                                       : NULL;

    return place != NULL && place->tier_directory == tier_directory ? place : NULL;
}

void rn_mover_set_at(struct rn_mover *mover, struct rn_mover_place *place, unsigned kind, uint64_t handle,
                     uint64_t parent)
{
    RN_ASSERT(handle != 0 && place->at[kind].handle == 0);
    place->at[kind].handle = handle;
    place->at[kind].parent = parent;
    rn_mover_find_add(&mover->find[kind], handle, (uint32_t)(place - mover->places));
}

void rn_mover_will_tell(struct rn_mover *mover, struct rn_mover_place *place)
{
    if (place->lost)
        return;
    place->lost = true;
    place->next_lost = mover->first_lost;
    mover->first_lost = (uint32_t)(place - mover->places);
}

/* The tier will be told; not where it has said so itself. */
static void lose(struct rn_mover *mover, struct rn_mover_place *place, unsigned kind, bool tell)
{
    if (place->at[kind].handle == 0)
        return;
    rn_mover_find_remove(&mover->find[kind], place->at[kind].handle);
    place->at[kind].handle = 0;
    if (tell)
        rn_mover_will_tell(mover, place);
}

static void on_gone(void *user, uint64_t handle)
{
    const struct rn_mover_tier *tier = user;
    struct rn_mover *mover = tier->mover;
    unsigned kind = (unsigned)(tier - mover->tiers);
    uint32_t at = rn_mover_find_place(&mover->find[kind], handle);

    RN_ASSERT(kind < RN_TIERS && (at == RN_MOVER_NO_PLACE || mover->places[at].at[kind].handle == handle));
    if (at != RN_MOVER_NO_PLACE)
        lose(mover, &mover->places[at], kind, true);
}

void rn_mover_watch(struct rn_mover *mover, enum rn_tier_kind kind, struct rn_tier_store *store)
{
    RN_ASSERT(mover->tiers[kind].store == NULL);
    mover->tiers[kind] = (struct rn_mover_tier){mover, store};
    rn_tier_store_watch(store, on_gone, &mover->tiers[kind]);
}

/* untrusted: it is to be gone for others too. */
static void forget_at(struct rn_mover *mover, struct rn_mover_place *place, unsigned kind, bool untrusted)
{
    uint64_t handle = place->at[kind].handle;

    lose(mover, place, kind, false);
    if (handle != 0 && untrusted)
        rn_tier_store_forget(mover->tiers[kind].store, handle);
    else if (handle != 0)
        rn_tier_store_let_go(mover->tiers[kind].store, handle);
}

struct rn_mover_place *rn_mover_take_place(struct rn_mover *mover, uint64_t tier_directory)
{
    struct rn_mover_place *place;

    RN_CHECK(tier_directory != 0 && place_of(tier_directory) < mover->n_places);
    place = &mover->places[place_of(tier_directory)];
    if (place->tier_directory != tier_directory) {
        for (unsigned kind = 0; kind < RN_TIERS; kind++)
            forget_at(mover, place, kind, false);
        place->tier_directory = tier_directory;
    }
    RN_ASSERT(find_place(mover, tier_directory) == place);
    return place;
}

/* ---- Down ---- */

/* The packed block, from the backend or from a tier that has it; its bytes, 0: it is not to be had. */
static size_t fetch(struct rn_mover *mover, const struct rn_move_item *item, const struct rn_mover_place *place,
                    const unsigned char *bytes)
{
    if (item->block != RN_MOVE_NO_BLOCK)
        return mover->copying.status != RUNNEL_OK ? 0 : rn_block_codec_pack(&mover->codec, bytes, mover->payload);
    for (unsigned kind = 0; kind < RN_TIERS; kind++) {
        struct rn_tier_store *store = mover->tiers[kind].store;
        struct rn_tier_key key = {place->at[kind].parent, item->salt, item->tokens};
        uint64_t handle = place->at[kind].handle;
        size_t n = handle != 0 ? rn_tier_store_payload_bytes(store, handle) : 0;

        if (n > 0 && n <= mover->payload_bytes && rn_tier_store_get(store, handle, &key, mover->payload) == RUNNEL_OK)
            return n;
    }
    return 0;
}

/* False: it could not be put there. */
static bool put(struct rn_mover *mover, struct rn_move *move, const struct rn_move_item *item,
                struct rn_mover_place *place, unsigned kind, size_t n)
{
    struct rn_tier_store *store = mover->tiers[kind].store;
    const struct rn_mover_place *above = find_place(mover, item->parent);
    struct rn_tier_key key = {item->parent, item->salt, item->tokens};
    uint64_t handle = item->tier_directory;

    if (store->ops->durable) {
        key.parent = above != NULL ? above->at[kind].handle : 0;
        if (!item->first && key.parent == 0)
            return false;
    }
    RN_ASSERT(n > 0 && n <= mover->payload_bytes);
    if (rn_tier_store_put(store, &key, mover->payload, n, &handle) != RUNNEL_OK)
        return false;
    rn_mover_set_at(mover, place, kind, handle, key.parent);
    move->bytes[kind] += n;
    return true;
}

static void carry_down(struct rn_mover *mover, struct rn_move *move, struct rn_move_item *item)
{
    const unsigned char *bytes = bytes_of(mover, (uint32_t)(item - move->items));
    struct rn_mover_place *place = rn_mover_take_place(mover, item->tier_directory);
    size_t n = 0;

    for (unsigned kind = 0; kind < RN_TIERS; kind++) {
        if ((item->to & RN_TIER_BIT(kind)) == 0 || place->at[kind].handle != 0 || mover->tiers[kind].store == NULL)
            continue;
        if (n == 0)
            n = fetch(mover, item, place, bytes);
        if (n == 0 || !put(mover, move, item, place, kind, n)) {
            move->n_errors++;
            move->refused |= (uint8_t)RN_TIER_BIT(kind);
        }
    }
}

/* The blocks have been read. */
static void down(struct rn_mover *mover, struct rn_move *move)
{
    for (uint32_t i = 0; i < move->n; i++)
        carry_down(mover, move, &move->items[i]);
    for (uint32_t i = 0; i < move->n; i++) { /* a later one may have pushed an earlier one out */
        const struct rn_mover_place *place = find_place(mover, move->items[i].tier_directory);

        move->items[i].has = place != NULL ? has(place) : 0;
    }
}

/* ---- Up ---- */

/* Fetches and unpacks the item's block. */
static bool carry_from(struct rn_mover *mover, struct rn_move *move, const struct rn_move_item *item,
                       struct rn_mover_place *place, unsigned kind)
{
    unsigned char *bytes = bytes_of(mover, (uint32_t)(item - move->items));
    struct rn_tier_store *store = mover->tiers[kind].store;
    struct rn_tier_key key = {place->at[kind].parent, item->salt, item->tokens};
    uint64_t begin = rn_now_us(mover->context->clock), handle = place->at[kind].handle;
    size_t n = rn_tier_store_payload_bytes(store, handle);
    runnel_status status =
        n == 0 || n > mover->payload_bytes ? RUNNEL_NOT_FOUND : rn_tier_store_get(store, handle, &key, mover->payload);

    if (status == RUNNEL_OK)
        status = rn_block_codec_unpack(&mover->codec, mover->payload, n, bytes);
    if (status != RUNNEL_OK) {
        if (status != RUNNEL_IO) /* a server that is away will be back */
            forget_at(mover, place, kind, true);
        return false;
    }
    RN_ASSERT(rn_mover_find_place(&mover->find[kind], handle) == place_of(item->tier_directory));
    move->bytes[kind] += n;
    move->us[kind] += rn_now_us(mover->context->clock) - begin;
    return true;
}

/* From the nearest tier that gives it; RN_TIERS: none does. */
static uint8_t carry_up(struct rn_mover *mover, struct rn_move *move, struct rn_move_item *item)
{
    struct rn_mover_place *place = find_place(mover, item->tier_directory);

    for (uint8_t kind = 0; place != NULL && kind < RN_TIERS; kind++)
        if (place->at[kind].handle != 0 && carry_from(mover, move, item, place, kind))
            return kind;
    return RN_TIERS;
}

/* The disk may begin with those that only it has. */
static void announce(struct rn_mover *mover, const struct rn_move *move)
{
    for (unsigned kind = 0; kind < RN_TIERS; kind++) {
        uint64_t handles[RN_MOVE_BLOCKS];
        uint32_t n = 0;

        if (mover->tiers[kind].store == NULL)
            continue;
        for (uint32_t i = 0; i < move->n; i++) {
            const struct rn_mover_place *place = find_place(mover, move->items[i].tier_directory);

            if (place != NULL && has(place) == RN_TIER_BIT(kind))
                handles[n++] = place->at[kind].handle;
        }
        if (n > 0)
            rn_tier_store_will_get(mover->tiers[kind].store, handles, n);
    }
}

/* Fetches all blocks as far as they come. */
static void fetch_up(struct rn_mover *mover, struct rn_move *move)
{
    bool good = true;

    announce(mover, move);
    for (uint32_t i = 0; i < move->n; i++) {
        move->items[i].from = good ? carry_up(mover, move, &move->items[i]) : RN_TIERS;
        good = move->items[i].from != RN_TIERS;
    }
}

/* They have been written. */
static void up(struct rn_mover *mover, struct rn_move *move)
{
    bool good = mover->copying.status == RUNNEL_OK;

    RN_ASSERT(move->kind == RN_MOVE_UP && move->n <= RN_MOVE_BLOCKS);
    for (uint32_t i = 0; i < move->n; i++) {
        struct rn_move_item *item = &move->items[i];
        const struct rn_mover_place *place;

        if (!good)
            item->from = RN_TIERS;
        good = item->from != RN_TIERS;
        if (good) /* its part of the time that all took */
            move->us[item->from] += mover->copy_us / mover->copying.n;
        move->n_errors += !good;
        place = find_place(mover, item->tier_directory);
        item->has = place != NULL ? has(place) : 0;
        for (unsigned kind = 0; good && kind < RN_TIERS; kind++) /* in order: what comes last goes first */
            if (place->at[kind].handle != 0)
                rn_tier_store_used(mover->tiers[kind].store, place->at[kind].handle);
    }
}

/* ---- Answers ---- */

static void forget(struct rn_mover *mover, const struct rn_move *move)
{
    RN_ASSERT(move->n_told <= RN_MOVE_TOLD);
    for (uint32_t i = 0; i < move->n_told; i++) {
        struct rn_mover_place *place = find_place(mover, move->told[i]);

        for (unsigned kind = 0; place != NULL && kind < RN_TIERS; kind++)
            forget_at(mover, place, kind, move->left[i] != 0);
        if (place != NULL)
            place->tier_directory = 0;
    }
}

static void tell_lost(struct rn_mover *mover, struct rn_move *move)
{
    move->n_told = 0;
    while (mover->first_lost != RN_MOVER_NO_PLACE && move->n_told < RN_MOVE_TOLD) {
        struct rn_mover_place *place = &mover->places[mover->first_lost];

        RN_CHECK(mover->first_lost < mover->n_places && place->lost);
        mover->first_lost = place->next_lost;
        place->lost = false;
        move->told[move->n_told] = place->tier_directory;
        move->left[move->n_told++] = has(place);
    }
}

static void tell_errors(struct rn_mover *mover)
{
    for (unsigned kind = 0; kind < RN_TIERS; kind++) {
        struct rn_tier_store *store = mover->tiers[kind].store;
        runnel_error error;

        if (store == NULL || mover->told[kind] || !rn_tier_store_error(store, &error))
            continue;
        mover->told[kind] = true;
        rn_log(mover->context->log, RUNNEL_LOG_WARNING, "%s: the %s cache tier: %s", mover->context->metrics->name,
               store->ops->name, error.message);
    }
}

/* Nobody waits for a move of these kinds. */
static bool has_time(const struct rn_move *move)
{
    return move->kind != RN_MOVE_UP && move->kind != RN_MOVE_LISTEN;
}

void rn_mover_answer(struct rn_mover *mover, struct rn_move *move, struct rn_msg *msg)
{
    RN_ASSERT(mover->at_work == NULL && move != mover->listener);
    move->more = false;
    for (unsigned kind = 0; kind < RN_TIERS; kind++) {
        struct rn_tier_store *store = mover->tiers[kind].store;

        if (store == NULL)
            continue;
        if (has_time(move))
            move->more |= rn_tier_store_tend(store);
        move->takes[kind] = rn_tier_store_bytes(store);
    }
    move->writes = rn_mover_writes(mover);
    tell_lost(mover, move);
    tell_errors(mover);
    move->more |= mover->first_lost != RN_MOVER_NO_PLACE;
    move->spent_us = rn_spent_us(mover->context->clock) - move->spent_us;
    msg->head.kind = RN_MSG_MOVED;
    rn_actor_send(mover->context->tier, msg);
}

static void rest(uint32_t us)
{
    const struct timespec pause = {us / 1000000, (long)(us % 1000000) * 1000};

    nanosleep(&pause, NULL);
}

/* On a thread of the backend, or within begin_copies. */
static void on_copies_done(struct rn_host_copies *copies)
{
    struct rn_mover *mover = copies->user;

    rn_actor_send(&mover->actor, mover->copied);
}

/* The blocks of the move that are to be read, or that have come; false: there are none. */
static bool begin_copies(struct rn_mover *mover, struct rn_move *move, struct rn_msg *msg)
{
    struct rn_backend *backend = mover->context->backend;
    const struct rn_clock *clock = mover->context->clock;
    bool down = move->kind == RN_MOVE_DOWN;
    uint32_t n = 0;

    RN_ASSERT(mover->at_work == NULL && move->n <= RN_MOVE_BLOCKS);
    for (uint32_t i = 0; i < move->n; i++)
        if (down ? move->items[i].block != RN_MOVE_NO_BLOCK : move->items[i].from != RN_TIERS)
            mover->copies[n++] = (struct rn_host_copy){move->items[i].block, mover->context->limits->block_tokens, down,
                                                       bytes_of(mover, i), false};
    mover->copying = (struct rn_host_copies){.n = n, .items = mover->copies, .on_done = on_copies_done, .user = mover};
    if (n == 0)
        return false;
    RN_CHECK(n <= RN_MOVE_BLOCKS);
    mover->at_work = msg;
    mover->copied = rn_msg_new(mover->actor.runtime, RN_MSG_COPIED);
    mover->copy_us = rn_now_us(clock);
    backend->ops->copy_async(backend, &mover->copying);
    move->spent_us = rn_spent_us(clock) - move->spent_us; /* so much until now; on_copied comes behind this handler */
    return true;
}

static void end_move(struct rn_mover *mover, struct rn_msg *msg)
{
    struct rn_move *move = msg->move.move;

    if (move->kind == RN_MOVE_DOWN)
        down(mover, move);
    else if (move->kind == RN_MOVE_UP)
        up(mover, move);
    else if (move->kind == RN_MOVE_FORGET)
        forget(mover, move);
    else if (move->kind == RN_MOVE_STOP_LISTENING)
        rn_mover_give_listener(mover);
    rn_mover_answer(mover, move, msg);
    rn_mover_listen(mover);
}

static void begin_move(struct rn_mover *mover, struct rn_msg *msg)
{
    struct rn_move *move = msg->move.move;

    if (move->kind == RN_MOVE_LISTEN) {
        rn_msg_free(mover->actor.runtime, msg);
        rn_mover_take_listener(mover, move);
        rn_mover_listen(mover);
        return;
    }
    RN_ASSERT(mover->at_work == NULL && move->n <= RN_MOVE_BLOCKS);
    move->spent_us = rn_spent_us(mover->context->clock);
    memset(move->us, 0, sizeof move->us);
    memset(move->bytes, 0, sizeof move->bytes);
    move->n_errors = move->refused = 0;
    if (move->kind == RN_MOVE_TEND && move->pause_us > 0 && mover->dedicated != NULL)
        rest(move->pause_us);
    if (move->kind == RN_MOVE_UP)
        fetch_up(mover, move);
    if ((move->kind == RN_MOVE_UP || move->kind == RN_MOVE_DOWN) && begin_copies(mover, move, msg))
        return;
    end_move(mover, msg);
}

static void on_move(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_mover *mover = (struct rn_mover *)self;

    if (mover->at_work == NULL) {
        begin_move(mover, msg);
        return;
    }
    RN_CHECK(mover->n_waiting < RN_MOVES);
    mover->waiting[mover->n_waiting++] = msg;
}

static void on_copied(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_mover *mover = (struct rn_mover *)self;
    const struct rn_clock *clock = mover->context->clock;
    struct rn_msg *done = mover->at_work;

    RN_ASSERT(done != NULL && mover->copying.n > 0);
    rn_msg_free(self->runtime, msg);
    mover->at_work = NULL;
    mover->copy_us = rn_now_us(clock) - mover->copy_us;
    done->move.move->spent_us = rn_spent_us(clock) - done->move.move->spent_us;
    end_move(mover, done);
    while (mover->n_waiting > 0 && mover->at_work == NULL) {
        struct rn_msg *next = mover->waiting[0];

        mover->n_waiting--;
        memmove(mover->waiting, mover->waiting + 1, mover->n_waiting * sizeof mover->waiting[0]);
        begin_move(mover, next);
    }
}

static const struct rn_actor_class mover_class = {
    .name = "mover",
    .handlers =
        {
            [RN_MSG_MOVE] = on_move,
            [RN_MSG_COPIED] = on_copied,
            [RN_MSG_CLOSE] = rn_actor_on_close,
        },
};

uint8_t rn_mover_tiers(const struct rn_mover *mover)
{
    uint8_t bits = 0;

    for (unsigned kind = 0; kind < RN_TIERS; kind++)
        bits |= mover->tiers[kind].store != NULL ? RN_TIER_BIT(kind) : 0;
    return bits;
}

uint8_t rn_mover_writes(const struct rn_mover *mover)
{
    uint8_t bits = 0;

    for (unsigned kind = 0; kind < RN_TIERS; kind++) {
        const struct rn_tier_store *store = mover->tiers[kind].store;

        bits |= store != NULL && rn_tier_store_writes(store) ? RN_TIER_BIT(kind) : 0;
    }
    return bits;
}

void rn_mover_actor_init(struct rn_mover *mover, const struct rn_context *context)
{
    mover->context = context;
    mover->first_lost = RN_MOVER_NO_PLACE;
    rn_actor_init(&mover->actor, context->runtime, &mover_class, rn_bounds_credits(&context->bounds, RN_ROLE_MOVER));
}

/* ---- Check ---- */

static bool find_is_whole(const struct rn_mover *mover, unsigned kind)
{
    const struct rn_mover_find *find = &mover->find[kind];
    uint32_t n = 0, n_places = 0;

    if (find->slots == NULL)
        return find->n == 0;
    for (uint32_t i = 0; i < 1u << find->bits; i++) {
        const struct rn_mover_slot *slot = &find->slots[i];

        if (slot->handle == 0)
            continue;
        n++;
        if (slot->place >= mover->n_places || mover->places[slot->place].at[kind].handle != slot->handle ||
            rn_mover_find_place(find, slot->handle) != slot->place)
            return false;
    }
    for (uint32_t i = 0; i < mover->n_places; i++)
        n_places += mover->places[i].at[kind].handle != 0;
    return n == find->n && n == n_places;
}

bool rn_mover_check(const struct rn_mover *mover)
{
    uint32_t n_lost = 0, n_listed = 0;

    for (uint32_t i = 0; i < mover->n_places; i++) {
        if (has(&mover->places[i]) != 0 &&
            (mover->places[i].tier_directory == 0 || place_of(mover->places[i].tier_directory) != i))
            return false;
        n_lost += mover->places[i].lost;
    }
    for (uint32_t at = mover->first_lost; at != RN_MOVER_NO_PLACE; at = mover->places[at].next_lost)
        if (at >= mover->n_places || !mover->places[at].lost || ++n_listed > n_lost)
            return false;
    for (unsigned kind = 0; kind < RN_TIERS; kind++)
        if (!find_is_whole(mover, kind))
            return false;
    if (mover->n_waiting > RN_MOVES || (mover->at_work == NULL && mover->n_waiting > 0))
        return false;
    for (unsigned kind = 0; kind < RN_TIERS; kind++)
        if (mover->tiers[kind].store != NULL && !rn_tier_store_check(mover->tiers[kind].store))
            return false;
    return rn_block_codec_check(&mover->codec) && n_listed == n_lost &&
           (mover->listener == NULL || mover->listener->kind == RN_MOVE_LISTEN);
}
