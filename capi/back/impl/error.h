// SPDX-License-Identifier: Apache-2.0
//
// error.h: error codes, and the reasons that libckpt gets when a callback fails.
#ifndef CKPT_BACK_ERROR_H
#define CKPT_BACK_ERROR_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

long back_error_slow(int rc) __attribute__((cold));
static inline long back_error(int rc) {
    return __builtin_expect(rc == MPI_SUCCESS, 1) ? 0 : back_error_slow(rc);
}
// The error of the canonical class canon whose text is ours, and stays where it is.
long back_error_own(long canon, const char *text) __attribute__((cold));
int back_canon_class(int class); // gen/zz_constants.c
int back_real_class(int canon);  // gen/zz_constants.c
#define CANON_ERR(class) CANON_ERRCLASS_ERR_##class

// Whether a collective call that returned rc (canonical) was refused for its arguments before it took part in
// anything.  Such a call does not count as one, on this rank either.
int back_refused(long rc);
// For a collective call that fails before the real MPI has it: back_refused says so of the next rc that it is asked
// about, whatever its class.  Returns rc.
long back_nothing_done(long rc);

// Says why a callback of libckpt fails, for ckpt_runtime_ops.failure.  The text names what was being done;
// MPI's own text for rc is appended unless rc is MPI_SUCCESS.
void back_fail(int rc, const char *format, ...) __attribute__((cold, format(printf, 2, 3)));
const char *back_failure(void *ctx);

// Whether a receive that returned rc took its message: one that failed did if the message was only too long.
static inline int back_took(int rc) {
    return rc == MPI_SUCCESS || (back_error_slow(rc) & 0xff) == CANON_ERR(TRUNCATE);
}

#pragma GCC visibility pop

#endif
