// SPDX-License-Identifier: Apache-2.0
//
// std_abi.h: the standard ABI of MPI 5.0 (libmpi_abi.so.1): types, constants, and how they map to canonical ones.
//
// Handles are pointers.  Predefined ones are numbers below 1024, each sort in a range of its own; all others are the virtual
// id, which is larger.
#ifndef CKPT_STD_ABI_H
#define CKPT_STD_ABI_H

#define FRONT_ABI_NAME "abi"
#define FRONT_MPI_VERSION 5
#define FRONT_MPI_SUBVERSION 0

typedef struct MPI_ABI_Comm *MPI_Comm;
typedef struct MPI_ABI_Datatype *MPI_Datatype;
typedef struct MPI_ABI_Errhandler *MPI_Errhandler;
typedef struct MPI_ABI_File *MPI_File;
typedef struct MPI_ABI_Group *MPI_Group;
typedef struct MPI_ABI_Info *MPI_Info;
typedef struct MPI_ABI_Message *MPI_Message;
typedef struct MPI_ABI_Op *MPI_Op;
typedef struct MPI_ABI_Request *MPI_Request;
typedef struct MPI_ABI_Session *MPI_Session;
typedef struct MPI_ABI_Win *MPI_Win;

typedef struct abi_status MPI_Status;

#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_OP_NULL ((MPI_Op)32)
#define MPI_COMM_NULL ((MPI_Comm)256)
#define MPI_GROUP_NULL ((MPI_Group)264)
#define MPI_GROUP_EMPTY ((MPI_Group)265)
#define MPI_WIN_NULL ((MPI_Win)272)
#define MPI_FILE_NULL ((MPI_File)280)
#define MPI_SESSION_NULL ((MPI_Session)288)
#define MPI_MESSAGE_NULL ((MPI_Message)296)
#define MPI_MESSAGE_NO_PROC ((MPI_Message)297)
#define MPI_INFO_NULL ((MPI_Info)304)
#define MPI_INFO_ENV ((MPI_Info)305)
#define MPI_ERRHANDLER_NULL ((MPI_Errhandler)320)
#define MPI_REQUEST_NULL ((MPI_Request)384)
#define MPI_DATATYPE_NULL ((MPI_Datatype)512)
#define MPI_KEYVAL_INVALID 0

enum { MPI_ANY_SOURCE = -1, MPI_ANY_TAG = -2, MPI_PROC_NULL = -3, MPI_ROOT = -4 };
enum { MPI_IDENT = 201, MPI_CONGRUENT = 202, MPI_SIMILAR = 203, MPI_UNEQUAL = 204 };
enum {
    MPI_MAX_PROCESSOR_NAME = 256,
    MPI_MAX_ERROR_STRING = 512,
    MPI_MAX_OBJECT_NAME = 128,
    MPI_MAX_LIBRARY_VERSION_STRING = 8192,
    MPI_MAX_INFO_KEY = 256,
    MPI_MAX_INFO_VAL = 1024,
    MPI_MAX_PORT_NAME = 1024
};

enum { FRONT_THROW_RETURNS = 0 }; // there is no MPI::ERRORS_THROW_EXCEPTIONS

// Numbers of the tools interface.
enum { T_BIND_BASE = 1, T_SCOPE_BASE = 1, T_CLASS_BASE = 1 };
static inline int T_VERBOSITY(int v) {
    // User, tuner, MPI's developer; each basic, detail, all.
    return v >= 0 && v < 9 ? (8 << v / 3) + (1 << v % 3) : v;
}

// By number of a predefined handle: the index of the virtual id.  By index: the number.
extern const unsigned char std_type_index[1024], std_op_index[64];
extern const unsigned short std_types[CKPT_VID_PREDEFINED], std_ops[16];

#define STD_PREDEFINED 1024ul
static inline ckpt_vid std_vid(const void *handle) { return (ckpt_vid)(uintptr_t)handle; }
static inline int std_predefined(const void *handle) {
    return __builtin_expect((uintptr_t)handle < STD_PREDEFINED, 0);
}

// The predefined handles of most sorts follow the null handle.
#define STD_HANDLE(short, type, kind, null, last)                                                           \
    static inline ckpt_vid in_##short(type h) {                                                             \
        if (!std_predefined(h)) return std_vid(h);                                                          \
        return CKPT_VID(kind, (uintptr_t)h > (null) && (uintptr_t)h <= (last) ? (uintptr_t)h - (null) : 0); \
    }                                                                                                       \
    static inline type out_##short(ckpt_vid v) {                                                            \
        uint32_t i = CKPT_VID_INDEX(v);                                                                     \
        return (type)(uintptr_t)(i >= CKPT_VID_PREDEFINED ? v : (null) + i);                                \
    }
STD_HANDLE(comm, MPI_Comm, CKPT_KIND_COMM, 256, 258)
STD_HANDLE(group_vid, MPI_Group, CKPT_KIND_GROUP, 264, 265)
STD_HANDLE(win, MPI_Win, CKPT_KIND_WIN, 272, 272)
STD_HANDLE(file, MPI_File, CKPT_KIND_FILE, 280, 280)
STD_HANDLE(message, MPI_Message, CKPT_KIND_MESSAGE, 296, 297)
STD_HANDLE(info_vid, MPI_Info, CKPT_KIND_INFO, 304, 305)
STD_HANDLE(request, MPI_Request, CKPT_KIND_REQUEST, 384, 384)
static inline MPI_Group out_group(ckpt_vid v) { return out_group_vid(v); }
static inline ckpt_vid in_session(MPI_Session h) { return (ckpt_vid)(uintptr_t)h; }
static inline MPI_Session out_session(ckpt_vid v) { return (MPI_Session)(uintptr_t)v; }
static inline MPI_Info out_info(ckpt_vid v) { return out_info_vid(v); }

static inline ckpt_vid in_type(MPI_Datatype h) {
    return std_predefined(h) ? CKPT_VID(CKPT_KIND_DATATYPE, std_type_index[(uintptr_t)h]) : std_vid(h);
}
static inline MPI_Datatype out_type(ckpt_vid v) {
    uint32_t i = CKPT_VID_INDEX(v);
    return (MPI_Datatype)(uintptr_t)(i >= CKPT_VID_PREDEFINED ? v : std_types[i]);
}
static inline ckpt_vid in_op(MPI_Op h) {
    if (!std_predefined(h)) return std_vid(h);
    return CKPT_VID(CKPT_KIND_OP, (uintptr_t)h < 64 ? std_op_index[(uintptr_t)h] : 0);
}
static inline MPI_Op out_op(ckpt_vid v) {
    uint32_t i = CKPT_VID_INDEX(v);
    return (MPI_Op)(uintptr_t)(i >= CKPT_VID_PREDEFINED ? v : std_ops[i < 16 ? i : 0]);
}

// Error handlers, by index: as MPICH's, which has one more.
enum { ERRH_FATAL = 1, ERRH_RETURN = 2, ERRH_THROW = 3, ERRH_ABORT = 4 };
enum { ERRH_NONE = 0, ERRH_DEFAULT = ERRH_NONE };
static inline ckpt_vid in_errh(MPI_Errhandler h) {
    if (!std_predefined(h)) return std_vid(h);
    return CKPT_VID(CKPT_KIND_ERRHANDLER, (uintptr_t)h == 321   ? ERRH_FATAL
                                          : (uintptr_t)h == 322 ? ERRH_ABORT
                                          : (uintptr_t)h == 323 ? ERRH_RETURN
                                                                : ERRH_NONE);
}
static inline MPI_Errhandler out_errh(ckpt_vid v) {
    uint32_t i = CKPT_VID_INDEX(v);
    return (MPI_Errhandler)(uintptr_t)(i >= CKPT_VID_PREDEFINED ? v
                                       : i == ERRH_FATAL        ? 321
                                       : i == ERRH_ABORT        ? 322
                                       : i == ERRH_RETURN       ? 323
                                                                : 320);
}

static inline int in_level(int l) {
    return l >= 4096   ? CANON_THREAD_MULTIPLE
           : l >= 2048 ? CANON_THREAD_SERIALIZED
           : l >= 1024 ? CANON_THREAD_FUNNELED
                       : CANON_THREAD_SINGLE;
}
static inline int out_level(int l) { return l > 0 ? 512 << l : 0; }
static inline int out_compare(int c) { return c + MPI_IDENT; }

static inline int in_rank(int r) {
    return r >= MPI_ROOT ? r : CANON_UNDEFINED; // the canonical numbers are the standard's
}
static inline int out_rank(int r) { return r; }
static inline int in_tag(int t) { return t == MPI_ANY_TAG ? CANON_ANY_TAG : t < 0 ? CANON_UNDEFINED : t; }
static inline long in_buf(const void *p) { return (long)p; /* MPI_IN_PLACE is 1, as ours */ }
static inline long in_weights(const int *w) { return (long)w; /* 10 and 11, as ours */ }
static inline int in_order(int o) { return o == 12 ? CANON_ORDER_C : o == 15 ? CANON_ORDER_FORTRAN : -1; }
static inline int out_order(int o) { return o == CANON_ORDER_C ? 12 : 15; }
static inline int in_distrib(int d) {
    return d == 17   ? CANON_DISTRIBUTE_BLOCK
           : d == 18 ? CANON_DISTRIBUTE_CYCLIC
           : d == 16 ? CANON_DISTRIBUTE_NONE
                     : -1;
}
static inline int out_distrib(int d) {
    return d == CANON_DISTRIBUTE_BLOCK ? 17 : d == CANON_DISTRIBUTE_CYCLIC ? 18 : 16;
}
// MPI_DISTRIBUTE_DFLT_DARG is a number that could also be meant: 19.
static inline int in_darg(int d) { return d == 19 ? CANON_DISTRIBUTE_DFLT_DARG : d; }
static inline int out_darg(int d) { return d == CANON_DISTRIBUTE_DFLT_DARG ? 19 : d; }
static inline int in_typeclass(int c) {
    return c == 192   ? CANON_TYPECLASS_INTEGER
           : c == 193 ? CANON_TYPECLASS_REAL
           : c == 194 ? CANON_TYPECLASS_COMPLEX
                      : -1;
}
static inline int in_split_type(int t) {
    return t == 221               ? CANON_COMM_TYPE_SHARED
           : t == 222             ? CANON_COMM_TYPE_HW_UNGUIDED
           : t == 223 || t == 224 ? CANON_COMM_TYPE_HW_GUIDED
           : t == MPI_UNDEFINED   ? CANON_UNDEFINED
                                  : -1;
}
static inline int in_lock(int l) {
    return l == 301 ? CANON_LOCK_EXCLUSIVE : l == 302 ? CANON_LOCK_SHARED : -1;
}
static inline int in_assert(int a) { return a >> 10; /* 1024 to 16384, ours 1 to 16 */ }
static inline int out_topo(int t) {
    return t == CANON_CART ? 211 : t == CANON_GRAPH ? 212 : t == CANON_DIST_GRAPH ? 213 : t;
}
static inline int out_combiner(int c) {
    static const unsigned char std[20] = {
        [CANON_COMBINER_NAMED] = 101,          [CANON_COMBINER_DUP] = 102,
        [CANON_COMBINER_CONTIGUOUS] = 103,     [CANON_COMBINER_VECTOR] = 104,
        [CANON_COMBINER_HVECTOR] = 105,        [CANON_COMBINER_INDEXED] = 106,
        [CANON_COMBINER_HINDEXED] = 107,       [CANON_COMBINER_INDEXED_BLOCK] = 108,
        [CANON_COMBINER_HINDEXED_BLOCK] = 109, [CANON_COMBINER_STRUCT] = 110,
        [CANON_COMBINER_SUBARRAY] = 111,       [CANON_COMBINER_DARRAY] = 112,
        [CANON_COMBINER_F90_REAL] = 113,       [CANON_COMBINER_F90_COMPLEX] = 114,
        [CANON_COMBINER_F90_INTEGER] = 115,    [CANON_COMBINER_RESIZED] = 116};
    return c > 0 && c < 20 ? std[c] : MPI_UNDEFINED;
}
// Files: the modes, and from where MPI_File_seek counts.
static const struct {
    short std, canon;
} std_amodes[] = {{1, CANON_FILE_APPEND},      {2, CANON_FILE_CREATE},        {4, CANON_FILE_DELETE_ON_CLOSE},
                  {8, CANON_FILE_EXCL},        {16, CANON_FILE_RDONLY},       {32, CANON_FILE_RDWR},
                  {64, CANON_FILE_SEQUENTIAL}, {128, CANON_FILE_UNIQUE_OPEN}, {256, CANON_FILE_WRONLY}};
enum { STD_AMODES = sizeof std_amodes / sizeof *std_amodes };
static inline int in_amode(int a) {
    int c = a & ~511; // unknown ones are refused
    for (int i = 0; i < STD_AMODES; i++) c |= a & std_amodes[i].std ? std_amodes[i].canon : 0;
    return c;
}
static inline int out_amode(int c) {
    int a = 0;
    for (int i = 0; i < STD_AMODES; i++) a |= c & std_amodes[i].canon ? std_amodes[i].std : 0;
    return a;
}
static inline int in_whence(int w) {
    return w == 401 ? CANON_SEEK_CUR : w == 402 ? CANON_SEEK_END : w == 403 ? CANON_SEEK_SET : -1;
}
static inline MPI_Offset in_viewat(MPI_Offset at) { return at == -1 ? CANON_DISPLACEMENT_CURRENT : at; }
static inline int in_attr(int keyval) {
    static const unsigned char ours[7] = {
        CANON_ATTR_TAG_UB, CANON_ATTR_IO,           CANON_ATTR_HOST,         CANON_ATTR_WTIME_IS_GLOBAL,
        CANON_ATTR_APPNUM, CANON_ATTR_LASTUSEDCODE, CANON_ATTR_UNIVERSE_SIZE};
    return keyval >= 501 && keyval <= 507 ? ours[keyval - 501] : 0;
}
// Predefined attributes of windows: base 1, size 2, displacement unit 3, flavor 4, model 5.
static inline int in_win_attr(int keyval) {
    static const unsigned char ours[5] = {1, 3, 2, 4, 5};
    return keyval >= 601 && keyval <= 605 ? ours[keyval - 601] : 0;
}
enum { MPI_WIN_UNIFIED = 321 };
enum { FLAVOR_BASE = 310 };
static inline int out_keyval(ckpt_vid v) { return (int)v; }
// MPI_COMM_DUP_FN and its kin are no functions.
#define FRONT_IS_DUP_FN(function) ((uintptr_t)(function) == 1)
// MPI_T_PVAR_ALL_HANDLES
static inline long in_pvar(const void *handle) { return (long)handle == 1 ? -1 : (long)handle; }

static inline int is_status(const MPI_Status *s) { return s != MPI_STATUS_IGNORE; }
static inline int64_t status_bytes(const MPI_Status *s) { return abi_status_bytes(s); }
static inline int status_cancelled(const MPI_Status *s) { return s->cancelled; }
static inline void set_status_bytes(MPI_Status *s, int64_t bytes) { abi_status_set(s, bytes, s->cancelled); }
static inline void set_status_cancelled(MPI_Status *s, int flag) { s->cancelled = flag != 0; }

#define ABI_ERRCLASSES(X) STD_ERRCLASS_LIST(X)
// The classes of the tools interface do not fit into the byte that the others have in a code.
#define ABI_T_CLASS(code) ((code) >= 1001 && (code) <= 1018)

#endif
