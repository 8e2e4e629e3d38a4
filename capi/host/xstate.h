// SPDX-License-Identifier: Apache-2.0
//
// xstate.h: the extended state of threads (XSAVE), which differs between processors.
#ifndef XSTATE_H
#define XSTATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define XSTATE_MOST 16384 // bytes of it, on any processor

// Reads what this processor has.  Returns the bytes of all of it, with what the kernel adds in a signal frame.
uint32_t xstate_open(void);

// Extended state as it is in a signal frame, of bytes, of whatever processor, becomes this one's at to, which has
// room for xstate_open bytes.  Components that this processor has not are left out; those that the other one had not
// are as in a new process.  Returns the bytes written; -EINVAL: it is damaged; -ENOTSUP: no known processor lays it
// out so.
long xstate_move(void *to, const void *from, uint32_t bytes);

// The same, from a signal frame of the program into one that the kernel has made here, each as long as it says.  Of one that
// makes no sense x87 and SSE are taken, as the kernel does.
void xstate_into_frame(void *to, const void *from);

// The components that a signal frame's state has, bits as in XCR0.
uint64_t xstate_components(const void *from, uint32_t bytes);

// Whether tiles (AMX) are in use, which cannot be given back to a thread of a new process.
bool xstate_tiles(const void *from, uint32_t bytes);

// Restart: the program was started where a processor had just these components, and its C library has room for no
// more where it keeps registers (_dl_runtime_resolve).  From now on what the lower half did with more is forgotten
// before upper code goes on (forget.S).  components are bits of XCR0.
void xstate_started_with(uint64_t components);

// ---- forget.S -----------------------------------------------------------------------------------
extern uint64_t forget_components;              // 0: none
extern long (**forget_functions)(const long *); // those of the lower half
extern const uint8_t
    forget_calls[]; // FORGET_LIMIT pieces of code, FORGET_BYTES apart: each calls one of these
#define FORGET_LIMIT 1024
#define FORGET_BYTES 16

#endif
