// SPDX-License-Identifier: Apache-2.0
//
// status.h: statuses, in the forms of the real MPI and of the application.
#ifndef CKPT_BACK_STATUS_H
#define CKPT_BACK_STATUS_H

#include "back/impl/special.h"

#pragma GCC visibility push(hidden)

// The form of the real MPI's statuses.  In the two MPIs that we know the fields are public; any other MPI is
// asked through its functions.
#if defined(OPEN_MPI)
enum { STATUS_REAL = STATUS_OPENMPI };
typedef struct openmpi_status real_status;
#define STATUS_BYTES(s) ((int64_t)(s)->_ucount)
#define STATUS_CANCELLED(s) ((s)->_cancelled)
_Static_assert(offsetof(MPI_Status, _cancelled) == offsetof(real_status, cancelled) &&
                   offsetof(MPI_Status, _ucount) == offsetof(real_status, bytes),
               "the status of Open MPI");
#elif defined(MPICH_NAME)
enum { STATUS_REAL = STATUS_MPICH };
typedef struct mpich_status real_status;
#define STATUS_BYTES(s) mpich_status_bytes((const real_status *)(s))
#define STATUS_CANCELLED(s) mpich_status_cancelled((const real_status *)(s))
_Static_assert(offsetof(MPI_Status, count_lo) == offsetof(real_status, count_lo) &&
                   offsetof(MPI_Status, count_hi_and_cancelled) ==
                       offsetof(real_status, count_hi_and_cancelled),
               "the status of MPICH");
#else
enum { STATUS_REAL = -1 };
typedef MPI_Status real_status;
static inline int64_t back_status_bytes(const MPI_Status *s) {
    MPI_Count n;
    return MPI_Get_elements_x(s, MPI_BYTE, &n) == MPI_SUCCESS && n >= 0 ? n : 0;
}
static inline int back_status_cancelled(const MPI_Status *s) {
    int flag = 0;
    MPI_Test_cancelled(s, &flag);
    return flag;
}
#define STATUS_BYTES(s) back_status_bytes(s)
#define STATUS_CANCELLED(s) back_status_cancelled(s)
#endif
_Static_assert(sizeof(MPI_Status) == sizeof(real_status) &&
                   offsetof(MPI_Status, MPI_SOURCE) == offsetof(real_status, MPI_SOURCE) &&
                   offsetof(MPI_Status, MPI_TAG) == offsetof(real_status, MPI_TAG) &&
                   offsetof(MPI_Status, MPI_ERROR) == offsetof(real_status, MPI_ERROR),
               "the real MPI's status");

static inline void canon_status(const MPI_Status *s, ckpt_mpi_status *c) {
    c->source = canon_rank(s->MPI_SOURCE);
    c->tag = s->MPI_TAG == MPI_ANY_TAG ? CANON_ANY_TAG : s->MPI_TAG;
    c->error = 0;
    c->cancelled = STATUS_CANCELLED(s);
    c->bytes = STATUS_BYTES(s);
}

// The status of a call that completed nothing; of a message from nobody.
static const ckpt_mpi_status canon_empty = {CANON_ANY_SOURCE, CANON_ANY_TAG, 0, 0, 0};
static const ckpt_mpi_status canon_proc_null = {CANON_PROC_NULL, CANON_ANY_TAG, 0, 0, 0};

// Gives the application a status; out is the word that the front gave for the status, which may be 0.
static inline void give_canon(const ckpt_mpi_status *c, long out) {
    if (out != 0) status_put(out, c);
}
void back_status_give_other(const MPI_Status *s, long out); // in a form that is not the real MPI's
static inline void give_status(const MPI_Status *s, long out) {
    if (status_form(out) != STATUS_REAL) {
        if (out != 0) back_status_give_other(s, out);
        return;
    }
    MPI_Status *to = status_at(out);
    int error = to->MPI_ERROR;
    *to = *s;
    to->MPI_ERROR = error;
}
// MPI 4.1 wants MPI_SUCCESS in an empty status; before, MPIs left MPI_ERROR alone.
#if defined(OPEN_MPI)
enum { EMPTY_HAS_ERROR = OMPI_MAJOR_VERSION >= 6 };
#elif defined(MPICH_NUMVERSION)
enum { EMPTY_HAS_ERROR = MPICH_NUMVERSION >= 40200000 };
#else
enum { EMPTY_HAS_ERROR = 1 };
#endif
static inline void empty_status(long out) {
    give_canon(&canon_empty, out);
    if (out != 0 && (status_form(out) == STATUS_STD || (EMPTY_HAS_ERROR && status_form(out) == STATUS_REAL)))
        status_set_error(out, 0);
}
// MPICH's non-blocking receives say MPI_ANY_SOURCE here.
static inline void proc_null_status(long out) { give_canon(&canon_proc_null, out); }

// Where the real MPI writes a status: the place that the application gave, if that has the real MPI's form,
// else own.  MPI may leave parts of the status as they are.  While several threads may be here at once own is
// used: programs that do not read a status give all threads the same one, and counting must not read from
// there.
static inline int status_direct(long out) { return status_form(out) == STATUS_REAL && !back.shared; }
static inline MPI_Status *status_for(long out, MPI_Status *own) {
    if (__builtin_expect(status_direct(out), 1)) return status_at(out);
    if (out != 0) *own = (MPI_Status){.MPI_SOURCE = MPI_ANY_SOURCE, .MPI_TAG = MPI_ANY_TAG};
    return own;
}

#pragma GCC visibility pop

#endif
