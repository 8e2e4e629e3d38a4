// SPDX-License-Identifier: Apache-2.0
//
// front.h: the application's MPI.
//
// A front has the SONAME, symbols and constants of one MPI ABI (mpich_abi.h, openmpi_abi.h; one of
// them is chosen with -DFRONT_ABI=...), and runs in the upper half.  It answers what it can from
// the tables and from its own memory, and sends the rest through the gate.  It includes no mpi.h.
//
// Everything here is upper-half memory: an image holds it as it is, and after a restart nothing of
// it has to be made again.
#ifndef CKPT_FRONT_H
#define CKPT_FRONT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "ckpt/vid.h"
#include "canon/mpi_canon.h"

// Types that all ABIs share.
typedef long MPI_Aint, MPI_Count;
typedef long MPI_Offset;
typedef int MPI_Fint;
enum { MPI_SUCCESS = 0, MPI_UNDEFINED = -32766 };
enum { MPI_IDENT = 0, MPI_CONGRUENT = 1, MPI_SIMILAR = 2, MPI_UNEQUAL = 3 };
enum { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE };

#if FRONT_ABI == 1
#include "front/abi/mpich_abi.h"
#elif FRONT_ABI == 2
#include "front/abi/openmpi_abi.h"
#else
#error "FRONT_ABI: 1 for MPICH, 2 for Open MPI"
#endif

// The word of a status for the back, which writes it in the application's memory (mpi_status.h).
static inline long out_status(const MPI_Status *s) { return is_status(s) ? status_word(FRONT_ABI, s) : 0; }

typedef void(MPI_User_function)(void *, void *, int *, MPI_Datatype *);
typedef void(MPI_Comm_errhandler_function)(MPI_Comm *, int *, ...);
typedef void(MPI_Win_errhandler_function)(MPI_Win *, int *, ...);
typedef void(MPI_File_errhandler_function)(MPI_File *, int *, ...);
typedef int(MPI_Comm_copy_attr_function)(MPI_Comm, int, void *, void *, void *, int *);
typedef int(MPI_Comm_delete_attr_function)(MPI_Comm, int, void *, void *);
typedef int(MPI_Type_copy_attr_function)(MPI_Datatype, int, void *, void *, void *, int *);
typedef int(MPI_Type_delete_attr_function)(MPI_Datatype, int, void *, void *);
typedef int(MPI_Win_copy_attr_function)(MPI_Win, int, void *, void *, void *, int *);
typedef int(MPI_Win_delete_attr_function)(MPI_Win, int, void *, void *);

#include "front/gen/zz_pmpi.h"

// Declares an MPI function: PMPI_name is what follows, MPI_name a weak name of the same, so that a
// tool can put itself before it.
#define FRONT(result, name, params)                                                  \
    __attribute__((visibility("default"))) result PMPI_##name params;                \
    extern __attribute__((visibility("default"), weak,                               \
                          alias("PMPI_" #name))) __typeof__(PMPI_##name) MPI_##name; \
    result PMPI_##name params

// Another two names of it: Open MPI has persistent collectives as an extension.
#if FRONT_ABI == 2
#define FRONT_EXTENSION(name)                                                          \
    extern __attribute__((visibility("default"), weak,                                 \
                          alias("PMPI_" #name))) __typeof__(PMPI_##name) PMPIX_##name, \
        MPIX_##name;
#else
#define FRONT_EXTENSION(name)
#endif

// What an error belongs to, and what a handler is for.
enum { FRONT_COMM, FRONT_TYPE, FRONT_WIN, FRONT_FILE, FRONT_SORTS };

// ---- core.c: calls, and what the front keeps beside the tables ----

enum { FRONT_BEFORE, FRONT_RUNNING, FRONT_AFTER };
extern int front_state;

// ---- init.c ----

extern int front_sessions_only; // MPI_Init was not called, but MPI_Session_init was
// Starts the MPI below; ends the process when that fails.
void front_begin(int required);

// Says that fn was called outside MPI_Init and MPI_Finalize, and ends the process.
__attribute__((noreturn)) void front_not_running(unsigned fn);

// "MPI_Send"
const char *front_name(unsigned fn);

// A call that is allowed at any time.
long front_call_again(unsigned fn, const void *args) __attribute__((cold));
static inline long front_call_always(unsigned fn, const void *args) {
    long rc = CKPT_GATE->gate(fn, args);
    if (__builtin_expect(rc != 0, 0) && rc == CKPT_GATE_RETRY) rc = front_call_again(fn, args);
    return rc;
}

static inline long front_call(unsigned fn, const void *args) {
    if (__builtin_expect(front_state != FRONT_RUNNING, 0)) front_not_running(fn);
    return front_call_always(fn, args);
}

static inline const ckpt_slot *front_slot(unsigned fn, ckpt_kind kind, ckpt_vid vid) {
    if (__builtin_expect(front_state != FRONT_RUNNING, 0)) front_not_running(fn);
    return ckpt_vid_slot(CKPT_GATE->tables, kind, vid);
}

static inline int front_is_null(ckpt_kind kind, const ckpt_slot *slot) {
    return slot == CKPT_GATE->tables->pages[kind][0];
}

// What the front keeps of a communicator, datatype, window or file.
struct front_side {
    ckpt_vid errhandler;
    struct front_attr *attrs;    // newest first
    char *name;                  // NULL: none was set
    const char *info;            // hints, as in mpi_canon.h; NULL: none
    struct front_window *window; // windows: what their predefined attributes say
    struct front_group *group;   // communicators: their group, once it was asked for
    struct front_contents *made; // datatypes that were made with large counts: how
};

// The record of an object, made when it is not there.  Never fails: memory exhaustion ends the
// process, as MPI's own would.
struct front_side *front_side(int sort, ckpt_vid vid);
// The record if there is one: what was never given any has none.
struct front_side *front_side_known(int sort, ckpt_vid vid);
// Frees the record of an object that is gone (attributes have been deleted before).
void front_side_drop(int sort, ckpt_vid vid);

// Objects that live in the front alone, by virtual id: groups, infos, error handlers, keyvals.
ckpt_vid front_object_new(ckpt_kind kind, void *object);
void *front_object(ckpt_kind kind, ckpt_vid vid); // NULL: no such object
void front_object_drop(ckpt_kind kind, ckpt_vid vid);

void *front_alloc(size_t bytes); // zeroed; never NULL
char *front_strdup(const char *s, size_t max);
void front_lock(void);
void front_unlock(void);

// ---- error.c ----

// Gives the canonical error rc of fn to the handler of the object and returns the ABI's code.
int front_error(int sort, ckpt_vid vid, unsigned fn, long rc) __attribute__((cold));
// The same with a code of the ABI, as a function of the application's gave it.
int front_error_code(int sort, ckpt_vid vid, unsigned fn, int code) __attribute__((cold));
// A count of fn is above 2147483647, and it cannot be done otherwise.
int front_too_large(int sort, ckpt_vid vid, unsigned fn) __attribute__((cold));
int front_code(long rc);
// The same for a call that left now in *request: the handler is that of the communicator, window or
// file that the request belongs to.
int front_request_error(MPI_Request *request, ckpt_vid now, unsigned fn, long rc) __attribute__((cold));
// An error that the front itself found.
#define FRONT_ERR(fn, class) front_error(FRONT_COMM, VID_COMM_WORLD, fn, CANON_ERRCLASS_ERR_##class)
// A call that was given no address for what it gives back is an error of the object.
#define FRONT_NEEDS(sort, vid, fn, given)                                                             \
    do {                                                                                              \
        if (__builtin_expect(!(given), 0)) return front_error(sort, vid, fn, CANON_ERRCLASS_ERR_ARG); \
    } while (0)
int front_lastusedcode(void);
// The handler gets Fortran handles when fortran is set.
MPI_Errhandler front_errhandler_new(void *function, int sort, int fortran);
void front_errhandler_hold(ckpt_vid errhandler);
void front_errhandler_release(ckpt_vid errhandler);

// Our number of the class of an error code that the application returned.
int front_canon(int code);

// Hands an error to a handler of something whose handle is an int (a session).
void front_errhandler_raise(ckpt_vid errhandler, int handle, unsigned fn, int code);
// C++: calls function, a handler's, with the address of the object's handle.
typedef void front_error_call(int sort, void *handle, int *code, void *function);
void front_errhandler_call(MPI_Errhandler errhandler, front_error_call *call);
typedef void front_error_throw(int sort, int *code);
extern front_error_throw *front_throw;

// ---- attr.c ----

// Copies attributes (with their copy functions) to a duplicate; the ABI's code of the first
// failure, which no error handler has been given yet.
int front_attrs_copy(int sort, ckpt_vid from, ckpt_vid to);
// Deletes all attributes for fn, newest first; the ABI's code of the first failure, which the object's
// error handler has been given.
int front_attrs_delete(unsigned fn, int sort, ckpt_vid vid);

// What Fortran does with attributes.  The numbers are MPICH's, whose Fortran library uses them.
enum { FRONT_ATTR_POINTER = 0, FRONT_ATTR_AINT = 1, FRONT_ATTR_FINT = 3 };
// Calls a function of Fortran for an attribute; handle is the Fortran one.
typedef int front_copy_proxy(void *fn, int handle, int keyval, void *extra, int form, void *value,
                             void **copy, int *flag);
typedef int front_delete_proxy(void *fn, int handle, int keyval, int form, void *value, void *extra);
void front_keyval_proxy(int keyval, front_copy_proxy *copy, front_delete_proxy *delete);
int front_attr_set(int sort, ckpt_vid object, int keyval, long value, int form);
int front_attr_get(int sort, ckpt_vid object, int keyval, long *value, int *flag);

// ---- coll.c ----

// An operation of the application; call knows the language of function, and what extra is.
struct front_op;
typedef void front_op_call(const struct front_op *o, void *in, void *inout, int *len, MPI_Datatype type);
struct front_op {
    front_op_call *call;
    void *function, *extra;
    struct front_op *next; // among those that are freed later
};
int front_op_new(front_op_call *call, void *function, int commute, unsigned fn, MPI_Op *op);
struct front_op *front_op(MPI_Op op); // NULL of a predefined one
// How many blocks a collective call moves that has a count for each peer, or for each neighbour.
int front_blocks(MPI_Comm comm, int neighbors, int *out, int *in);

// ---- grequest.c ----

// The functions of the generalized request that this thread started last are Fortran's.
void front_grequest_fortran(void);

// ---- large_type.c ----

void front_contents_release(struct front_contents *c);

// ---- window.c ----

// A predefined attribute of a window; 0 when keyval is none.
int front_win_attr(ckpt_vid win, int keyval, void *value);

// ---- group.c, info.c ----

// The group that fn (object, size out, members out) tells of.
int front_group_of(int sort, unsigned fn, ckpt_vid object, MPI_Group *group);

const ckpt_mpi_group *in_group(MPI_Group g);
// A group of no members yet, with room for size.  front_group_new takes it and gives it a handle;
// front_group_discard is for one that got none.
ckpt_mpi_group *front_group_alloc(int size);
MPI_Group front_group_new(ckpt_mpi_group *g);
void front_group_discard(ckpt_mpi_group *g);
// The communicator that kept a group is gone; g may be NULL.
void front_group_let_go(struct front_group *g);
const char *in_info(MPI_Info info);
size_t front_info_bytes(const char *content);
const char *front_info_value(const char *content, const char *key); // NULL: no such key
MPI_Info front_info_new(const char *content);
extern ckpt_vid front_info_env;         // the object that MPI_INFO_ENV stands for
void front_info_environment(int level); // environment.c: makes it

// Makes it the value of key; the key and the value are usable.
void front_info_set(MPI_Info info, const char *key, const char *value);
void front_info_drop(MPI_Info info);

// ---- hints.c ----

// Keeps the hints that a communicator or window was made with; NULL: none were given.
void front_hints_made(int sort, ckpt_vid vid, const char *given);

// ---- comm.c ----

// Completes the front's part of a new communicator.
MPI_Comm front_comm_made(ckpt_vid parent, ckpt_vid made);

// ---- request.c ----

// Ids of count handles: in small when they fit, else allocated (front_vids_done frees).
enum { FRONT_SMALL = 64 };
ckpt_vid *front_vids(ckpt_vid *small, int count);
static inline void front_vids_done(ckpt_vid *v, ckpt_vid *small) {
    extern void free(void *);
    if (v != small) free(v);
}

#endif
