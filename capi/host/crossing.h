// SPDX-License-Identifier: Apache-2.0
//
// crossing.h: from one half into the other: the code of gate.S, and the page of the arena that holds this
// code (program.c).  ckpt/private/gate.h is the part that the upper half knows.
#ifndef CROSSING_H
#define CROSSING_H

#include <stdint.h>
#include <time.h>
#include <ucontext.h>

#include "ckpt/private/gate.h"

struct thread;

// ---- gate.S ------------------------------------------------------------------------------------
extern const char gate_code[], gate_code_end[], gate_commit[], gate_in[], gate_tail[];
long host_upcall(void *fn, const long args[6]);
// Runs the system call unless *attention is set, else returns -EINTR; a handler that finds the
// instruction pointer in [cancel_begin, cancel_end) moves it to cancel_out.
long host_cancelable(volatile uint32_t *attention, long nr, const long args[6]);
extern const char cancel_begin[], cancel_end[], cancel_out[];
_Noreturn void host_resume_gate(struct thread *t, long result);
_Noreturn void host_sigreturn(ucontext_t *frame, uint64_t fs);
_Noreturn void host_enter(uint64_t ip, uint64_t sp);
long host_on_stack(long (*fn)(void *), void *arg, uint64_t sp);
long host_vfork(long flags, void *child_stack, void (*child)(void *), void *arg);
void host_restorer(void);

// ---- clone_child.S: what the child of the lower half's clone begins with (lower_tls.c) ----------
extern const uint8_t child_sets_gs[], child_sets_gs_end[];         // with FSGSBASE
extern const uint8_t child_asks_for_gs[], child_asks_for_gs_end[]; // without

// ---- program.c: the gate page ------------------------------------------------------------------
const char *gate_page_map(void); // NULL, or what is wrong
void gate_page_set_tables(void *tables);
void gate_page_set_clocks(const struct timespec shift[2]);
void gate_page_set_spent(void);
void gate_page_set_functions(long (**fn)(const long *));

#endif
