// SPDX-License-Identifier: Apache-2.0
//
// limits.h: limits of resources, as the program has them (limits.c).
#ifndef LIMITS_H
#define LIMITS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

struct call;
struct thread;

// How much of the address space the lower half takes.  Go's runtime reserves most of this and uses little of
// it; the rest is stacks and the MPI's libraries.
#define OWN_ADDRESSES (2560ull << 20)

// The limits of memory, RLIMIT_AS and RLIMIT_DATA, and of descriptors.
struct limits {
    struct rlimit of[3];
};

void limits_begin(void); // before the lower half takes memory
// Whether the program may have so many bytes more of addresses, and of memory that is private and writable.  Under
// host.lock.
bool limits_allow(uint64_t more, uint64_t more_data);
int limits_exchange(int resource, uint64_t limit[2], const uint64_t *set); // host_ops.limit
struct limits limits_keep(void);
void limits_put(const struct limits *kept); // after a vfork, whose child shares this memory
// Another program has the limits that it would have without ckptrun.  Returns the kernel's.
struct limits limits_before_exec(struct thread *t, bool again);
void limits_exec_failed(const struct limits *was);

#endif
