// SPDX-License-Identifier: Apache-2.0
//
// error.c: error codes of the real MPI.
#include <stdarg.h>
#include <stdio.h>

#include "back/impl/error.h"
#include "back/impl/lock.h"

// The last error codes that were more than a class.  The front gets the number of such a code with the
// canonical class, so that MPI_Error_string finds the real text.  Numbers begin at 1.
enum { CODES = 1024 };
static int codes[CODES];
static const char *texts[CODES]; // not NULL: an error of ours, with this text
static unsigned next;

// The number of a code, or of a text when that is not NULL.
static unsigned number_of(int code, const char *text) {
    back_lock(LOCK_ERRORS);
    unsigned i;
    for (i = 0; i < CODES && (codes[i] != code || texts[i] != text); i++)
        ;
    if (i == CODES) {
        i = next++ % CODES;
        codes[i] = code;
        texts[i] = text;
    }
    back_unlock(LOCK_ERRORS);
    return i + 1;
}

long back_error_slow(int rc) {
    int class = MPI_ERR_OTHER;
    MPI_Error_class(rc, &class);
    long canon = back_canon_class(class);
    if (rc == class) return canon;
    return canon | (long)number_of(rc, NULL) << 8;
}

long back_error_own(long canon, const char *text) { return canon | (long)number_of(0, text) << 8; }

// number, text, bytes.  The text is empty when the number comes from an earlier run.
long back_Error_string(const long *a) {
    ARGS(Error_string) p = (const void *)a;
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    back_lock(LOCK_ERRORS);
    int i = p->number >= 1 && p->number <= CODES ? (int)p->number - 1 : -1, rc = i < 0 ? 0 : codes[i];
    if (i >= 0 && texts[i] != NULL) snprintf(text, sizeof text, "%s", texts[i]);
    back_unlock(LOCK_ERRORS);
    if (rc != 0) MPI_Error_string(rc, text, &n);
    snprintf(p->string, (size_t)p->room, "%s", text);
    return 0;
}

// ---- callbacks of libckpt ----

// Callbacks run on one thread at a time.
static char failure[1000], told[sizeof failure];

void back_fail(int rc, const char *format, ...) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    va_list args;
    va_start(args, format);
    int used = vsnprintf(failure, sizeof failure, format, args);
    va_end(args);
    if (used < 0 || (size_t)used >= sizeof failure || rc == MPI_SUCCESS) return;
    if (rc == MPI_ERR_NO_MEM) // our own code too; an MPI's text would speak to the caller of a function
        snprintf(text, sizeof text, "out of memory");
    if (text[0] != 0 || MPI_Error_string(rc, text, &n) == MPI_SUCCESS)
        snprintf(failure + used, sizeof failure - (size_t)used, ": %s", text);
}

const char *back_failure(void *ctx) {
    (void)ctx;
    memcpy(told, failure, sizeof told);
    failure[0] = 0;
    return told;
}

static __thread int nothing_done; // by the call of this thread that fails now

long back_nothing_done(long rc) {
    nothing_done = 1;
    return rc;
}

// MPIs give these classes for what they check before they send or receive anything.  A failure on the way has
// another class: the message was too long, memory or disk ran out, a process is lost.
int back_refused(long rc) {
    int nothing = nothing_done;
    nothing_done = 0;
    if (nothing) return 1;
    switch (rc & 0xff) {
    case CANON_ERR(BUFFER):
    case CANON_ERR(COUNT):
    case CANON_ERR(TYPE):
    case CANON_ERR(TAG):
    case CANON_ERR(COMM):
    case CANON_ERR(RANK):
    case CANON_ERR(REQUEST):
    case CANON_ERR(ROOT):
    case CANON_ERR(GROUP):
    case CANON_ERR(OP):
    case CANON_ERR(TOPOLOGY):
    case CANON_ERR(DIMS):
    case CANON_ERR(ARG):
    case CANON_ERR(AMODE):
    case CANON_ERR(ASSERT):
    case CANON_ERR(BASE):
    case CANON_ERR(DISP):
    case CANON_ERR(FILE):
    case CANON_ERR(INFO):
    case CANON_ERR(INFO_KEY):
    case CANON_ERR(INFO_VALUE):
    case CANON_ERR(KEYVAL):
    case CANON_ERR(READ_ONLY):
    case CANON_ERR(RMA_SYNC):
    case CANON_ERR(SIZE):
    case CANON_ERR(UNSUPPORTED_DATAREP):
    case CANON_ERR(UNSUPPORTED_OPERATION):
    case CANON_ERR(WIN):
        return 1;
    default:
        return 0;
    }
}
