// SPDX-License-Identifier: Apache-2.0
//
// error.c: error codes of the real MPI.
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "back/impl/impl.h"

// The last codes that were not just a class; their numbers go up with the canonical code, so that
// MPI_Error_string finds the real text.  Numbers begin at 1.
enum { CODES = 1024 };
static int codes[CODES];
static unsigned next;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

long back_error_slow(int rc) {
    int class = MPI_ERR_OTHER;
    MPI_Error_class(rc, &class);
    long canon = back_canon_class(class);
    if (rc == class) return canon;
    pthread_mutex_lock(&mutex);
    unsigned i;
    for (i = 0; i < CODES && codes[i] != rc; i++)
        ;
    if (i == CODES) {
        i = next++ % CODES;
        codes[i] = rc;
    }
    pthread_mutex_unlock(&mutex);
    return canon | (long)(i + 1) << 8;
}

// number, text, bytes; an empty text when the number is of an earlier run.
long back_Error_string(const long *a) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    pthread_mutex_lock(&mutex);
    int rc = a[0] >= 1 && a[0] <= CODES ? codes[a[0] - 1] : 0;
    pthread_mutex_unlock(&mutex);
    if (rc != 0) MPI_Error_string(rc, text, &n);
    snprintf((char *)a[1], (size_t)a[2], "%s", text);
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
    if (rc == MPI_ERR_NO_MEM) // our own, or as an MPI would put it for its user
        snprintf(text, sizeof text, "memory is out");
    if (text[0] != 0 || MPI_Error_string(rc, text, &n) == MPI_SUCCESS)
        snprintf(failure + used, sizeof failure - (size_t)used, ": %s", text);
}

const char *back_failure(void *ctx) {
    (void)ctx;
    memcpy(told, failure, sizeof told);
    failure[0] = 0;
    return told;
}
