// SPDX-License-Identifier: Apache-2.0
//
// mpi_status.h: what a status looks like in each ABI.
//
// A back writes statuses into the application's memory as the application's ABI has them.  What it is
// given for one is a word: the address, and above it the form that is wanted there.  So a back of the
// same MPI lets that MPI write them, any other back knows what to write, also when the call goes on above
// another MPI after a restart, and the front has nothing left to do when the back has returned.
//
// MPI_ERROR is left as it is, but for calls that complete several requests.
#ifndef CKPT_MPI_STATUS_H
#define CKPT_MPI_STATUS_H

#include <stddef.h>
#include <stdint.h>

// The form of no ABI: of libckpt's own statuses, and of those that fronts in images from before the other
// forms ask for.  Special values are canonical ones.
typedef struct ckpt_mpi_status {
    int source, tag;
    int error; // an error code as returned; set by calls that complete several requests
    int cancelled;
    int64_t bytes; // received
} ckpt_mpi_status;

// may_alias: a real MPI has types of its own for the same memory.
struct __attribute__((may_alias)) mpich_status {
    int count_lo, count_hi_and_cancelled;
    int MPI_SOURCE, MPI_TAG, MPI_ERROR;
};

struct __attribute__((may_alias)) openmpi_status {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR;
    int cancelled;
    size_t bytes;
};

// The standard says where the first three are, and leaves five ints to the MPI.
struct __attribute__((may_alias)) abi_status {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR;
    int cancelled, bytes_lo, bytes_hi, unused[2];
};

// Numbers are part of images; that of an ABI is FRONT_ABI.
enum { STATUS_CANON = 0, STATUS_MPICH = 1, STATUS_OPENMPI = 2, STATUS_STD = 3 };
enum { STATUS_FORM_SHIFT = 56 }; // user space has no addresses up there

static inline long status_word(int form, const void *status) {
    return (long)status | (long)form << STATUS_FORM_SHIFT;
}
static inline int status_form(long word) { return (int)((uint64_t)word >> STATUS_FORM_SHIFT); }
static inline void *status_at(long word) { return (void *)(word & ((1l << STATUS_FORM_SHIFT) - 1)); }

// Special values of sources and tags: canonical ones, those of the ABIs.
enum { CANON_ANY_SOURCE = -1, CANON_ANY_TAG = -2, CANON_PROC_NULL = -3 };
enum { MPICH_STATUS_ANY_SOURCE = -2, MPICH_STATUS_ANY_TAG = -1, MPICH_STATUS_PROC_NULL = -1 };
enum { OPENMPI_STATUS_ANY_SOURCE = -1, OPENMPI_STATUS_ANY_TAG = -1, OPENMPI_STATUS_PROC_NULL = -2 };

// ---- MPICH: the count and whether it was cancelled share two ints ----

static inline int64_t mpich_status_bytes(const struct mpich_status *s) {
    // 63 bits of a count, which is never negative.
    return (int64_t)((uint32_t)s->count_hi_and_cancelled >> 1) << 32 | (uint32_t)s->count_lo;
}
static inline int mpich_status_cancelled(const struct mpich_status *s) {
    return s->count_hi_and_cancelled & 1;
}
static inline void mpich_status_set(struct mpich_status *s, int64_t bytes, int cancelled) {
    s->count_lo = (int)bytes;
    s->count_hi_and_cancelled = (int)((uint32_t)(bytes >> 32) << 1 | (cancelled != 0));
}

// ---- the standard ABI: special values are the canonical ones ----

static inline int64_t abi_status_bytes(const struct abi_status *s) {
    return (int64_t)((uint64_t)(uint32_t)s->bytes_hi << 32 | (uint32_t)s->bytes_lo);
}
static inline void abi_status_set(struct abi_status *s, int64_t bytes, int cancelled) {
    s->bytes_lo = (int)(uint32_t)bytes;
    s->bytes_hi = (int)(uint32_t)((uint64_t)bytes >> 32);
    s->cancelled = cancelled != 0;
}

// ---- any form ----

static inline size_t status_size(int form) {
    return form == STATUS_MPICH     ? sizeof(struct mpich_status)
           : form == STATUS_OPENMPI ? sizeof(struct openmpi_status)
           : form == STATUS_STD     ? sizeof(struct abi_status)
                                    : sizeof(ckpt_mpi_status);
}
// The i-th of an array; 0 when there is none.
static inline long status_nth(long word, long i) {
    return word ? word + i * (long)status_size(status_form(word)) : 0;
}

static inline int64_t status_get_bytes(long word) {
    const void *s = status_at(word);
    switch (status_form(word)) {
    case STATUS_MPICH:
        return mpich_status_bytes(s);
    case STATUS_OPENMPI:
        return (int64_t)((const struct openmpi_status *)s)->bytes;
    case STATUS_STD:
        return abi_status_bytes(s);
    default:
        return ((const ckpt_mpi_status *)s)->bytes;
    }
}

static inline void status_set_error(long word, int error) {
    void *s = status_at(word);
    switch (status_form(word)) {
    case STATUS_MPICH:
        ((struct mpich_status *)s)->MPI_ERROR = error;
        break;
    case STATUS_OPENMPI:
        ((struct openmpi_status *)s)->MPI_ERROR = error;
        break;
    case STATUS_STD:
        ((struct abi_status *)s)->MPI_ERROR = error;
        break;
    default:
        ((ckpt_mpi_status *)s)->error = error;
    }
}

// Writes all but MPI_ERROR.
static inline void status_put(long word, const ckpt_mpi_status *c) {
    void *at = status_at(word);
    if (status_form(word) == STATUS_MPICH) {
        struct mpich_status *s = at;
        mpich_status_set(s, c->bytes, c->cancelled);
        s->MPI_SOURCE = c->source == CANON_ANY_SOURCE  ? MPICH_STATUS_ANY_SOURCE
                        : c->source == CANON_PROC_NULL ? MPICH_STATUS_PROC_NULL
                                                       : c->source;
        s->MPI_TAG = c->tag == CANON_ANY_TAG ? MPICH_STATUS_ANY_TAG : c->tag;
    } else if (status_form(word) == STATUS_OPENMPI) {
        struct openmpi_status *s = at;
        s->MPI_SOURCE = c->source == CANON_ANY_SOURCE  ? OPENMPI_STATUS_ANY_SOURCE
                        : c->source == CANON_PROC_NULL ? OPENMPI_STATUS_PROC_NULL
                                                       : c->source;
        s->MPI_TAG = c->tag == CANON_ANY_TAG ? OPENMPI_STATUS_ANY_TAG : c->tag;
        s->cancelled = c->cancelled != 0;
        s->bytes = (size_t)c->bytes;
    } else if (status_form(word) == STATUS_STD) {
        struct abi_status *s = at;
        s->MPI_SOURCE = c->source;
        s->MPI_TAG = c->tag;
        abi_status_set(s, c->bytes, c->cancelled);
    } else {
        *(ckpt_mpi_status *)at = *c;
    }
}

#endif
