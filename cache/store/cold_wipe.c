/* Taking a salt's records out of the files: they are not only marked as dead, their tokens and payloads are overwritten
 * with zeros, in the records and in the indexes. Their heads stay, with checks that fit, until the segment is compacted
 * (cold_compact.c). A writer that is killed meanwhile leaves some of them overwritten in part: these fit no check, and
 * are misses. */
#include "base/bytes.h"
#include "cache/store/cold_parts.h"

struct wipe {
    struct rn_cold_store *store;
    struct rn_prefix_salt salt;
    int32_t *tokens;        /* [block_tokens]: zeros */
    unsigned char *payload; /* [payload_room]: zeros */
    size_t payload_room;
    uint64_t n;
};

static runnel_status failed(struct rn_cold_store *store, int status)
{
    rn_cold_write_failed(store, "a block cannot be overwritten", status);
    return RUNNEL_IO;
}

/* The check of a payload of n zeros. */
static bool check_of_zeros(struct wipe *wipe, const struct rn_cold_head *head, struct rn_print *check)
{
    struct rn_heap *heap = wipe->store->heap;

    if (wipe->payload_room < head->payload_bytes) {
        rn_free(heap, wipe->payload);
        wipe->payload = rn_calloc(heap, head->payload_bytes, 1);
        wipe->payload_room = wipe->payload == NULL ? 0 : head->payload_bytes;
    }
    if (wipe->payload == NULL)
        return false;
    *check = rn_cold_payload_check(wipe->store->seed, head->serial, wipe->payload, head->payload_bytes);
    return true;
}

/* The record at `at`, and its entry of the index at entry_at. Payload first: what is left has a check that fits no
 * more. */
static runnel_status wipe_record(struct wipe *wipe, struct rn_cold_segment *segment, struct rn_cold_head *head,
                                 uint64_t at, uint64_t entry_at)
{
    struct rn_cold_store *store = wipe->store;
    size_t head_bytes = rn_cold_head_bytes(store->id.block_tokens);
    int status;

    if (!check_of_zeros(wipe, head, &head->payload_check))
        return RUNNEL_NO_MEMORY;
    head->alive = false;
    rn_bytes_put(store->head, at, RN_COLD_PLACE_BYTES);
    rn_cold_head_pack(head, store->seed, wipe->tokens, store->id.block_tokens, store->head + RN_COLD_PLACE_BYTES);
    status = rn_cold_pwrite(store, segment->fd, wipe->payload, head->payload_bytes, at + head_bytes);
    if (status == 0)
        status = rn_cold_pwrite(store, segment->fd, store->head + RN_COLD_PLACE_BYTES, head_bytes, at);
    if (status == 0)
        status = rn_cold_pwrite(store, segment->fd, store->head, RN_COLD_PLACE_BYTES + head_bytes, entry_at);
    if (status < 0)
        return failed(store, status);
    wipe->n++;
    segment->wiped = true;
    return RUNNEL_OK;
}

static runnel_status wipe_segment(struct wipe *wipe, struct rn_cold_segment *segment)
{
    struct rn_cold_store *store = wipe->store;
    size_t one = rn_cold_index_bytes(store->id.block_tokens);
    runnel_status status = RUNNEL_OK;

    for (uint32_t i = 0; i < segment->n && status == RUNNEL_OK; i++) {
        uint64_t entry_at = segment->index + i * one, at;
        struct rn_cold_head head;
        int error;

        if (!rn_cold_pread(store->io, segment->fd, store->head, one, entry_at, &error))
            return failed(store, error);
        at = rn_bytes_get(store->head, RN_COLD_PLACE_BYTES);
        if (!rn_cold_head_unpack(store->head + RN_COLD_PLACE_BYTES, store->seed, store->id.block_tokens, &head)) {
            segment->wiped = true; /* perhaps by a wipe that was killed: compacting takes it away */
            continue;
        }
        if (head.salt.word[0] != wipe->salt.word[0] || head.salt.word[1] != wipe->salt.word[1] ||
            at < RN_COLD_HEADER_BYTES || at > segment->index ||
            rn_cold_record_bytes(store->id.block_tokens, head.payload_bytes) > segment->index - at)
            continue;
        status = wipe_record(wipe, segment, &head, at, entry_at);
    }
    if (status == RUNNEL_OK) {
        int error = store->io->sync(store->io->user, segment->fd);

        if (error < 0)
            return failed(store, error);
    }
    return status;
}

runnel_status rn_cold_store_wipe_salt(struct rn_cold_store *store, struct rn_prefix_salt salt, uint64_t *n)
{
    struct wipe wipe = {.store = store, .salt = salt};
    runnel_status status = RUNNEL_OK;

    *n = 0;
    if (!store->stats.writes)
        return RUNNEL_STATE;
    rn_cold_store_forget_salt(store, salt);
    if (store->active != RN_COLD_NONE && store->segments[store->active].n > 0)
        status = rn_cold_seal_active(store);
    wipe.tokens = rn_calloc(store->heap, store->id.block_tokens, sizeof *wipe.tokens);
    if (wipe.tokens == NULL)
        status = RUNNEL_NO_MEMORY;
    for (uint32_t i = 0; i < store->n_segments && status == RUNNEL_OK; i++)
        if (store->segments[i].fd >= 0 && store->segments[i].index != 0)
            status = wipe_segment(&wipe, &store->segments[i]);
    rn_free(store->heap, wipe.tokens);
    rn_free(store->heap, wipe.payload);
    *n = wipe.n;
    return status;
}
