// SPDX-License-Identifier: Apache-2.0
//
// openmpi_abi.h: the Open MPI ABI (libmpi.so.40): types, constants, and how they map to canonical
// ones.
//
// Handles are pointers.  Predefined ones are addresses of exported objects, whose first four bytes
// hold the virtual id; the linker may have copied the objects into the program, so they are reached
// by name, through the global offset table.  All other handles are not addresses, but the virtual id
// with all of the upper 16 bits set: no memory of a program has such an address.
#ifndef CKPT_OPENMPI_ABI_H
#define CKPT_OPENMPI_ABI_H

#define FRONT_ABI_NAME "openmpi"
#define FRONT_MPI_VERSION 3
#define FRONT_MPI_SUBVERSION 1

typedef struct ompi_communicator_t *MPI_Comm;
typedef struct ompi_datatype_t *MPI_Datatype;
typedef struct ompi_errhandler_t *MPI_Errhandler;
typedef struct ompi_file_t *MPI_File;
typedef struct ompi_group_t *MPI_Group;
typedef struct ompi_info_t *MPI_Info;
typedef struct ompi_op_t *MPI_Op;
typedef struct ompi_request_t *MPI_Request;
typedef struct ompi_message_t *MPI_Message;
typedef struct ompi_win_t *MPI_Win;
typedef struct ompi_instance_t *MPI_Session;

typedef struct openmpi_status MPI_Status;

#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_KEYVAL_INVALID (-1)

enum { MPI_PROC_NULL = -2, MPI_ANY_SOURCE = -1, MPI_ROOT = -4, MPI_ANY_TAG = -1 };
enum {
    MPI_MAX_PROCESSOR_NAME = 256,
    MPI_MAX_ERROR_STRING = 256,
    MPI_MAX_OBJECT_NAME = 64,
    MPI_MAX_LIBRARY_VERSION_STRING = 256,
    MPI_MAX_INFO_KEY = 36,
    MPI_MAX_INFO_VAL = 256
};

enum { FRONT_THROW_RETURNS = 0 }; // MPI::ERRORS_THROW_EXCEPTIONS raises within the call

// Where the numbers of the tools interface begin.
enum { T_VERBOSITY_BASE = 0, T_BIND_BASE = 0, T_SCOPE_BASE = 0, T_CLASS_BASE = 0, MPI_MAX_PORT_NAME = 1024 };

// An exported object: the size is part of the ABI.
#define OMPI_OBJECT(name, bytes)                                    \
    extern __attribute__((visibility("default"))) struct name##_s { \
        ckpt_vid vid;                                               \
        char rest[bytes - sizeof(ckpt_vid)];                        \
    } name

OMPI_OBJECT(ompi_mpi_comm_world, 512);
OMPI_OBJECT(ompi_mpi_comm_self, 512);
OMPI_OBJECT(ompi_mpi_comm_null, 512);
OMPI_OBJECT(ompi_mpi_group_empty, 256);
OMPI_OBJECT(ompi_mpi_group_null, 256);
OMPI_OBJECT(ompi_request_null, 256);
OMPI_OBJECT(ompi_message_null, 256);
OMPI_OBJECT(ompi_message_no_proc, 256);
OMPI_OBJECT(ompi_mpi_op_null, 2048);
OMPI_OBJECT(ompi_mpi_datatype_null, 512);
OMPI_OBJECT(ompi_mpi_errhandler_null, 1024);
OMPI_OBJECT(ompi_mpi_errors_are_fatal, 1024);
OMPI_OBJECT(ompi_mpi_errors_return, 1024);
OMPI_OBJECT(ompi_mpi_errors_throw_exceptions, 1024);
OMPI_OBJECT(ompi_mpi_win_null, 512);
OMPI_OBJECT(ompi_mpi_file_null, 1536);
OMPI_OBJECT(ompi_mpi_info_null, 256);
OMPI_OBJECT(ompi_mpi_instance_null, 512); // from Open MPI 5 on
OMPI_OBJECT(ompi_mpi_info_env, 256);
#define X(name, number, symbol) OMPI_OBJECT(symbol, 512);
OPENMPI_DATATYPE_LIST(X)
#undef X
#define X(name, number, symbol) OMPI_OBJECT(symbol, 2048);
OPENMPI_OP_LIST(X)
#undef X

#define MPI_REQUEST_NULL ((MPI_Request)&ompi_request_null)
#define MPI_MESSAGE_NULL ((MPI_Message)&ompi_message_null)
#define MPI_COMM_NULL ((MPI_Comm)&ompi_mpi_comm_null)
#define MPI_GROUP_NULL ((MPI_Group)&ompi_mpi_group_null)
#define MPI_GROUP_EMPTY ((MPI_Group)&ompi_mpi_group_empty)
#define MPI_DATATYPE_NULL ((MPI_Datatype)&ompi_mpi_datatype_null)
#define MPI_OP_NULL ((MPI_Op)&ompi_mpi_op_null)
#define MPI_INFO_NULL ((MPI_Info)&ompi_mpi_info_null)
#define MPI_ERRHANDLER_NULL ((MPI_Errhandler)&ompi_mpi_errhandler_null)
#define MPI_WIN_NULL ((MPI_Win)&ompi_mpi_win_null)
#define MPI_FILE_NULL ((MPI_File)&ompi_mpi_file_null)
#define MPI_SESSION_NULL ((MPI_Session)&ompi_mpi_instance_null)

static inline ckpt_vid openmpi_in(const void *handle, ckpt_kind kind) {
    if ((intptr_t)handle < 0) return (ckpt_vid)(uintptr_t)handle;
    return handle != NULL ? *(const ckpt_vid *)handle : CKPT_VID(kind, 0);
}

static inline void *openmpi_out(ckpt_vid v) { return (void *)(uintptr_t)(0xffff000000000000ull | v); }

// Predefined handles, by index.
extern void *const openmpi_comms[3], *const openmpi_groups[2], *const openmpi_errhs[4];
extern void *const openmpi_types[CKPT_VID_PREDEFINED], *const openmpi_ops[16];

#define OMPI_HANDLE(short, type, kind, predefined)                               \
    static inline ckpt_vid in_##short(type h) { return openmpi_in(h, kind); }    \
    static inline type out_##short(ckpt_vid v) {                                 \
        uint32_t i = CKPT_VID_INDEX(v);                                          \
        return (type)(i >= CKPT_VID_PREDEFINED ? openmpi_out(v) : (predefined)); \
    }

OMPI_HANDLE(comm, MPI_Comm, CKPT_KIND_COMM, openmpi_comms[i < 3 ? i : 0])
OMPI_HANDLE(type, MPI_Datatype, CKPT_KIND_DATATYPE, openmpi_types[i])
OMPI_HANDLE(op, MPI_Op, CKPT_KIND_OP, openmpi_ops[i < 16 ? i : 0])
OMPI_HANDLE(request, MPI_Request, CKPT_KIND_REQUEST, (void *)&ompi_request_null)
OMPI_HANDLE(message, MPI_Message, CKPT_KIND_MESSAGE,
            i ? (void *)&ompi_message_no_proc : (void *)&ompi_message_null)
OMPI_HANDLE(win, MPI_Win, CKPT_KIND_WIN, (void *)&ompi_mpi_win_null)
OMPI_HANDLE(file, MPI_File, CKPT_KIND_FILE, (void *)&ompi_mpi_file_null)
OMPI_HANDLE(errh, MPI_Errhandler, CKPT_KIND_ERRHANDLER, openmpi_errhs[i < 4 ? i : 0])

static inline ckpt_vid in_group_vid(MPI_Group h) { return openmpi_in(h, CKPT_KIND_GROUP); }
static inline MPI_Group out_group(ckpt_vid v) {
    uint32_t i = CKPT_VID_INDEX(v);
    return (MPI_Group)(i >= CKPT_VID_PREDEFINED ? openmpi_out(v) : openmpi_groups[i == 1]);
}
static inline ckpt_vid in_info_vid(MPI_Info h) { return openmpi_in(h, CKPT_KIND_INFO); }
static inline ckpt_vid in_session(MPI_Session h) { return openmpi_in(h, CKPT_KIND_SESSION); }
static inline MPI_Session out_session(ckpt_vid v) {
    return CKPT_VID_INDEX(v) ? openmpi_out(v) : MPI_SESSION_NULL;
}
static inline MPI_Info out_info(ckpt_vid v) {
    uint32_t i = CKPT_VID_INDEX(v);
    return (MPI_Info)(i >= CKPT_VID_PREDEFINED ? openmpi_out(v)
                      : i                      ? (void *)&ompi_mpi_info_env
                                               : (void *)&ompi_mpi_info_null);
}
enum { ERRH_FATAL = 1, ERRH_RETURN = 2, ERRH_THROW = 3 };
enum { ERRH_NONE = 0, ERRH_DEFAULT = ERRH_FATAL };

static inline int in_rank(int r) {
    if (__builtin_expect(r >= 0, 1)) return r;
    return r == MPI_PROC_NULL    ? CANON_PROC_NULL
           : r == MPI_ANY_SOURCE ? CANON_ANY_SOURCE
           : r == MPI_ROOT       ? CANON_ROOT
                                 : CANON_UNDEFINED;
}
static inline int out_rank(int r) {
    if (__builtin_expect(r >= 0, 1)) return r;
    return r == CANON_PROC_NULL    ? MPI_PROC_NULL
           : r == CANON_ANY_SOURCE ? MPI_ANY_SOURCE
           : r == CANON_ROOT       ? MPI_ROOT
                                   : r;
}
static inline int in_tag(int t) { return t == MPI_ANY_TAG ? CANON_ANY_TAG : t < 0 ? CANON_UNDEFINED : t; }
static inline long in_buf(const void *p) { return (long)p; /* MPI_IN_PLACE is 1, as ours */ }
static inline long in_weights(const int *w) {
    return (long)w == 2 ? CANON_UNWEIGHTED : (long)w == 3 ? CANON_WEIGHTS_EMPTY : (long)w;
}
static inline int in_order(int o) { return o; /* C 0, Fortran 1, as ours */ }
static inline int out_order(int o) { return o; }
static inline int in_distrib(int d) { return d; /* block 0, cyclic 1, none 2, as ours */ }
static inline int out_distrib(int d) { return d; }
static inline int in_darg(int d) { return d; /* MPI_DISTRIBUTE_DFLT_DARG is -1, as ours */ }
static inline int out_darg(int d) { return d; }
static inline int in_typeclass(int c) {
    return c == 1   ? CANON_TYPECLASS_INTEGER
           : c == 2 ? CANON_TYPECLASS_REAL
           : c == 3 ? CANON_TYPECLASS_COMPLEX
                    : -1;
}
static inline int in_split_type(int t) {
    return t == 0 ? CANON_COMM_TYPE_SHARED : t == MPI_UNDEFINED ? CANON_UNDEFINED : -1;
}
static inline int in_lock(int l) { return l; /* exclusive 1, shared 2, as ours */ }
static inline int in_assert(int a) { return a; /* as ours */ }
static inline int out_topo(int t) { return t == CANON_CART ? 1 : t == CANON_GRAPH ? 2 : t; }
// The canonical numbers are Open MPI's plus one.
static inline int out_combiner(int c) { return c - 1; }
static inline int in_attr(int keyval) {
    static const unsigned char ours[7] = {
        CANON_ATTR_TAG_UB, CANON_ATTR_HOST,         CANON_ATTR_IO,           CANON_ATTR_WTIME_IS_GLOBAL,
        CANON_ATTR_APPNUM, CANON_ATTR_LASTUSEDCODE, CANON_ATTR_UNIVERSE_SIZE};
    return keyval >= 0 && keyval < 7 ? ours[keyval] : 0;
}
// Predefined attributes of windows: base 1, size 2, displacement unit 3, flavor 4, model 5.
static inline int in_win_attr(int keyval) { return keyval >= 7 && keyval <= 11 ? keyval - 6 : 0; }
enum { MPI_WIN_UNIFIED = 0 };
// A keyval is an int in every ABI.  MPI_KEYVAL_INVALID is negative here, and no virtual id is.
static inline int out_keyval(ckpt_vid v) { return (int)v; }

static inline int is_status(const MPI_Status *s) { return s != MPI_STATUS_IGNORE; }
static inline int64_t status_bytes(const MPI_Status *s) { return (int64_t)s->bytes; }
static inline int status_cancelled(const MPI_Status *s) { return s->cancelled; }
static inline void set_status_bytes(MPI_Status *s, int64_t bytes) { s->bytes = (size_t)bytes; }
static inline void set_status_cancelled(MPI_Status *s, int flag) { s->cancelled = flag != 0; }

#define ABI_ERRCLASSES(X) OPENMPI_ERRCLASS_LIST(X)

#endif
