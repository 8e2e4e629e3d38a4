// SPDX-License-Identifier: Apache-2.0
//
// wait.h: what draining needs of the calls that wait.
#ifndef CKPT_BACK_WAIT_H
#define CKPT_BACK_WAIT_H

#include <pthread.h>

#include "back/impl/impl.h"

#pragma GCC visibility push(hidden)
extern struct back_held *held_sends; // of held threads, under held_mutex
extern pthread_mutex_t held_mutex;
#pragma GCC visibility pop

#endif
