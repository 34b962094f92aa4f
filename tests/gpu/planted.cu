/* Kernels with mistakes, and their neighbours without: see test_emulator.c. */
#include "gpu/kernels/wrap.cuh"
#include "tests/gpu/planted.h"

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

/* Atomic sums meet each other, but nothing else. */
RN_KERNEL(adds, planted_args, 64, 1)
{
    shared<uint32_t> words(0, 64);
    uint32_t thread = thread_of_block();

    words.put(thread, 0);
    sync_block();
    words.add(thread % 2, thread);
    if (args.with_mistake == 0)
        sync_block();
    global<uint32_t>(args.out, 64).put(thread, words.get(thread % 2));
}
