// SPDX-License-Identifier: Apache-2.0
//
// engine.h: who makes progress. All with the lock held.
#ifndef SOFT_ENGINE_H
#define SOFT_ENGINE_H

#include <stdint.h>

// Reads and writes whatever can be, waiting at most so many milliseconds for it.
void soft_round(int wait);
// The application makes progress by itself for now, so the thread need not.
void soft_asked(void);
// The application is going to wait for an event: the thread must make progress from now on.
void soft_waits(void);

// Something is to be looked at then.
void soft_deadline(uint64_t at);

#endif
