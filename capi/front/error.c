// SPDX-License-Identifier: Apache-2.0
//
// error.c: error codes, classes, texts and handlers.
//
// The real MPI below always returns errors (the back sees to that).  What happens to an error is decided
// here, so that this is the same above every MPI and is saved with the application.
//
// A code that the application sees has a class of its ABI in the low 8 bits and a number in the 22 bits
// above.  The number is 0; or the back's number of the real MPI's code; or, with the highest of the 22
// bits set, the function whose count is too large.  Classes and codes that the application added have bit
// 30 set and are indices into added.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/front.h"

enum { TOO_LARGE = 1 << 21, ADDED = 1 << 30 };

// ---- classes ----

static const int abi_class[256] = {
#define X(name, canon, abi) [canon] = abi,
    ABI_ERRCLASSES(X)
#undef X
};

static int canon_class(int class) {
    static const unsigned char canon[1024] = {
#define X(name, canon, abi) [abi] = canon,
        ABI_ERRCLASSES(X)
#undef X
    };
    return class >= 0 && class < 1024 ? canon[class] : 0;
}

// The class in a code that the application did not add.
static int class_part(int code) { return ABI_T_CLASS(code) ? code : code & 0xff; }

int front_code(long rc) {
    int class = abi_class[rc & 0xff];
    if (class == 0 && rc != 0) class = abi_class[CANON_ERRCLASS_ERR_OTHER];
    return (int)(class | (rc & ~0xffl));
}

int front_canon(int code) {
    int class = code & ADDED ? 0 : canon_class(class_part(code));
    return code == MPI_SUCCESS ? 0 : class ? class : CANON_ERRCLASS_ERR_OTHER;
}

static const char *class_text(int canon) {
    static const char *const texts[256] = {
        [0] = "no error",
        [CANON_ERRCLASS_ERR_BUFFER] = "invalid buffer pointer",
        [CANON_ERRCLASS_ERR_COUNT] = "invalid count",
        [CANON_ERRCLASS_ERR_TYPE] = "invalid datatype",
        [CANON_ERRCLASS_ERR_TAG] = "invalid tag",
        [CANON_ERRCLASS_ERR_COMM] = "invalid communicator",
        [CANON_ERRCLASS_ERR_RANK] = "invalid rank",
        [CANON_ERRCLASS_ERR_REQUEST] = "invalid request",
        [CANON_ERRCLASS_ERR_ROOT] = "invalid root",
        [CANON_ERRCLASS_ERR_GROUP] = "invalid group",
        [CANON_ERRCLASS_ERR_OP] = "invalid reduction operation",
        [CANON_ERRCLASS_ERR_TOPOLOGY] = "invalid topology",
        [CANON_ERRCLASS_ERR_DIMS] = "invalid dimensions",
        [CANON_ERRCLASS_ERR_ARG] = "invalid argument",
        [CANON_ERRCLASS_ERR_TRUNCATE] = "message longer than the receive buffer",
        [CANON_ERRCLASS_ERR_IN_STATUS] = "the error code is in the status",
        [CANON_ERRCLASS_ERR_PENDING] = "the request is pending",
        [CANON_ERRCLASS_ERR_KEYVAL] = "invalid keyval",
        [CANON_ERRCLASS_ERR_INFO] = "invalid info",
        [CANON_ERRCLASS_ERR_INFO_KEY] = "invalid info key",
        [CANON_ERRCLASS_ERR_INFO_VALUE] = "invalid info value",
        [CANON_ERRCLASS_ERR_INFO_NOKEY] = "no such info key",
        [CANON_ERRCLASS_ERR_NO_MEM] = "out of memory",
        [CANON_ERRCLASS_ERR_INTERN] = "internal error of the MPI library",
        [CANON_ERRCLASS_ERR_UNSUPPORTED_OPERATION] = "operation not supported",
        [CANON_ERRCLASS_ERR_WIN] = "invalid window",
        [CANON_ERRCLASS_ERR_FILE] = "invalid file",
    };
    static const char *const names[256] = {
#define X(name, number) [number] = "MPI_" #name,
        CANON_ERRCLASS_LIST(X)
#undef X
    };
    canon &= 0xff;
    return texts[canon] ? texts[canon] : names[canon] ? names[canon] : "unknown error";
}

// ---- classes and codes of the application ----

static struct {
    int class;
    char *text;
} * added;
static int nadded;

static int add(int class) {
    front_lock();
    void *grown = realloc(added, (nadded + 1) * sizeof *added);
    if (grown == NULL) {
        front_unlock();
        return -1;
    }
    added = grown;
    int code = ADDED | nadded;
    added[nadded].class = class ? class : code;
    added[nadded].text = NULL;
    nadded++;
    front_unlock();
    return code;
}

int front_lastusedcode(void) { return nadded ? (ADDED | (nadded - 1)) : 0x3fffffff; }

static int is_added(int code) { return (code & ADDED) && (code & ~ADDED) < nadded; }

FRONT(int, Add_error_class, (int *errorclass)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_ADD_ERROR_CLASS, errorclass != NULL);
    int code = add(0);
    if (code < 0) return FRONT_ERR(CKPT_FN_MPI_ADD_ERROR_CLASS, NO_MEM);
    *errorclass = code;
    return MPI_SUCCESS;
}

FRONT(int, Add_error_code, (int errorclass, int *errorcode)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_ADD_ERROR_CODE, errorcode != NULL);
    int code = add(errorclass);
    if (code < 0) return FRONT_ERR(CKPT_FN_MPI_ADD_ERROR_CODE, NO_MEM);
    *errorcode = code;
    return MPI_SUCCESS;
}

FRONT(int, Add_error_string, (int errorcode, const char *string)) {
    if (!is_added(errorcode)) return FRONT_ERR(CKPT_FN_MPI_ADD_ERROR_STRING, ARG);
    char *text = front_strdup(string, MPI_MAX_ERROR_STRING - 1);
    front_lock();
    free(added[errorcode & ~ADDED].text);
    added[errorcode & ~ADDED].text = text;
    front_unlock();
    return MPI_SUCCESS;
}

static int removed(int code, unsigned fn) {
    if (!is_added(code)) return FRONT_ERR(fn, ARG);
    front_lock();
    free(added[code & ~ADDED].text);
    added[code & ~ADDED].text = NULL;
    front_unlock();
    return MPI_SUCCESS;
}

// The numbers of removed ones are not given out again.
FRONT(int, Remove_error_class, (int errorclass)) {
    return removed(errorclass, CKPT_FN_MPI_REMOVE_ERROR_CLASS);
}

FRONT(int, Remove_error_code, (int errorcode)) { return removed(errorcode, CKPT_FN_MPI_REMOVE_ERROR_CODE); }

FRONT(int, Remove_error_string, (int errorcode)) {
    return removed(errorcode, CKPT_FN_MPI_REMOVE_ERROR_STRING);
}

FRONT(int, Error_class, (int errorcode, int *errorclass)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_ERROR_CLASS, errorclass != NULL);
    *errorclass = is_added(errorcode) ? added[errorcode & ~ADDED].class : class_part(errorcode);
    return MPI_SUCCESS;
}

// The text of a code of the application's ABI.
static void text_of(int code, char text[MPI_MAX_ERROR_STRING]) {
    int class = canon_class(class_part(code)), number = ABI_T_CLASS(code) ? 0 : code >> 8;
    text[0] = 0;
    if (is_added(code)) {
        const char *t = added[code & ~ADDED].text;
        snprintf(text, MPI_MAX_ERROR_STRING, "%s", t ? t : "");
        return;
    }
    if (number & TOO_LARGE) {
        snprintf(text, MPI_MAX_ERROR_STRING,
                 "a count of %s is above 2147483647, which libckpt does not do for this function",
                 front_name(CKPT_FN_MPI + (number & ~TOO_LARGE)));
        return;
    }
    if (number != 0 && front_state == FRONT_RUNNING) {
        const struct Error_string_words a = {.number = number, .string = text, .room = MPI_MAX_ERROR_STRING};
        if (front_call(CKPT_FN_MPI_ERROR_STRING, &a) == 0 && text[0] != 0) return;
    }
    snprintf(text, MPI_MAX_ERROR_STRING, "%s", class_text(class));
}

FRONT(int, Error_string, (int errorcode, char *string, int *resultlen)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_ERROR_STRING, string != NULL);
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_ERROR_STRING, resultlen != NULL);
    char text[MPI_MAX_ERROR_STRING];
    text_of(errorcode, text);
    *resultlen = (int)strlen(strcpy(string, text));
    return MPI_SUCCESS;
}

// ---- handlers ----

struct handler {
    void (*function)(void *, int *, ...);
    front_error_call *call; // of bindings, which know how to call function; else NULL
    int again;              // C++: they call it for each error that a function returns, too
    int sort, fortran;
    int refs; // the application's handle, and every object that has it
};

void front_errhandler_hold(ckpt_vid v) {
    struct handler *h = front_object(CKPT_KIND_ERRHANDLER, v);
    if (h != NULL) __atomic_fetch_add(&h->refs, 1, __ATOMIC_RELAXED);
}

void front_errhandler_release(ckpt_vid v) {
    struct handler *h = front_object(CKPT_KIND_ERRHANDLER, v);
    if (h != NULL && __atomic_sub_fetch(&h->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        front_object_drop(CKPT_KIND_ERRHANDLER, v);
        free(h);
    }
}

void front_errhandler_call(MPI_Errhandler errhandler, front_error_call *call, int again) {
    struct handler *h = front_object(CKPT_KIND_ERRHANDLER, in_errh(errhandler));
    if (h == NULL) return;
    h->call = call;
    h->again = again;
}

// What raises the exception of C++ for the handler that says so; set by the bindings.
front_error_throw *front_throw;

// MPICH's C++ bindings call the handler for every error that a function returns.  MPICH itself does not
// return an error for which the handler of C++ was called.  Our functions do, since they look at each other's
// results.  This is the code of such an error: the call that the bindings then make does nothing; 0: none.
static _Thread_local int told;

static int was_told(int code) {
    int before = told;
    told = 0;
    return FRONT_THROW_RETURNS && code != 0 && code == before;
}

static void call_handler(struct handler *h, int sort, ckpt_vid vid, int *code) {
    if (h->call != NULL) {
        MPI_Win w = out_win(vid);
        MPI_File f = out_file(vid);
        MPI_Comm c = out_comm(vid);
        void *handle = sort == FRONT_WIN ? (void *)&w : sort == FRONT_FILE ? (void *)&f : &c;
        h->call(sort, handle, code, (void *)h->function);
        if (h->again) told = *code;
        return;
    }
    if (h->fortran) {
        MPI_Fint f = sort == FRONT_WIN    ? PMPI_Win_c2f(out_win(vid))
                     : sort == FRONT_FILE ? PMPI_File_c2f(out_file(vid))
                                          : PMPI_Comm_c2f(out_comm(vid));
        h->function(&f, code, NULL);
        return;
    }
    switch (sort) {
    case FRONT_WIN: {
        MPI_Win w = out_win(vid);
        h->function(&w, code, NULL);
        break;
    }
    case FRONT_FILE: {
        MPI_File f = out_file(vid);
        h->function(&f, code, NULL);
        break;
    }
    default: {
        MPI_Comm c = out_comm(vid);
        h->function(&c, code, NULL);
    }
    }
}

__attribute__((noreturn)) static void fatal(unsigned fn, int code) {
    char text[MPI_MAX_ERROR_STRING];
    text_of(code, text);
    fprintf(stderr, "Fatal error in %s: %s.\n", front_name(fn), text);
    fflush(NULL);
    if (front_state == FRONT_RUNNING) {
        const struct Abort_words a = {.comm = VID_COMM_WORLD, .errorcode = code & 0xff};
        front_call(CKPT_FN_MPI_ABORT, &a);
    }
    _Exit(code & 0xff);
}

// Calls the handler of an object for an error.
static int raise(int sort, ckpt_vid vid, unsigned fn, int code) {
    // An object that does not exist has no handler, so that of MPI_COMM_WORLD is called.  MPI_FILE_NULL has one.
    if (sort != FRONT_FILE && front_state == FRONT_RUNNING &&
        front_is_null(CKPT_VID_KIND(vid), ckpt_vid_slot(CKPT_GATE->tables, CKPT_VID_KIND(vid), vid)))
        sort = FRONT_COMM, vid = VID_COMM_WORLD;
    ckpt_vid v = front_side(sort, vid)->errhandler;
    if (CKPT_VID_INDEX(v) == ERRH_NONE) {
        sort = FRONT_COMM, vid = VID_COMM_WORLD;
        v = front_side(sort, vid)->errhandler;
    }
    struct handler *h = front_object(CKPT_KIND_ERRHANDLER, v);
    if (h != NULL)
        call_handler(h, sort, vid, &code);
    else if (CKPT_VID_INDEX(v) == ERRH_THROW && front_throw != NULL)
        front_throw(sort, &code);
    else if (CKPT_VID_INDEX(v) == ERRH_THROW && FRONT_THROW_RETURNS)
        return code; // the bindings raise it
    else if (CKPT_VID_INDEX(v) != ERRH_RETURN)
        fatal(fn, code);
    return code;
}

// MPI_Xxx_call_errhandler.  No call of the bindings follows to this one, so nobody was told of an error.
static int call_told(int sort, ckpt_vid vid, unsigned fn, int code) {
    if (was_told(code)) return MPI_SUCCESS;
    raise(sort, vid, fn, code);
    told = 0;
    return MPI_SUCCESS;
}

void front_errhandler_raise(ckpt_vid errhandler, long handle, unsigned fn, int code) {
    struct handler *h = front_object(CKPT_KIND_ERRHANDLER, errhandler);
    if (h != NULL && h->call != NULL)
        h->call(h->sort, &handle, &code, (void *)h->function);
    else if (h != NULL)
        h->function(&handle, &code, NULL);
    else if (CKPT_VID_INDEX(errhandler) != ERRH_RETURN)
        fatal(fn, code);
}

int front_error(int sort, ckpt_vid vid, unsigned fn, long rc) { return raise(sort, vid, fn, front_code(rc)); }

int front_not_here(const char *name) {
    fprintf(stderr, "ckptrun: %s is not there under ckptrun: it returns an error\n", name);
    return front_code(CANON_ERRCLASS_ERR_UNSUPPORTED_OPERATION);
}

int front_error_code(int sort, ckpt_vid vid, unsigned fn, int code) { return raise(sort, vid, fn, code); }

int front_too_large(int sort, ckpt_vid vid, unsigned fn) {
    if (front_state != FRONT_RUNNING) front_not_running(fn);
    long number = TOO_LARGE | (long)(fn - CKPT_FN_MPI);
    return front_error(sort, vid, fn, CANON_ERRCLASS_ERR_COUNT | number << 8);
}

MPI_Errhandler front_errhandler_new(void *function, int sort, int fortran) {
    struct handler *h = front_alloc(sizeof *h);
    *h = (struct handler){(void (*)(void *, int *, ...))function, NULL, 0, sort, fortran, 1};
    return out_errh(front_object_new(CKPT_KIND_ERRHANDLER, h));
}

static int set_handler(int sort, ckpt_vid vid, MPI_Errhandler errhandler, unsigned fn) {
    ckpt_vid v = in_errh(errhandler);
    if (CKPT_VID_INDEX(v) == 0 ||
        (CKPT_VID_INDEX(v) >= CKPT_VID_PREDEFINED && !front_object(CKPT_KIND_ERRHANDLER, v)))
        return front_error(sort, vid, fn, CANON_ERRCLASS_ERR_ARG);
    struct front_side *s = front_side(sort, vid);
    front_errhandler_hold(v);
    front_errhandler_release(s->errhandler);
    s->errhandler = v;
    return MPI_SUCCESS;
}

static MPI_Errhandler get_handler(int sort, ckpt_vid vid) {
    ckpt_vid v = front_side(sort, vid)->errhandler;
    front_errhandler_hold(v);
    return out_errh(CKPT_VID_INDEX(v) == ERRH_NONE ? CKPT_VID(CKPT_KIND_ERRHANDLER, ERRH_FATAL) : v);
}

FRONT(int, Comm_create_errhandler, (MPI_Comm_errhandler_function * function, MPI_Errhandler *errhandler)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_COMM_CREATE_ERRHANDLER, errhandler != NULL);
    *errhandler = front_errhandler_new((void *)function, FRONT_COMM, 0);
    return MPI_SUCCESS;
}

FRONT(int, Errhandler_create, (MPI_Comm_errhandler_function * function, MPI_Errhandler *errhandler)) {
    return PMPI_Comm_create_errhandler(function, errhandler);
}

FRONT(int, Win_create_errhandler, (MPI_Win_errhandler_function * function, MPI_Errhandler *errhandler)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_WIN_CREATE_ERRHANDLER, errhandler != NULL);
    *errhandler = front_errhandler_new((void *)function, FRONT_WIN, 0);
    return MPI_SUCCESS;
}

FRONT(int, File_create_errhandler, (MPI_File_errhandler_function * function, MPI_Errhandler *errhandler)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_FILE_CREATE_ERRHANDLER, errhandler != NULL);
    *errhandler = front_errhandler_new((void *)function, FRONT_FILE, 0);
    return MPI_SUCCESS;
}

// Generated wrappers have checked the object; the functions here may be called with a wrong one.
static int live(ckpt_kind kind, ckpt_vid vid, unsigned fn) {
    return !front_is_null(kind, front_slot(fn, kind, vid));
}

FRONT(int, Comm_set_errhandler, (MPI_Comm comm, MPI_Errhandler errhandler)) {
    ckpt_vid v = in_comm(comm);
    if (!live(CKPT_KIND_COMM, v, CKPT_FN_MPI_COMM_SET_ERRHANDLER))
        return FRONT_ERR(CKPT_FN_MPI_COMM_SET_ERRHANDLER, COMM);
    return set_handler(FRONT_COMM, v, errhandler, CKPT_FN_MPI_COMM_SET_ERRHANDLER);
}

FRONT(int, Errhandler_set, (MPI_Comm comm, MPI_Errhandler errhandler)) {
    return PMPI_Comm_set_errhandler(comm, errhandler);
}

FRONT(int, Comm_get_errhandler, (MPI_Comm comm, MPI_Errhandler *errhandler)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_GET_ERRHANDLER, errhandler != NULL);
    ckpt_vid v = in_comm(comm);
    if (!live(CKPT_KIND_COMM, v, CKPT_FN_MPI_COMM_GET_ERRHANDLER))
        return FRONT_ERR(CKPT_FN_MPI_COMM_GET_ERRHANDLER, COMM);
    *errhandler = get_handler(FRONT_COMM, v);
    return MPI_SUCCESS;
}

FRONT(int, Errhandler_get, (MPI_Comm comm, MPI_Errhandler *errhandler)) {
    return PMPI_Comm_get_errhandler(comm, errhandler);
}

FRONT(int, Comm_call_errhandler, (MPI_Comm comm, int errorcode)) {
    ckpt_vid v = in_comm(comm);
    if (!live(CKPT_KIND_COMM, v, CKPT_FN_MPI_COMM_CALL_ERRHANDLER))
        return FRONT_ERR(CKPT_FN_MPI_COMM_CALL_ERRHANDLER, COMM);
    return call_told(FRONT_COMM, v, CKPT_FN_MPI_COMM_CALL_ERRHANDLER, errorcode);
}

FRONT(int, Win_set_errhandler, (MPI_Win win, MPI_Errhandler errhandler)) {
    ckpt_vid v = in_win(win);
    if (!live(CKPT_KIND_WIN, v, CKPT_FN_MPI_WIN_SET_ERRHANDLER))
        return FRONT_ERR(CKPT_FN_MPI_WIN_SET_ERRHANDLER, WIN);
    return set_handler(FRONT_WIN, v, errhandler, CKPT_FN_MPI_WIN_SET_ERRHANDLER);
}

FRONT(int, Win_get_errhandler, (MPI_Win win, MPI_Errhandler *errhandler)) {
    FRONT_NEEDS(FRONT_WIN, in_win(win), CKPT_FN_MPI_WIN_GET_ERRHANDLER, errhandler != NULL);
    ckpt_vid v = in_win(win);
    if (!live(CKPT_KIND_WIN, v, CKPT_FN_MPI_WIN_GET_ERRHANDLER))
        return FRONT_ERR(CKPT_FN_MPI_WIN_GET_ERRHANDLER, WIN);
    *errhandler = get_handler(FRONT_WIN, v);
    return MPI_SUCCESS;
}

FRONT(int, Win_call_errhandler, (MPI_Win win, int errorcode)) {
    ckpt_vid v = in_win(win);
    if (!live(CKPT_KIND_WIN, v, CKPT_FN_MPI_WIN_CALL_ERRHANDLER))
        return FRONT_ERR(CKPT_FN_MPI_WIN_CALL_ERRHANDLER, WIN);
    return call_told(FRONT_WIN, v, CKPT_FN_MPI_WIN_CALL_ERRHANDLER, errorcode);
}

// MPI_FILE_NULL is allowed: its handler is the default for files that are opened later.
FRONT(int, File_set_errhandler, (MPI_File file, MPI_Errhandler errhandler)) {
    return set_handler(FRONT_FILE, in_file(file), errhandler, CKPT_FN_MPI_FILE_SET_ERRHANDLER);
}

FRONT(int, File_get_errhandler, (MPI_File file, MPI_Errhandler *errhandler)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_FILE_GET_ERRHANDLER, errhandler != NULL);
    *errhandler = get_handler(FRONT_FILE, in_file(file));
    return MPI_SUCCESS;
}

FRONT(int, File_call_errhandler, (MPI_File file, int errorcode)) {
    return call_told(FRONT_FILE, in_file(file), CKPT_FN_MPI_FILE_CALL_ERRHANDLER, errorcode);
}

FRONT(int, Errhandler_free, (MPI_Errhandler * errhandler)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_ERRHANDLER_FREE, errhandler != NULL);
    ckpt_vid v = in_errh(*errhandler);
    if (CKPT_VID_INDEX(v) == 0) return FRONT_ERR(CKPT_FN_MPI_ERRHANDLER_FREE, ARG);
    front_errhandler_release(v);
    *errhandler = MPI_ERRHANDLER_NULL;
    return MPI_SUCCESS;
}
