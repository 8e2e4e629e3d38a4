// SPDX-License-Identifier: Apache-2.0
//
// handles.c: handles as Fortran integers.  Predefined objects have the ABI's own numbers, which are
// compiled into Fortran programs; all others have their virtual id.  MPICH's handles are ints already,
// and those of the standard ABI are numbers of 32 bits.
#include "front/front.h"

#if FRONT_ABI != 2
#define C2F(in, h, kind) ((MPI_Fint)(intptr_t)(h))
#define F2C(type, out, kind, f) ((type)(uintptr_t)(uint32_t)(f))
#else
// Fortran's numbers are small; virtual ids are not.
struct numbers {
    short of[CKPT_VID_PREDEFINED]; // by index of the virtual id; 0 where there is none
    unsigned char index[128];      // and back
};
#define X(index, number) [index] = number,
#define Y(index, number) [number] = index,
#define COMMS(X) X(1, 0) X(2, 1) X(0, 2)
#define FIRST(X) X(0, 0) X(1, 1) X(2, 2) X(3, 3)
static const struct numbers comms = {{COMMS(X)}, {COMMS(Y)}};
static const struct numbers types = {{OPENMPI_DATATYPE_FORTRAN(X)}, {OPENMPI_DATATYPE_FORTRAN(Y)}};
static const struct numbers ops = {{OPENMPI_OP_FORTRAN(X)}, {OPENMPI_OP_FORTRAN(Y)}};
static const struct numbers first = {{FIRST(X)}, {FIRST(Y)}};
#undef X
#undef Y

static const struct numbers *numbers(ckpt_kind kind) {
    return kind == CKPT_KIND_COMM       ? &comms
           : kind == CKPT_KIND_DATATYPE ? &types
           : kind == CKPT_KIND_OP       ? &ops
                                        : &first;
}

static MPI_Fint c2f(ckpt_vid v, ckpt_kind kind) {
    uint32_t i = CKPT_VID_INDEX(v);
    return (MPI_Fint)(i < CKPT_VID_PREDEFINED ? (uint32_t)numbers(kind)->of[i] : v);
}

// A number that is not a handle becomes the null handle.
static ckpt_vid f2c(MPI_Fint f, ckpt_kind kind) {
    if (f >= 0 && f < (MPI_Fint)sizeof comms.index) return CKPT_VID(kind, numbers(kind)->index[f]);
    return CKPT_VID_KIND((ckpt_vid)f) == (uint32_t)kind ? (ckpt_vid)f : CKPT_VID(kind, 0);
}

#define C2F(in, h, kind) c2f(in(h), kind)
#define F2C(type, out, kind, f) out(f2c(f, kind))
#endif

#define HANDLE(name, type, in, out, kind)                                               \
    FRONT(MPI_Fint, name##_c2f, (type handle)) { return C2F(in, handle, kind); }        \
    FRONT(type, name##_f2c, (MPI_Fint handle)) { return F2C(type, out, kind, handle); } \
    FRONT(int, name##_toint, (type handle)) { return C2F(in, handle, kind); }           \
    FRONT(type, name##_fromint, (int handle)) { return F2C(type, out, kind, handle); }

HANDLE(Comm, MPI_Comm, in_comm, out_comm, CKPT_KIND_COMM)
HANDLE(Type, MPI_Datatype, in_type, out_type, CKPT_KIND_DATATYPE)
HANDLE(Group, MPI_Group, in_group_vid, out_group, CKPT_KIND_GROUP)
HANDLE(Op, MPI_Op, in_op, out_op, CKPT_KIND_OP)
HANDLE(Request, MPI_Request, in_request, out_request, CKPT_KIND_REQUEST)
HANDLE(Message, MPI_Message, in_message, out_message, CKPT_KIND_MESSAGE)
HANDLE(Info, MPI_Info, in_info_vid, out_info, CKPT_KIND_INFO)
HANDLE(Errhandler, MPI_Errhandler, in_errh, out_errh, CKPT_KIND_ERRHANDLER)
HANDLE(Win, MPI_Win, in_win, out_win, CKPT_KIND_WIN)
HANDLE(File, MPI_File, in_file, out_file, CKPT_KIND_FILE)
