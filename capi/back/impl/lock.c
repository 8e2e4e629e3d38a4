// SPDX-License-Identifier: Apache-2.0
//
// lock.c: the mutexes of a back.
#include "back/impl/lock.h"

struct back_mutex back_locks[LOCKS] = {[0 ... LOCKS - 1] = {PTHREAD_MUTEX_INITIALIZER}};

#ifdef BACK_CHECKS
__thread unsigned back_locks_held;
#endif
