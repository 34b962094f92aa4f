/* See amx_emulator.h. What the instructions do and how they are encoded: Intel 64 and IA-32 Architectures Software
 * Developer's Manual, volume 2, and volume 1, chapter 18. */
#define _GNU_SOURCE
#include "tests/cpu/amx_emulator.h"

#include "tests/slow.h"

#if defined(__x86_64__)
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>
#include <xmmintrin.h>

#include "base/check.h"
#include "cpu/levels/levels_x86.h"

/* Of one thread. */
static __thread struct tile {
    uint32_t n_rows, row_bytes; /* 0: not set up */
    uint8_t rows[16][64];
} tiles[8];

/* The instruction at p, as far as those of the unit need it. */
struct instruction {
    uint32_t prefix; /* pp of VEX: 0, 1: 66, 2: F3, 3: F2 */
    uint32_t opcode;
    uint32_t reg, rm, other; /* other: vvvv of VEX */
    bool in_memory;
    uint8_t *base;
    size_t stride;
    size_t length;
};

static uint64_t value_of(const ucontext_t *thread, uint32_t number)
{
    static const int names[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                  REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

    return (uint64_t)thread->uc_mcontext.gregs[names[number]];
}

/* The operand in memory behind ModRM. x, b: 8 where the register has a number of 8 and more. */
static void read_address(struct instruction *in, const ucontext_t *thread, const uint8_t *p, uint32_t x, uint32_t b)
{
    const uint32_t mod = p[4] >> 6;
    uint64_t base = 0;
    int32_t wide = 0;
    size_t at = 5;
    bool no_base;

    in->stride = 0;
    if (in->rm == 4) {
        uint32_t index = (p[at] >> 3 & 7) + x;

        no_base = (p[at] & 7) == 5 && mod == 0;
        base = no_base ? 0 : value_of(thread, (p[at] & 7) + b);
        in->stride = index == 4 ? 0 : value_of(thread, index) << (p[at] >> 6);
        at++;
    } else {
        no_base = in->rm == 5 && mod == 0; /* relative to the next instruction */
        base = no_base ? 0 : value_of(thread, in->rm + b);
    }
    if (mod == 1)
        wide = (int8_t)p[at++];
    if (mod == 2 || no_base) {
        memcpy(&wide, p + at, sizeof wide);
        at += sizeof wide;
    }
    in->length = at;
    if (no_base && in->rm == 5)
        base = (uint64_t)(uintptr_t)p + at;
    in->base = (uint8_t *)(uintptr_t)(base + (uint64_t)(int64_t)wide);
}

/* False where it is none of those that have three bytes of VEX and the second map of opcodes. */
static bool read_instruction(struct instruction *in, const ucontext_t *thread, const uint8_t *p)
{
    if (p[0] != 0xc4 || (p[1] & 31) != 2)
        return false;
    *in = (struct instruction){.prefix = p[2] & 3,
                               .opcode = p[3],
                               .reg = p[4] >> 3 & 7,
                               .rm = p[4] & 7,
                               .other = ~p[2] >> 3 & 7,
                               .in_memory = p[4] >> 6 != 3,
                               .length = 5};
    if (in->in_memory)
        read_address(in, thread, p, (p[1] & 0x40) != 0 ? 0 : 8, (p[1] & 0x20) != 0 ? 0 : 8);
    return true;
}

static void set_up(const uint8_t *shape)
{
    uint32_t i;

    memset(tiles, 0, sizeof tiles);
    for (i = 0; i < 8; i++) {
        tiles[i].row_bytes = (uint32_t)(shape[16 + 2 * i] | shape[17 + 2 * i] << 8);
        tiles[i].n_rows = shape[48 + i];
        RN_CHECK(shape[0] == 1 && tiles[i].row_bytes <= 64 && tiles[i].n_rows <= 16);
    }
}

static void zero(struct tile *tile)
{
    RN_CHECK(tile->n_rows > 0);
    memset(tile->rows, 0, sizeof tile->rows);
}

static void load(struct tile *tile, const uint8_t *from, size_t stride)
{
    uint32_t r;

    zero(tile);
    for (r = 0; r < tile->n_rows; r++)
        memcpy(tile->rows[r], from + r * stride, tile->row_bytes);
}

static void store(const struct tile *tile, uint8_t *to, size_t stride)
{
    uint32_t r;

    RN_CHECK(tile->n_rows > 0);
    for (r = 0; r < tile->n_rows; r++)
        memcpy(to + r * stride, tile->rows[r], tile->row_bytes);
}

static void check_shapes(const struct tile *c, const struct tile *a, const struct tile *b)
{
    RN_CHECK(c->n_rows > 0 && a->n_rows == c->n_rows && b->n_rows == a->row_bytes / 4 && b->row_bytes == c->row_bytes);
}

static int32_t byte_of(uint8_t byte, bool is_signed)
{
    return is_signed ? (int8_t)byte : byte;
}

static void dot_bytes(struct tile *c, const struct tile *a, const struct tile *b, bool a_signed, bool b_signed)
{
    uint32_t m, n, k, i;
    int32_t sum;

    check_shapes(c, a, b);
    for (m = 0; m < c->n_rows; m++)
        for (n = 0; n < c->row_bytes / 4; n++) {
            memcpy(&sum, c->rows[m] + 4 * n, 4);
            for (k = 0; k < b->n_rows; k++)
                for (i = 0; i < 4; i++)
                    sum += byte_of(a->rows[m][4 * k + i], a_signed) * byte_of(b->rows[k][4 * n + i], b_signed);
            memcpy(c->rows[m] + 4 * n, &sum, 4);
        }
}

static float bf16_at(const uint8_t *p)
{
    uint32_t bits = (uint32_t)(p[0] << 16) | (uint32_t)p[1] << 24;
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Numbers at even and at odd places are summed apart; subnormal ones are zero. A product of two is exact. */
static void dot_bf16(struct tile *c, const struct tile *a, const struct tile *b)
{
    const unsigned before = _mm_getcsr();
    uint32_t m, n, k, i;
    float sum[2], all;

    check_shapes(c, a, b);
    _mm_setcsr(0x1f80 | 0x8040);
    for (m = 0; m < c->n_rows; m++)
        for (n = 0; n < c->row_bytes / 4; n++) {
            sum[0] = sum[1] = 0;
            for (k = 0; k < b->n_rows; k++)
                for (i = 0; i < 2; i++)
                    sum[i] += bf16_at(a->rows[m] + 4 * k + 2 * i) * bf16_at(b->rows[k] + 4 * n + 2 * i);
            memcpy(&all, c->rows[m] + 4 * n, 4);
            all += sum[0] + sum[1];
            memcpy(c->rows[m] + 4 * n, &all, 4);
        }
    _mm_setcsr(before);
}

/* False where it is none of the unit's. */
static bool do_it(const struct instruction *in)
{
    enum { NONE, P66, F3, F2 };
    struct tile *tile = &tiles[in->reg];

    if (in->opcode == 0x49 && in->in_memory && in->prefix == NONE)
        set_up(in->base);
    else if (in->opcode == 0x49 && !in->in_memory && in->prefix == NONE)
        memset(tiles, 0, sizeof tiles);
    else if (in->opcode == 0x49 && !in->in_memory && in->prefix == F2)
        zero(tile);
    else if (in->opcode == 0x4b && in->in_memory && (in->prefix == F2 || in->prefix == P66))
        load(tile, in->base, in->stride);
    else if (in->opcode == 0x4b && in->in_memory && in->prefix == F3)
        store(tile, in->base, in->stride);
    else if (in->opcode == 0x5c && in->prefix == F3)
        dot_bf16(tile, &tiles[in->rm], &tiles[in->other]);
    else if (in->opcode == 0x5e)
        dot_bytes(tile, &tiles[in->rm], &tiles[in->other], in->prefix == F2 || in->prefix == F3,
                  in->prefix == F2 || in->prefix == P66);
    else
        return false;
    return true;
}

/* Does the instruction there, and those of the unit right behind it, for a signal costs as much as many of them: how
 * many bytes that were. */
static size_t do_run(const ucontext_t *thread, const uint8_t *at)
{
    struct instruction in;
    size_t n = 0;

    while (read_instruction(&in, thread, at + n) && do_it(&in))
        n += in.length;
    return n;
}

static void on_illegal(int signal_number, siginfo_t *info, void *context)
{
    ucontext_t *thread = context;
    size_t n = do_run(thread, (const uint8_t *)thread->uc_mcontext.gregs[REG_RIP]);

    (void)info;
    if (n == 0)
        signal(signal_number, SIG_DFL); /* comes again, and ends the process */
    thread->uc_mcontext.gregs[REG_RIP] += (greg_t)n;
}

static void take_signal(void)
{
    struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO};

    RN_CHECK(sigaction(SIGILL, &action, NULL) == 0);
}

void emulate_amx(void)
{
    if (rn_level_amx() == NULL)
        rn_emulate_amx = take_signal;
}

#else
void emulate_amx(void)
{
}
#endif

void emulate_amx_for_products(void)
{
    UNLESS_SANITIZED(emulate_amx(), (void)0);
}
