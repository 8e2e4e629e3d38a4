// SPDX-License-Identifier: Apache-2.0
//
// compound.c: the memory of requests that consist of others.
#include <stdlib.h>

#include "back/request/compound.h"

struct back_coll *back_coll_new(int ntypes) {
    struct back_coll *c = calloc(1, sizeof *c + (size_t)ntypes * sizeof(ckpt_vid));
    if (c != NULL) c->inner = VID_REQUEST_NULL;
    return c;
}
