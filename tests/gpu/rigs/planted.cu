/* Kernels with mistakes, and their neighbours without: see test_emulator.c. */
#include "gpu/kernels/wrap.cuh"
#include "tests/gpu/rigs/planted.h"

RN_KERNEL(shifts, planted_args, 64, 1)
{
    shared<uint32_t> words(0, 64);
    uint32_t thread = thread_of_block();

    words.put(thread, 0);
    sync_block();
    words.put(thread, thread);
    if (args.with_mistake == 0)
        sync_block();
    global<uint32_t>(args.out, 64).put(thread, words.get((thread + 40) % 64));
}

RN_KERNEL(shifts_in_warp, planted_args, 64, 1)
{
    shared<uint32_t> words(0, 64);
    uint32_t thread = thread_of_block();

    words.put(thread, 0);
    sync_block();
    words.put(thread, thread);
    if (args.with_mistake == 0)
        sync_warp();
    global<uint32_t>(args.out, 64).put(thread, words.get(thread / 32 * 32 + (thread + 1) % 32));
}

/* A warp's barrier is none for the other warp. */
RN_KERNEL(shifts_between_warps, planted_args, 64, 1)
{
    shared<uint32_t> words(0, 64);
    uint32_t thread = thread_of_block();

    words.put(thread, 0);
    sync_block();
    words.put(thread, thread);
    if (args.with_mistake != 0)
        sync_warp();
    else
        sync_block();
    global<uint32_t>(args.out, 64).put(thread, words.get(63 - thread));
}

/* A second round writes what others may still be reading. */
RN_KERNEL(writes_again, planted_args, 64, 1)
{
    shared<uint32_t> words(0, 64);
    uint32_t thread = thread_of_block();

    for (uint32_t round = 0; round < 2; round++) {
        words.put(thread, thread + round);
        sync_block();
        global<uint32_t>(args.out, 64).put(thread, words.get(32 + thread % 32));
        if (args.with_mistake == 0)
            sync_block();
    }
}

RN_KERNEL(half_a_barrier, planted_args, 64, 1)
{
    if (args.with_mistake == 0 || thread_of_block() < 32)
        sync_block();
    global<uint32_t>(args.out, 64).put(thread_of_block(), 1);
}

RN_KERNEL(two_barriers, planted_args, 64, 1)
{
    if (args.with_mistake == 0 || thread_of_block() < 32)
        sync_block();
    else
        sync_block();
    global<uint32_t>(args.out, 64).put(thread_of_block(), 1);
}

RN_KERNEL(half_a_shuffle, planted_args, 64, 1)
{
    uint32_t value = thread_of_block();

    if (args.with_mistake == 0 || thread_of_block() % 2 == 0)
        value = shuffle_xor(value, 1);
    global<uint32_t>(args.out, 64).put(thread_of_block(), value);
}

RN_KERNEL(two_shuffles, planted_args, 64, 1)
{
    uint32_t value = thread_of_block();

    if (args.with_mistake == 0 || thread_of_block() % 2 == 0)
        value = shuffle_xor(value, 1);
    else
        value = shuffle_xor(value, 2);
    global<uint32_t>(args.out, 64).put(thread_of_block(), value);
}

RN_KERNEL(past_the_array, planted_args, 64, 1)
{
    global<uint32_t>(args.out, 64 + args.with_mistake).put(thread_of_block() + args.with_mistake, 1);
}

RN_KERNEL(past_the_view, planted_args, 64, 1)
{
    global<uint32_t>(args.out, 64 - args.with_mistake).put(thread_of_block(), 1);
}

RN_KERNEL(not_aligned, planted_args, 64, 1)
{
    bytes_at(args.out + 2 * args.with_mistake).put<uint16_t>(thread_of_block() * 2, 1);
    bytes_at(args.out + 2 * args.with_mistake).put<uint32_t>(128, 1);
}

RN_KERNEL(past_the_shared, planted_args, 64, 1)
{
    shared<uint32_t>(4 * args.with_mistake, 64).put(thread_of_block(), 1);
}

RN_KERNEL(reads_nothing, planted_args, 64, 1)
{
    shared<uint32_t> words(0, 64);

    if (args.with_mistake == 0)
        words.put(thread_of_block(), 7);
    global<uint32_t>(args.out, 64).put(thread_of_block(), words.get(thread_of_block()));
}

/* Threads count together: atomically, or each for itself. */
RN_KERNEL(counts, planted_args, 64, 1)
{
    shared<uint32_t> words(0, 2);
    uint32_t thread = thread_of_block();

    if (thread == 0) {
        words.put(0, 0);
        words.put(1, 5);
    }
    sync_block();
    if (args.with_mistake != 0) {
        words.put(0, words.get(0) + 1);
    } else {
        words.add(0, 1);
        words.max(1, thread * 3);
        words.exchange_if(0, 1000, 7);
    }
    sync_block();
    global<uint32_t>(args.out, 64).put(thread, words.get(0) + words.get(1));
}

/* A thread writes what others add to. */
RN_KERNEL(counts_and_writes, planted_args, 64, 1)
{
    shared<uint32_t> words(0, 1);

    if (thread_of_block() == 0)
        words.put(0, 0);
    sync_block();
    if (args.with_mistake != 0 && thread_of_block() == 3)
        words.put(0, 1);
    else
        words.add(0, 1);
    sync_block();
}

RN_KERNEL(reads_a_counter, planted_args, 64, 1)
{
    shared<uint32_t> words(0, 1);
    uint32_t seen = 0;

    if (thread_of_block() == 0)
        words.put(0, 0);
    sync_block();
    words.add(0, 1);
    if (args.with_mistake == 0)
        sync_block();
    if (thread_of_block() == 63)
        seen = words.get(0);
    if (seen == 64)
        global<uint32_t>(args.out, 64).put(0, seen);
}

/* Both blocks write the same numbers. */
RN_KERNEL(blocks_write, planted_args, 64, 1)
{
    if (args.with_mistake != 0 || block_x() == 0)
        global<uint32_t>(args.out, 64).put(thread_of_block(), 1);
}

/* One block reads what the other writes. */
RN_KERNEL(blocks_read, planted_args, 64, 1)
{
    global<uint32_t> out(args.out, 64);
    uint32_t half = block_x() % 2 * 32, from = args.with_mistake != 0 ? 32 - half : half;

    if (thread_of_block() < 32)
        out.put(half + thread_of_block(), out.get(from + thread_of_block()) + 1);
}

/* One block writes what the other has read. */
RN_KERNEL(blocks_read_first, planted_args, 64, 1)
{
    global<uint32_t> out(args.out, 64);

    if (block_x() == 0 && out.get(thread_of_block()) == 54321)
        out.put(thread_of_block(), 1);
    if (block_x() == 1 && args.with_mistake != 0)
        out.put(thread_of_block(), 1);
}

/* Bytes of one word are two blocks'. */
RN_KERNEL(blocks_share_a_word, planted_args, 64, 1)
{
    if (thread_of_block() == 0)
        bytes_at(args.out).put<unsigned char>(args.with_mistake != 0 ? 1 : block_x(), 1);
}

/* A block's bytes and the other's word. */
RN_KERNEL(word_of_bytes, planted_args, 64, 1)
{
    if (thread_of_block() == 0 && block_x() == 0)
        bytes_at(args.out).put<unsigned char>(3, 1);
    if (thread_of_block() == 0 && block_x() == 1)
        bytes_at(args.out).put<uint32_t>(args.with_mistake != 0 ? 0 : 4, 1);
}

RN_KERNEL(blocks_count, planted_args, 64, 1)
{
    global<uint32_t> out(args.out, 64);

    if (args.with_mistake != 0)
        out.put(0, out.get(0) + 1);
    else
        out.add(0, 1);
    out.max(1, thread_of_block());
    out.exchange_if(2, 0, 1);
}

/* A block's plain number, which another counts on. */
RN_KERNEL(blocks_count_and_write, planted_args, 64, 1)
{
    global<uint32_t> out(args.out, 64);

    if (thread_of_block() == 0 && block_x() == 0 && args.with_mistake != 0)
        out.put(3, 0);
    if (thread_of_block() == 0)
        out.add(3, 1);
}

RN_KERNEL(half_a_vote, planted_args, 64, 1)
{
    uint32_t thread = thread_of_block(), lanes = 0;

    if (args.with_mistake == 0 || thread < 40)
        lanes = ballot(thread % 3 == 0) + any_lane(thread == 5) + 2 * all_lanes(thread < 32);
    global<uint32_t>(args.out, 64).put(thread, lanes);
}

/* Two groups of copies, of which the first is waited for; the second lies where it may not be read yet. */
RN_KERNEL(copies, planted_args, 64, 1)
{
    shared<uint32_t> words(0, 64);
    uint32_t thread = thread_of_block();
    global<uint32_t> out(args.out, 64);

    if (thread < 32)
        copy_async(words, thread, out, thread);
    copy_commit();
    if (thread < 32)
        copy_async(words, 32 + thread, out, 32 + thread);
    copy_commit();
    copy_wait<1>();
    sync_block();
    if (words.get(args.with_mistake != 0 ? 63 - thread % 32 : thread % 32) == 12345)
        out.put(0, 1);
}

/* Copied by one thread, read by another without a barrier behind the wait. */
RN_KERNEL(copies_unseen, planted_args, 64, 1)
{
    shared<uint32_t> words(0, 64);
    uint32_t thread = thread_of_block();

    copy_async(words, thread, global<uint32_t>(args.out, 64), thread);
    copy_commit();
    copy_wait<0>();
    if (args.with_mistake == 0)
        sync_block();
    if (thread == 63 && words.get(0) == 12345)
        global<uint32_t>(args.out, 64).put(thread, 1);
}

/* Nobody has made a group of the copies: waiting for groups is not waiting for them. */
RN_KERNEL(copies_without_group, planted_args, 64, 1)
{
    shared<words4> words(0, 16);
    uint32_t thread = thread_of_block();

    if (thread < 16) {
        copy_async(words, thread, global<words4>(args.out, 16), thread);
        if (args.with_mistake == 0)
            copy_commit();
        copy_wait<0>();
        if (words.get(thread).w[0] == 12345)
            global<uint32_t>(args.out, 64).put(thread, 1);
    }
}

/* A copy to what others still read. */
RN_KERNEL(copies_again, planted_args, 64, 1)
{
    shared<uint32_t> words(0, 64);
    uint32_t thread = thread_of_block(), sum;

    words.put(thread, thread);
    sync_block();
    sum = words.get((thread + 1) % 64);
    if (args.with_mistake == 0)
        sync_block();
    copy_async(words, thread, global<uint32_t>(args.out, 64), thread);
    copy_commit();
    copy_wait<0>();
    if (sum == 12345)
        global<uint32_t>(args.out, 64).put(thread, 1);
}
