// SPDX-License-Identifier: Apache-2.0
//
// lower_tls.h: a segment register for the lower half's thread-local storage.
#ifndef CKPT_LOWER_TLS_H
#define CKPT_LOWER_TLS_H

#include <stdbool.h>

// First of all, while there is one thread.  Afterwards code of the lower half addresses its thread-local
// storage by GS, if that can be done; lower_tls_why says why not, NULL when it is.
void lower_tls_begin(void);
const char *lower_tls_why(void);

// GS is the thread pointer of the lower half's thread; else it is the address behind struct thread's first
// word, and nothing but FS addresses thread-local storage.
extern bool lower_gs;
// No code of the lower half reads its thread-local storage by FS: nobody has to change that at a crossing.
extern bool lower_quick;

// The record of the upper thread that this one carries: what self() is where lower_gs holds.
struct thread;
extern __thread struct thread *lower_me;

#endif
