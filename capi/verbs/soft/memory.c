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

// As a kernel's adapter pins memory: for tests, since the memory here is not pinned.
static bool too_much(size_t more) {
    struct rlimit most;
    return soft.heeds_memlock && getrlimit(RLIMIT_MEMLOCK, &most) == 0 &&
           soft.registered + more > most.rlim_cur;
}

static int check_access(int access) {
    // As the kernel says it: who may write from far must be able to write here.
    if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && !(access & IBV_ACCESS_LOCAL_WRITE))
        return EINVAL;
    if (access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_ZERO_BASED)) return EOPNOTSUPP;
    return 0;
}

int soft_register(const void *pd, void *at, size_t length, uint64_t iova, int access,
                  struct soft_key **made) {
    int rc = check_access(access);
    if (rc != 0) return rc;
    if ((uintptr_t)at + length < (uintptr_t)at || iova + length < iova) return EINVAL;
    struct soft_key *key = calloc(1, sizeof *key);
    if (key == NULL) return ENOMEM;
    *key = (struct soft_key){.access = access, .pd = pd, .at = at, .iova = iova, .length = length};
    pthread_mutex_lock(&soft.lock);
    rc = too_much(length) ? ENOMEM : number_for(key);
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
    int rc = flags & IBV_REREG_MR_CHANGE_ACCESS ? check_access(access) : 0;
    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION && (uintptr_t)at + length < (uintptr_t)at) rc = EINVAL;
    if (rc != 0) return rc;
    pthread_mutex_lock(&soft.lock);
    if (flags & IBV_REREG_MR_CHANGE_PD) key->pd = pd;
    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION)
        soft.registered += length - key->length, key->at = at, key->iova = (uintptr_t)at,
                                                 key->length = length;
    if (flags & IBV_REREG_MR_CHANGE_ACCESS) key->access = access;
    pthread_mutex_unlock(&soft.lock);
    return 0;
}

static void unbind(struct soft_key *window) {
    if (window->region != NULL) window->region->windows--;
    window->region = NULL;
}

int soft_unregister(struct soft_key *key) {
    pthread_mutex_lock(&soft.lock);
    bool busy = key->windows > 0;
    if (!busy) {
        soft.keys[place(key->number)] = NULL;
        if (key->window == 0) soft.registered -= key->length;
        unbind(key);
    }
    pthread_mutex_unlock(&soft.lock);
    if (busy) return EBUSY;
    free(key);
    return 0;
}

// ---- windows ----

int soft_window_new(const void *pd, int type, struct soft_key **made) {
    if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return EINVAL;
    struct soft_key *key = calloc(1, sizeof *key);
    if (key == NULL) return ENOMEM;
    key->pd = pd, key->window = type;
    pthread_mutex_lock(&soft.lock);
    int rc = number_for(key);
    pthread_mutex_unlock(&soft.lock);
    if (rc != 0)
        free(key);
    else
        *made = key;
    return rc;
}

static struct soft_key *find(uint32_t number) {
    return place(number) < soft.keys_size ? soft.keys[place(number)] : NULL;
}

// With the lock held. The window has another key from now on; of no length, it is bound to nothing.
enum ibv_wc_status soft_window_bind(const struct ibv_send_wr *wr, const void *pd) {
    const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
    struct soft_key *window = find(wr->bind_mw.mw->rkey);
    if (window == NULL || window->window == 0 || window->pd != pd ||
        place(wr->bind_mw.rkey) != place(window->number) ||
        (window->window == IBV_MW_TYPE_2 && window->region != NULL))
        return IBV_WC_MW_BIND_ERR;
    unbind(window);
    window->number = wr->bind_mw.rkey;
    if (info->length == 0) return IBV_WC_SUCCESS;
    struct soft_key *region = find(info->mr->lkey);
    bool good = region != NULL && region->window == 0 && region->pd == pd &&
                region->access & IBV_ACCESS_MW_BIND && info->addr >= region->iova &&
                info->length <= region->length &&
                info->addr - region->iova <= region->length - info->length &&
                (region->access & IBV_ACCESS_LOCAL_WRITE ||
                 !(info->mw_access_flags & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)));
    if (!good) return IBV_WC_MW_BIND_ERR;
    window->region = region, region->windows++;
    window->iova = info->addr, window->length = info->length, window->access = (int)info->mw_access_flags;
    window->at = region->at + (info->addr - region->iova);
    return IBV_WC_SUCCESS;
}

// With the lock held.
bool soft_window_invalidate(uint32_t number, const void *pd) {
    struct soft_key *window = find(number);
    if (window == NULL || window->window != IBV_MW_TYPE_2 || window->number != number || window->pd != pd ||
        window->region == NULL)
        return false;
    unbind(window);
    return true;
}

void *soft_memory(uint32_t number, const void *pd, uint64_t iova, uint64_t length, int access) {
    if (place(number) >= soft.keys_size) return NULL;
    const struct soft_key *key = soft.keys[place(number)];
    if (key == NULL || key->number != number || key->pd != pd || (key->access & access) != access)
        return NULL;
    // A window is for others, and only while it is bound.
    if (key->window != 0 && (key->region == NULL || !(access & ~IBV_ACCESS_LOCAL_WRITE))) return NULL;
    if (iova < key->iova || length > key->length || iova - key->iova > key->length - length) return NULL;
    return key->at + (iova - key->iova);
}
