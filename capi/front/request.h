// SPDX-License-Identifier: Apache-2.0
//
// request.h: arrays of requests (request.c), generalized requests (grequest.c).
#ifndef CKPT_FRONT_REQUEST_H
#define CKPT_FRONT_REQUEST_H

#include "front/core.h"

// The ids of count handles, in small when they fit there, else in memory that front_vids_done frees.
enum { FRONT_SMALL = 64 };
ckpt_vid *front_vids(ckpt_vid *small, int count);
static inline void front_vids_done(ckpt_vid *v, ckpt_vid *small) {
    extern void free(void *);
    if (v != small) free(v);
}

// Says that the functions of the generalized request that this thread started last are Fortran's.
void front_grequest_fortran(void);

#endif
