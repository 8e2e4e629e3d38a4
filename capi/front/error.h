// SPDX-License-Identifier: Apache-2.0
//
// error.h: errors, and the handlers that are called for them (error.c).
#ifndef CKPT_FRONT_ERROR_H
#define CKPT_FRONT_ERROR_H

#include "front/core.h"

// Gives the canonical error rc of fn to the handler of the object and returns the ABI's code.
int front_error(int sort, ckpt_vid vid, unsigned fn, long rc) __attribute__((cold));
// The same with a code of the ABI, as a function of the application returned it.
int front_error_code(int sort, ckpt_vid vid, unsigned fn, int code) __attribute__((cold));
// Raises the error that a count of fn is above 2147483647 and there is no other way to make the call.
int front_too_large(int sort, ckpt_vid vid, unsigned fn) __attribute__((cold));
int front_code(long rc);
// As front_error, for a call that left the id now in *request: the handler is that of the communicator, window
// or file that the request belongs to.
int front_request_error(MPI_Request *request, ckpt_vid now, unsigned fn, long rc) __attribute__((cold));
// An error that the front itself found.
#define FRONT_ERR(fn, class) front_error(FRONT_COMM, VID_COMM_WORLD, fn, CANON_ERRCLASS_ERR_##class)
// A call without an address for its result is an error of the object.
#define FRONT_NEEDS(sort, vid, fn, given)                                                             \
    do {                                                                                              \
        if (__builtin_expect(!(given), 0)) return front_error(sort, vid, fn, CANON_ERRCLASS_ERR_ARG); \
    } while (0)
int front_lastusedcode(void);
// Makes a handler; its function gets Fortran handles when fortran is set.
MPI_Errhandler front_errhandler_new(void *function, int sort, int fortran);
void front_errhandler_hold(ckpt_vid errhandler);
void front_errhandler_release(ckpt_vid errhandler);

// The canonical class of an error code that the application returned.
int front_canon(int code);

// Calls a handler for an error of an object whose handle is an int (a session).
void front_errhandler_raise(ckpt_vid errhandler, long handle, unsigned fn, int code);
// Other languages: calls the function of a handler with the address of the object's handle. With again their bindings call
// MPI_Comm_call_errhandler for each error that a function returns, too.
typedef void front_error_call(int sort, void *handle, int *code, void *function);
void front_errhandler_call(MPI_Errhandler errhandler, front_error_call *call, int again);
// What a function returns that real MPIs have and that is not there (docs/limits.md): it has no handler's sort, and is named.
int front_not_here(const char *name) __attribute__((cold));
typedef void front_error_throw(int sort, int *code);
extern front_error_throw *front_throw;

#endif
