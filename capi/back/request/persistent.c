// SPDX-License-Identifier: Apache-2.0
//
// persistent.c: the memory of persistent requests.
#include <stdlib.h>

#include "back/impl/lock.h"
#include "back/request/persistent.h"

void back_persistent_forget(ckpt_slot *s) {
    if (s->extra == 0) return;
    back_lock(LOCK_PERSISTENT);
    free((void *)(uintptr_t)s->extra);
    s->extra = 0;
    back_unlock(LOCK_PERSISTENT);
}
