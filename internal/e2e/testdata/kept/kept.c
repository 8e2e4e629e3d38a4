// SPDX-License-Identifier: Apache-2.0
//
// kept.c: the program of which an image is kept for each release (scripts/keep-image.sh), so that later ones show that
// they continue it. No library is in it but ld.so, and no instruction but those that each x86-64 has: the image is
// small and goes on on any machine.
//
// It has some of everything that it can have without a library, says "stands", and waits for a byte on its standard
// input. Then it looks at what it has, says so, and ends with status 7.
#include <asm/unistd.h>

static long call(long n, long a, long b, long c, long d) {
    long r;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return r;
}

static long map(long bytes) {
    long r;
    register long r10 __asm__("r10") = 0x22; // private, anonymous
    register long r8 __asm__("r8") = -1;
    register long r9 __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "=a"(r)
                     : "a"((long)__NR_mmap), "D"(0L), "S"(bytes), "d"(3L), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return r;
}

static long length(const char *s) {
    long n = 0;
    while (s[n]) n++;
    return n;
}

static void say(const char *s) { call(__NR_write, 1, (long)s, length(s), 0); }

static void end(int status) {
    for (;;) call(__NR_exit_group, status, 0, 0, 0);
}

static void must(int good, const char *what) {
    if (good) return;
    say("wrong: ");
    say(what);
    say("\n");
    end(1);
}

enum { WORDS = 4096, USR1 = 10, USR2 = 12 };

static void fill(unsigned long *p, unsigned long seed) {
    for (long i = 0; i < WORDS; i++) p[i] = seed = seed * 6364136223846793005u + 1;
}

static int filled(const unsigned long *p, unsigned long seed) {
    for (long i = 0; i < WORDS; i++)
        if (p[i] != (seed = seed * 6364136223846793005u + 1)) return 0;
    return 1;
}

static unsigned long data[WORDS];
static volatile int handled;

static void handler(int sig) { handled = sig; }

__attribute__((naked, used)) static void restorer(void) {
    __asm__("mov %0, %%eax; syscall" ::"i"(__NR_rt_sigreturn));
}

struct action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

__attribute__((used, noreturn)) static void body(void) {
    unsigned long *mapped = (unsigned long *)map(sizeof data), *heap;
    long brk = call(__NR_brk, 0, 0, 0, 0);
    must(call(__NR_brk, brk + (long)sizeof data, 0, 0, 0) == brk + (long)sizeof data, "brk");
    heap = (unsigned long *)brk;
    fill(data, 1);
    fill(mapped, 2);
    fill(heap, 3);

    int ends[2], memory;
    must(call(__NR_pipe2, (long)ends, 0, 0, 0) == 0 &&
             call(__NR_write, ends[1], (long)"under way", 9, 0) == 9,
         "pipe2");
    memory = (int)call(__NR_memfd_create, (long)"kept", 0, 0, 0);
    must(call(__NR_write, memory, (long)"in memory", 9, 0) == 9, "memfd_create");

    struct action action = {handler, 0x04000000, restorer, 0}; // SA_RESTORER
    must(call(__NR_rt_sigaction, USR1, (long)&action, 0, 8) == 0 &&
             call(__NR_rt_sigaction, USR2, (long)&action, 0, 8) == 0,
         "rt_sigaction");
    unsigned long blocked = 1ul << (USR2 - 1);
    must(call(__NR_rt_sigprocmask, 0, (long)&blocked, 0, 8) == 0, "rt_sigprocmask");
    long pid = call(__NR_getpid, 0, 0, 0, 0);
    call(__NR_kill, pid, USR2, 0, 0); // it stays pending

    unsigned mxcsr = 0x3f80, control = 0; // rounds down
    unsigned long vector = 0x0123456789abcdef, seen;
    __asm__ volatile("ldmxcsr %0; movq %1, %%xmm9" ::"m"(mxcsr), "r"(vector));

    say("stands\n");
    char c;
    while (call(__NR_read, 0, (long)&c, 1, 0) != 1) {
        struct {
            long seconds, nanoseconds;
        } moment = {0, 10000000};
        call(__NR_nanosleep, (long)&moment, 0, 0, 0);
    }

    __asm__ volatile("stmxcsr %0; movq %%xmm9, %1" : "=m"(control), "=r"(seen));
    must((control & 0x6000) == 0x2000 && seen == vector, "registers");
    must(filled(data, 1), "data");
    must(filled(mapped, 2), "mapped memory");
    must(filled(heap, 3), "heap");
    char text[16];
    must(call(__NR_read, ends[0], (long)text, 9, 0) == 9 && text[0] == 'u' && text[8] == 'y', "pipe");
    must(call(__NR_lseek, memory, 0, 1, 0) == 9 && call(__NR_pread64, memory, (long)text, 9, 0) == 9 &&
             text[0] == 'i' && text[8] == 'y',
         "memfd");
    must(call(__NR_getpid, 0, 0, 0, 0) == pid, "its number");
    must(!handled, "a blocked signal");
    must(call(__NR_rt_sigprocmask, 1, (long)&blocked, 0, 8) == 0 && handled == USR2, "a pending signal");
    call(__NR_kill, pid, USR1, 0, 0);
    must(handled == USR1, "a handler");
    say("all is there\n");
    end(7);
    __builtin_unreachable();
}

__asm__(".globl _start\n_start: xor %ebp, %ebp\n and $-16, %rsp\n call body\n");
