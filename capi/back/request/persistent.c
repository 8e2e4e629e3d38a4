// SPDX-License-Identifier: Apache-2.0
//
// persistent.c: the memory of persistent requests.
#include <stdlib.h>

#include "back/request/persistent.h"

pthread_mutex_t back_persistent_mutex = PTHREAD_MUTEX_INITIALIZER;

void back_persistent_forget(ckpt_slot *s) {
    if (s->extra == 0) return;
    pthread_mutex_lock(&back_persistent_mutex);
    free((void *)(uintptr_t)s->extra);
    s->extra = 0;
    pthread_mutex_unlock(&back_persistent_mutex);
}
