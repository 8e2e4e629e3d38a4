// SPDX-License-Identifier: Apache-2.0
//
// state.c: which states requests have, and which flags may stand together.
#include "back/request/request.h"

enum request_state request_state(const ckpt_slot *s) {
    int a = s->a;
    if (a & (REQUEST_COLL | REQUEST_PAIR)) return REQ_COMPOUND;
    if (a & REQUEST_AWAIT) return REQ_AWAITED;
    if (a & REQUEST_DONE) return REQ_DONE;
    if (a & REQUEST_DEFERRED) return REQ_DEFERRED;
    if (a & REQUEST_GENERALIZED) return REQ_GENERALIZED;
    return is_inactive(s) ? REQ_INACTIVE : REQ_STARTED;
}

enum { ALL = -1 };

// A flag; the flags that it needs; the flags that exclude it.
static const struct {
    int flag, with, without;
} rules[] = {
    {REQUEST_SEND, 0, REQUEST_RECV},
    {REQUEST_PERSISTENT, 0, REQUEST_IDUP | REQUEST_USER_OP | REQUEST_MATCHED | REQUEST_ORDERED},
    {REQUEST_IDUP, 0, REQUEST_KIND | REQUEST_DONE | REQUEST_ORDERED},
    {REQUEST_SYNC, REQUEST_SEND, REQUEST_ORPHAN},
    {REQUEST_USER_OP, 0, REQUEST_KIND},
    {REQUEST_MATCHED, REQUEST_RECV, 0},
    {REQUEST_GENERALIZED, 0,
     ALL & ~(REQUEST_GENERALIZED | REQUEST_CANCELLED | REQUEST_ENDED | REQUEST_FREED)},
    {REQUEST_COLL, REQUEST_PERSISTENT, ALL & ~(REQUEST_COLL | REQUEST_PERSISTENT | REQUEST_ACTIVE)},
    {REQUEST_PARTITIONED, REQUEST_PERSISTENT, REQUEST_KIND},
    {REQUEST_PAIR, 0, ALL & ~REQUEST_PAIR},
    {REQUEST_ACTIVE, REQUEST_PERSISTENT, 0},
    {REQUEST_DEFERRED, 0, ALL & ~REQUEST_DEFERRED},
    {REQUEST_ENDED, REQUEST_GENERALIZED, REQUEST_FREED},
    {REQUEST_FREED, REQUEST_GENERALIZED, 0},
    {REQUEST_AWAIT, REQUEST_DONE | REQUEST_SYNC, 0},
    {REQUEST_ORDERED, 0, REQUEST_KIND},
};

int request_sound(const ckpt_slot *s) {
    int a = s->a;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (a & rules[i].flag && ((a & rules[i].with) != rules[i].with || a & rules[i].without)) return 0;
    int persistent = a & REQUEST_PERSISTENT, counted = a & REQUEST_KIND;
    if (a & REQUEST_ORPHAN && !counted) return 0;
    if (persistent && a & REQUEST_DONE && !(a & REQUEST_ACTIVE)) return 0;
    int needs = a & (REQUEST_COLL | REQUEST_PAIR | REQUEST_DEFERRED | REQUEST_GENERALIZED | REQUEST_IDUP);
    return s->extra != 0 || (!needs && !(persistent && counted));
}
