// SPDX-License-Identifier: Apache-2.0
//
// memory.c: registered memory and its keys.
//
// A key is 24 bits of place and 8 bits that change when the place is used again, so that an old key is refused.
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>

#include "verbs/soft/impl.h"

enum { KEYS_MOST = 1 << 20 };

static uint32_t place(uint32_t number) { return number >> 8; }

static bool room(void) {
    uint32_t size = soft.keys_size == 0 ? 1024 : 2 * soft.keys_size;
    if (size > KEYS_MOST) return false;
    struct soft_key **more = realloc(soft.keys, size * sizeof *more);
    if (more == NULL) return false;
    for (uint32_t i = soft.keys_size; i < size; i++) more[i] = NULL;
    soft.keys = more, soft.keys_size = size;
    return true;
}

// Places are used in turn, so that one comes back as late as possible. Place 0 is not used: a key of 0 is
// what programs say when they have none.
static int number_for(struct soft_key *key) {
    for (uint32_t tries = 0;; tries++) {
        if (tries >= soft.keys_size && !room()) return ENOMEM;
        uint32_t at = soft.keys_last = (soft.keys_last + 1) % soft.keys_size;
        if (at == 0 || soft.keys[at] != NULL) continue;
        uint8_t tag = 0;
        if (getrandom(&tag, sizeof tag, 0) != sizeof tag) tag = (uint8_t)tries;
        soft.keys[at] = key;
        key->number = at << 8 | tag;
        return 0;
    }
}

int soft_register(const void *pd, void *at, size_t length, uint64_t iova, int access,
                  struct soft_key **made) {
    // As the kernel says it: who may write from far must be able to write here.
    if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && !(access & IBV_ACCESS_LOCAL_WRITE))
        return EINVAL;
    if (access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED)) return EOPNOTSUPP;
    if ((uintptr_t)at + length < (uintptr_t)at || iova + length < iova) return EINVAL;
    struct soft_key *key = calloc(1, sizeof *key);
    if (key == NULL) return ENOMEM;
    *key = (struct soft_key){.access = access, .pd = pd, .at = at, .iova = iova, .length = length};
    pthread_mutex_lock(&soft.lock);
    struct rlimit l;
    bool many =
        soft.heeds_memlock && getrlimit(RLIMIT_MEMLOCK, &l) == 0 && soft.registered + length > l.rlim_cur;
    int rc = many ? ENOMEM : number_for(key);
    if (rc == 0) soft.registered += length;
    pthread_mutex_unlock(&soft.lock);
    if (rc != 0)
        free(key);
    else
        *made = key;
    return rc;
}

uint32_t soft_key_number(const struct soft_key *key) { return key->number; }

int soft_rekey(struct soft_key *key, int flags, const void *pd, void *at, size_t length, int access) {
    pthread_mutex_lock(&soft.lock);
    if (flags & IBV_REREG_MR_CHANGE_PD) key->pd = pd;
    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION)
        soft.registered += length - key->length, key->at = at, key->iova = (uintptr_t)at,
                                                 key->length = length;
    if (flags & IBV_REREG_MR_CHANGE_ACCESS) key->access = access;
    pthread_mutex_unlock(&soft.lock);
    return 0;
}

void soft_unregister(struct soft_key *key) {
    pthread_mutex_lock(&soft.lock);
    soft.keys[place(key->number)] = NULL;
    soft.registered -= key->length;
    pthread_mutex_unlock(&soft.lock);
    free(key);
}

void *soft_memory(uint32_t number, const void *pd, uint64_t iova, uint64_t length, int access) {
    if (place(number) >= soft.keys_size) return NULL;
    const struct soft_key *key = soft.keys[place(number)];
    if (key == NULL || key->number != number || key->pd != pd || (key->access & access) != access)
        return NULL;
    if (iova < key->iova || length > key->length || iova - key->iova > key->length - length) return NULL;
    return key->at + (iova - key->iova);
}
