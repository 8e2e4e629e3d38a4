// SPDX-License-Identifier: Apache-2.0
//
// mpich_abi.h: the MPICH ABI (libmpich.so.12, libmpi.so.12): types, constants, and how they map to
// canonical ones.  Handles are ints; the handle of an object that is not predefined is its virtual id.
#ifndef CKPT_MPICH_ABI_H
#define CKPT_MPICH_ABI_H

#define FRONT_ABI_NAME "mpich"
#define FRONT_MPI_VERSION 4
#define FRONT_MPI_SUBVERSION 0

typedef int MPI_Session;
typedef int MPI_Comm, MPI_Datatype, MPI_Group, MPI_Op, MPI_Request, MPI_Message, MPI_Errhandler, MPI_Info,
    MPI_Win;
typedef struct ADIOI_FileD *MPI_File;

typedef struct mpich_status MPI_Status;
enum { MPI_F_STATUS_SIZE = 5 };

#define MPI_STATUS_IGNORE ((MPI_Status *)1)
#define MPI_REQUEST_NULL 0x2c000000
#define MPI_MESSAGE_NULL 0x2c000000
#define MPI_MESSAGE_NO_PROC 0x6c000000
#define MPI_COMM_NULL 0x04000000
#define MPI_GROUP_NULL 0x08000000
#define MPI_GROUP_EMPTY 0x48000000
#define MPI_DATATYPE_NULL 0x0c000000
#define MPI_OP_NULL 0x18000000
#define MPI_INFO_NULL 0x1c000000
#define MPI_INFO_ENV 0x5c000001
#define MPI_ERRHANDLER_NULL 0x14000000
#define MPI_WIN_NULL 0x20000000
#define MPI_SESSION_NULL 0x38000000
#define MPI_FILE_NULL ((MPI_File)0)
#define MPI_KEYVAL_INVALID 0x24000000

enum { MPI_PROC_NULL = -1, MPI_ANY_SOURCE = -2, MPI_ROOT = -3, MPI_ANY_TAG = -1 };
enum {
    MPI_MAX_PROCESSOR_NAME = 128,
    MPI_MAX_ERROR_STRING = 512,
    MPI_MAX_OBJECT_NAME = 128,
    MPI_MAX_LIBRARY_VERSION_STRING = 8192,
    MPI_MAX_INFO_KEY = 255,
    MPI_MAX_INFO_VAL = 1024
};

enum { FRONT_THROW_RETURNS = 1 }; // MPI::ERRORS_THROW_EXCEPTIONS: the call returns its error

// Where the numbers of the tools interface begin.
enum {
    T_VERBOSITY_BASE = 221,
    T_BIND_BASE = 9700,
    T_SCOPE_BASE = 60438,
    T_CLASS_BASE = 240,
    MPI_MAX_PORT_NAME = 256
};

// A predefined handle of a sort is tag << 24 | low byte.  Null handles map to index 0, and so does a
// value that is not a handle.
static inline ckpt_vid mpich_in(int handle, ckpt_kind kind, uint32_t tag, uint32_t add) {
    uint32_t h = (uint32_t)handle;
    if (__builtin_expect(h >> 28 == (uint32_t)kind, 1)) return h;
    return h >> 24 == tag ? CKPT_VID(kind, (h & 0xff) + add) : CKPT_VID(kind, 0);
}

static inline ckpt_vid in_comm(MPI_Comm h) { return mpich_in(h, CKPT_KIND_COMM, 0x44, 1); }
static inline ckpt_vid in_type(MPI_Datatype h) {
    if ((uint32_t)h >> 24 == 0x8c) return CKPT_VID(CKPT_KIND_DATATYPE, 0x80 | (h & 0xff));
    return mpich_in(h, CKPT_KIND_DATATYPE, 0x4c, 0);
}
static inline ckpt_vid in_op(MPI_Op h) { return mpich_in(h, CKPT_KIND_OP, 0x58, 0); }
static inline ckpt_vid in_request(MPI_Request h) { return mpich_in(h, CKPT_KIND_REQUEST, ~0u, 0); }
static inline ckpt_vid in_message(MPI_Message h) { return mpich_in(h, CKPT_KIND_MESSAGE, 0x6c, 1); }
static inline ckpt_vid in_win(MPI_Win h) { return mpich_in(h, CKPT_KIND_WIN, ~0u, 0); }
static inline ckpt_vid in_file(MPI_File h) { return h ? (ckpt_vid)(uintptr_t)h : VID_FILE_NULL; }
// Objects that only the front has.
static inline ckpt_vid in_group_vid(MPI_Group h) { return mpich_in(h, CKPT_KIND_GROUP, 0x48, 1); }
static inline ckpt_vid in_info_vid(MPI_Info h) { return mpich_in(h, CKPT_KIND_INFO, 0x5c, 0); }
static inline ckpt_vid in_errh(MPI_Errhandler h) { return mpich_in(h, CKPT_KIND_ERRHANDLER, 0x54, 1); }

extern const uint32_t mpich_types[CKPT_VID_PREDEFINED];

static inline MPI_Comm out_comm(ckpt_vid v) {
    uint32_t i = CKPT_VID_INDEX(v);
    return (int)(i >= CKPT_VID_PREDEFINED ? v : i ? 0x44000000 + i - 1 : MPI_COMM_NULL);
}
static inline MPI_Datatype out_type(ckpt_vid v) {
    uint32_t i = CKPT_VID_INDEX(v);
    return (int)(i >= CKPT_VID_PREDEFINED ? v : mpich_types[i]);
}
static inline MPI_Op out_op(ckpt_vid v) {
    uint32_t i = CKPT_VID_INDEX(v);
    return (int)(i >= CKPT_VID_PREDEFINED ? v : i ? 0x58000000 + i : MPI_OP_NULL);
}
static inline MPI_Request out_request(ckpt_vid v) { return (int)(CKPT_VID_INDEX(v) ? v : MPI_REQUEST_NULL); }
static inline MPI_Message out_message(ckpt_vid v) {
    uint32_t i = CKPT_VID_INDEX(v);
    return (int)(i >= CKPT_VID_PREDEFINED ? v : i ? MPI_MESSAGE_NO_PROC : MPI_MESSAGE_NULL);
}
static inline MPI_Win out_win(ckpt_vid v) { return (int)(CKPT_VID_INDEX(v) ? v : MPI_WIN_NULL); }
static inline MPI_File out_file(ckpt_vid v) {
    return CKPT_VID_INDEX(v) ? (MPI_File)(uintptr_t)v : MPI_FILE_NULL;
}
static inline MPI_Group out_group(ckpt_vid v) {
    uint32_t i = CKPT_VID_INDEX(v);
    return (int)(i >= CKPT_VID_PREDEFINED ? v : i ? MPI_GROUP_EMPTY : MPI_GROUP_NULL);
}
static inline ckpt_vid in_session(MPI_Session h) { return (ckpt_vid)h; }
static inline MPI_Session out_session(ckpt_vid v) { return (MPI_Session)v; }
static inline MPI_Info out_info(ckpt_vid v) {
    uint32_t i = CKPT_VID_INDEX(v);
    return (int)(i >= CKPT_VID_PREDEFINED ? v : i ? MPI_INFO_ENV : MPI_INFO_NULL);
}
static inline MPI_Errhandler out_errh(ckpt_vid v) {
    uint32_t i = CKPT_VID_INDEX(v);
    return (int)(i >= CKPT_VID_PREDEFINED ? v : i ? 0x54000000 + i - 1 : MPI_ERRHANDLER_NULL);
}
// Error handlers, by index; the numbers follow from in_errh.
enum { ERRH_FATAL = 1, ERRH_RETURN = 2, ERRH_THROW = 3, ERRH_ABORT = 4 };
// A communicator or window without a handler of its own uses that of MPI_COMM_WORLD when an error occurs.
enum { ERRH_NONE = 0, ERRH_DEFAULT = ERRH_NONE };

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
static inline long in_buf(const void *p) { return p == (void *)-1 ? CANON_IN_PLACE : (long)p; }

extern int mpich_unweighted, mpich_weights_empty;
static inline long in_weights(const int *w) {
    return w == &mpich_unweighted      ? CANON_UNWEIGHTED
           : w == &mpich_weights_empty ? CANON_WEIGHTS_EMPTY
                                       : (long)w;
}
static inline int in_order(int o) { return o == 56 ? CANON_ORDER_C : o == 57 ? CANON_ORDER_FORTRAN : -1; }
static inline int out_order(int o) { return o == CANON_ORDER_C ? 56 : 57; }
static inline int in_distrib(int d) { return d >= 121 && d <= 123 ? d - 121 : -1; }
static inline int out_distrib(int d) { return d + 121; }
static inline int in_darg(int d) { return d == -49767 ? CANON_DISTRIBUTE_DFLT_DARG : d; }
static inline int out_darg(int d) { return d == CANON_DISTRIBUTE_DFLT_DARG ? -49767 : d; }
static inline int in_typeclass(int c) { return c; /* real 1, integer 2, complex 3, as ours */ }
static inline int in_split_type(int t) {
    return t == 1               ? CANON_COMM_TYPE_SHARED
           : t == 2             ? CANON_COMM_TYPE_HW_GUIDED
           : t == 3             ? CANON_COMM_TYPE_HW_UNGUIDED
           : t == 4 || t == 5   ? CANON_COMM_TYPE_NEIGHBORHOOD
           : t == MPI_UNDEFINED ? CANON_UNDEFINED
                                : -1;
}
static inline int in_lock(int l) {
    return l == 234 ? CANON_LOCK_EXCLUSIVE : l == 235 ? CANON_LOCK_SHARED : -1;
}
static inline int in_assert(int a) {
    return (a & 1024 ? CANON_MODE_NOCHECK : 0) | (a & 2048 ? CANON_MODE_NOSTORE : 0) |
           (a & 4096 ? CANON_MODE_NOPUT : 0) | (a & 8192 ? CANON_MODE_NOPRECEDE : 0) |
           (a & 16384 ? CANON_MODE_NOSUCCEED : 0);
}
static inline int out_topo(int t) {
    return t; // graph 1, cart 2, dist_graph 3, undefined, as ours
}
static inline int out_combiner(int c) { return c; /* ours are MPICH's */ }
// The predefined attribute of a keyval, 0 when there is none.
static inline int in_attr(int keyval) {
    switch (keyval) {
    case 0x64400001:
        return CANON_ATTR_TAG_UB;
    case 0x64400003:
        return CANON_ATTR_HOST;
    case 0x64400005:
        return CANON_ATTR_IO;
    case 0x64400007:
        return CANON_ATTR_WTIME_IS_GLOBAL;
    case 0x64400009:
        return CANON_ATTR_UNIVERSE_SIZE;
    case 0x6440000b:
        return CANON_ATTR_LASTUSEDCODE;
    case 0x6440000d:
        return CANON_ATTR_APPNUM;
    default:
        return 0;
    }
}
// Predefined attributes of windows: base 1, size 2, displacement unit 3, flavor 4, model 5.
static inline int in_win_attr(int keyval) {
    return keyval >= 0x66000001 && keyval <= 0x66000009 && keyval % 2 ? (keyval - 0x66000001) / 2 + 1 : 0;
}
enum { MPI_WIN_UNIFIED = 2 };
static inline int out_keyval(ckpt_vid v) { return (int)v; }

static inline int is_status(const MPI_Status *s) { return s != MPI_STATUS_IGNORE; }
static inline int64_t status_bytes(const MPI_Status *s) { return mpich_status_bytes(s); }
static inline int status_cancelled(const MPI_Status *s) { return mpich_status_cancelled(s); }
static inline void set_status_bytes(MPI_Status *s, int64_t bytes) {
    mpich_status_set(s, bytes, status_cancelled(s));
}
static inline void set_status_cancelled(MPI_Status *s, int flag) {
    s->count_hi_and_cancelled = (s->count_hi_and_cancelled & ~1) | (flag != 0);
}

#define ABI_ERRCLASSES(X) MPICH_ERRCLASS_LIST(X)

#endif
