/* The switch between fibers: on x86-64 a few instructions that keep what a call keeps; elsewhere ucontext, which asks
 * the kernel for the signal mask each time. The sanitizers are told of each switch. */
#include "gpu/kernels/emulate/fiber.h"

#include <stdint.h>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__)
void __sanitizer_start_switch_fiber(void **fake, const void *stack, size_t bytes);
void __sanitizer_finish_switch_fiber(void *fake, const void **stack, size_t *bytes);
#endif
#if defined(__SANITIZE_THREAD__)
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
#endif

/* What the first switch to a fiber calls. */
struct start {
    void (*entry)(void *user);
    void *user;
    struct rn_fiber *fiber;
};

#if defined(__SANITIZE_ADDRESS__)
static _Thread_local struct rn_fiber *left; /* by the switch that is under way */
#endif

/* On the new stack, behind each switch. */
static void arrive(struct rn_fiber *self)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(self->fake, left->stack == NULL ? &left->stack : NULL,
                                    left->stack == NULL ? &left->bytes : NULL);
#endif
    (void)self;
}

static void begin(struct start *start)
{
    struct start own = *start;

    arrive(own.fiber);
    own.entry(own.user);
    RN_CHECK(0);
}

#if defined(__x86_64__)

void rn_fiber_swap(void **from, void *to);
void rn_fiber_first(void);
__asm__(".text\n"
        ".globl rn_fiber_swap\n.hidden rn_fiber_swap\n.type rn_fiber_swap, @function\n"
        "rn_fiber_swap:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size rn_fiber_swap, .-rn_fiber_swap\n"
        ".globl rn_fiber_first\n.hidden rn_fiber_first\n.type rn_fiber_first, @function\n"
        "rn_fiber_first:\n"
        "  movq %r12, %rdi\n  xorl %ebp, %ebp\n  callq *%r13\n  ud2\n"
        ".size rn_fiber_first, .-rn_fiber_first\n");

static void prepare(struct rn_fiber *fiber, void *stack, size_t bytes, struct start *start)
{
    uint64_t *top = (uint64_t *)(((uintptr_t)stack + bytes) & ~(uintptr_t)15);

    *--top = (uint64_t)(uintptr_t)rn_fiber_first;
    *--top = 0;                          /* rbp */
    *--top = 0;                          /* rbx */
    *--top = (uint64_t)(uintptr_t)start; /* r12 */
    *--top = (uint64_t)(uintptr_t)begin; /* r13 */
    *--top = 0;                          /* r14 */
    *--top = 0;                          /* r15 */
    fiber->top = top;
}

static void swap(struct rn_fiber *from, struct rn_fiber *to)
{
    rn_fiber_swap(&from->top, to->top);
}

static void forget(struct rn_fiber *fiber)
{
    (void)fiber;
}

static size_t context_bytes(void)
{
    return 0;
}

#else

#include <ucontext.h>

static void enter(unsigned high, unsigned low)
{
    begin((struct start *)(uintptr_t)((uint64_t)high << 32 | low));
}

static size_t context_bytes(void)
{
    return (sizeof(ucontext_t) + 63) / 64 * 64;
}

/* The context lies on the fiber's stack, above where it begins. */
static void prepare(struct rn_fiber *fiber, void *stack, size_t bytes, struct start *start)
{
    ucontext_t *context = (ucontext_t *)((uintptr_t)stack + bytes);

    RN_CHECK(getcontext(context) == 0);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = bytes;
    context->uc_link = NULL;
    makecontext(context, (void (*)(void))enter, 2, (unsigned)((uint64_t)(uintptr_t)start >> 32),
                (unsigned)(uintptr_t)start);
    fiber->context = context;
}

static void swap(struct rn_fiber *from, struct rn_fiber *to)
{
    ucontext_t own;

    if (from->context == NULL)
        from->context = &own;
    RN_CHECK(swapcontext(from->context, to->context) == 0);
    if (from->context == &own)
        from->context = NULL;
}

static void forget(struct rn_fiber *fiber)
{
    fiber->context = NULL;
}

#endif

void rn_fiber_init_thread(struct rn_fiber *fiber)
{
    *fiber = (struct rn_fiber){0};
#if defined(__SANITIZE_THREAD__)
    fiber->tsan = __tsan_get_current_fiber();
#endif
}

void rn_fiber_init(struct rn_fiber *fiber, void *stack, size_t bytes, void (*entry)(void *user), void *user)
{
    size_t above = sizeof(struct start) + 64 + context_bytes();
    struct start *start = (struct start *)(((uintptr_t)stack + bytes - sizeof *start) & ~(uintptr_t)63);

    RN_ASSERT(bytes > 2 * above);
    *start = (struct start){entry, user, fiber};
    *fiber = (struct rn_fiber){.stack = stack, .bytes = bytes};
#if defined(__SANITIZE_THREAD__)
    fiber->tsan = __tsan_create_fiber(0);
#endif
    prepare(fiber, stack, ((uintptr_t)start - context_bytes() - (uintptr_t)stack) & ~(size_t)63, start);
}

void rn_fiber_fini(struct rn_fiber *fiber)
{
#if defined(__SANITIZE_THREAD__)
    __tsan_destroy_fiber(fiber->tsan);
#endif
    forget(fiber);
}

void rn_fiber_switch(struct rn_fiber *from, struct rn_fiber *to, int last)
{
#if defined(__SANITIZE_ADDRESS__)
    left = from;
    __sanitizer_start_switch_fiber(last ? NULL : &from->fake, to->stack, to->bytes);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
    (void)last;
    swap(from, to);
    arrive(from);
}
