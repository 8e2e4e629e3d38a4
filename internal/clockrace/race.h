// SPDX-License-Identifier: Apache-2.0
//
// race.h: a thread that makes collective calls on a communicator of the tables.
#ifndef CLOCKRACE_RACE_H
#define CLOCKRACE_RACE_H

#include <stdint.h>

int race_start(void *tables, uint32_t comm); // 0: no memory, or no thread
uint64_t race_gate(void);                    // the call that waits; 0: none
uint64_t race_fast(void);                    // the last call that did not ask; while one waits only
void race_go_on(void);                       // lets the waiting call go on
void race_end(void);

#endif
