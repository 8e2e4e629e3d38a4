/* SPDX-License-Identifier: Apache-2.0
 *
 * litmus.c: prints the layout of ckpt/clock.h, or races the hot path with a
 * helper.
 *
 *   litmus layout
 *   litmus race ROUNDS FENCE     FENCE: membarrier, or none (which must be seen
 * to fail)
 *
 * The race: an application thread makes calls without end.  The helper sets the
 * pending word, fences, and reads CALL; then it waits until the application
 * stands at the gate.  A call that took the fast path and is not in what the
 * helper read is a miss.  Prints the misses, and how many calls took the fast
 * path.
 */
#define _GNU_SOURCE
#include "ckpt/clock.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
  _Alignas(128) uint32_t pending;
  _Alignas(128) ckpt_clock clock;
  _Alignas(128) uint64_t gate; /* call that waits at the gate; 0: none */
  _Alignas(128) uint64_t fast; /* last call on the fast path */
  _Alignas(128) uint32_t stop;
} s;

static void *application(void *unused) {
  (void)unused;
  while (!__atomic_load_n(&s.stop, __ATOMIC_RELAXED)) {
    if (ckpt_coll_begin(&s.clock, &s.pending)) {
      __atomic_store_n(&s.gate, s.clock.call, __ATOMIC_RELEASE);
      while (__atomic_load_n(&s.gate, __ATOMIC_ACQUIRE) != 0)
        if (__atomic_load_n(&s.stop, __ATOMIC_RELAXED))
          return NULL;
    } else {
      s.fast = s.clock.call;
    }
    ckpt_coll_end(&s.clock, &s.pending);
  }
  return NULL;
}

static int membarrier(int command) {
  return (int)syscall(SYS_membarrier, command, 0, 0);
}

static int race(long rounds, int fence) {
  long misses = 0;
  pthread_t thread;
  if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0) {
    perror("membarrier");
    return 1;
  }
  if (pthread_create(&thread, NULL, application, NULL) != 0)
    return 1;
  for (long i = 0; i < rounds; i++) {
    uint64_t before = __atomic_load_n(&s.clock.call, __ATOMIC_RELAXED);
    while (__atomic_load_n(&s.clock.call, __ATOMIC_RELAXED) < before + 10)
      if (i % 64 == 0)
        sched_yield();
    __atomic_store_n(&s.pending, 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (fence && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) {
      perror("membarrier");
      return 1;
    }
    uint64_t snap = __atomic_load_n(&s.clock.call, __ATOMIC_RELAXED);
    while (__atomic_load_n(&s.gate, __ATOMIC_ACQUIRE) == 0)
      ;
    misses += s.fast > snap;
    __atomic_store_n(&s.pending, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&s.gate, 0, __ATOMIC_RELEASE);
  }
  __atomic_store_n(&s.stop, 1, __ATOMIC_RELAXED);
  pthread_join(thread, NULL);
  printf("%ld %llu\n", misses, (unsigned long long)s.fast);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "layout") == 0) {
#define P(x) printf("%zu ", (size_t)(x))
    P(sizeof(ckpt_clock)), P(offsetof(ckpt_clock, call)),
        P(offsetof(ckpt_clock, ret));
    P(offsetof(ckpt_clock, lim)), P(offsetof(ckpt_clock, open));
    P(sizeof(ckpt_clocks)), P(offsetof(ckpt_clocks, magic)),
        P(offsetof(ckpt_clocks, version));
    P(offsetof(ckpt_clocks, bytes)), P(offsetof(ckpt_clocks, pages));
    P(CKPT_CLOCK_PAGE), P(CKPT_CLOCKS_VERSION), P(CKPT_CLOCKS_MAGIC);
    return 0;
  }
  if (argc == 4 && strcmp(argv[1], "race") == 0)
    return race(atol(argv[2]), strcmp(argv[3], "membarrier") == 0);
  fprintf(stderr, "litmus: layout, or race ROUNDS membarrier|none\n");
  return 2;
}
