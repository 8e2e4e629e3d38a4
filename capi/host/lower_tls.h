// SPDX-License-Identifier: Apache-2.0
//
// lower_tls.h: a segment register for the lower half's thread-local storage.
#ifndef CKPT_LOWER_TLS_H
#define CKPT_LOWER_TLS_H

#include <stdbool.h>

// Called first of all, while there is one thread.  Afterwards code of the lower half addresses its
// thread-local storage by GS, if that is possible; else lower_tls_why gives the reason.
void lower_tls_begin(void);
const char *lower_tls_why(void);

// True: GS is the thread pointer of the lower half's thread.  False: GS is the address behind struct thread's
// first word, and thread-local storage is addressed by FS only.
extern bool lower_gs;
// No code of the lower half reads its thread-local storage by FS, so a crossing need not change FS.
extern bool lower_quick;

// The record of the upper thread that this lower thread carries; self() returns it where lower_gs is true.
struct thread;
extern __thread struct thread *lower_me;

#endif
