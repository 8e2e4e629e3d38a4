// SPDX-License-Identifier: Apache-2.0
//
// openmpi_f08.c: our part of libmpi_usempif08.so.40 of Open MPI 6: those functions of the module mpi_f08 that look into
// the objects behind handles there.  Choice buffers come as descriptors of Fortran 2018, since a program may pass a section of
// an array.
//
// This library has the real library's name, so that the linker finds it first, and needs the real
// library, which has all functions that are not here.
#include <ISO_Fortran_binding.h>
#include <stdlib.h>

#include "front/abi/openmpi_fortran.h"

// Programs and other libraries know these by their names: no header of ours declares them.
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define EXPORT __attribute__((visibility("default")))

// ---- buffers ----

// A buffer as C has it: a section whose elements do not follow each other is one element of a datatype made for it.
struct part {
    void *buf;
    MPI_Count count;
    MPI_Datatype type;
    int made, wrong;
};

static int follow(const CFI_cdesc_t *x) {
    CFI_index_t next = (CFI_index_t)x->elem_len;
    for (int i = 0; i < x->rank; i++) {
        if (x->dim[i].sm != next) return 0;
        next *= x->dim[i].extent;
    }
    return 1;
}

// The first count elements of a section; 0 when they are no whole rows, columns and so on.
static int section(const CFI_cdesc_t *x, MPI_Count count, MPI_Datatype type, MPI_Datatype *made) {
    MPI_Datatype inner = type, outer;
    MPI_Count below = 1; // elements in what inner describes
    for (int i = 0; i < x->rank && below < count; i++) {
        MPI_Count n = count / below;
        if (n * below != count) break;
        if (n > x->dim[i].extent) n = x->dim[i].extent;
        int rc = PMPI_Type_create_hvector((int)n, 1, x->dim[i].sm, inner, &outer);
        if (inner != type) PMPI_Type_free(&inner);
        if (rc != MPI_SUCCESS) return 0;
        inner = outer;
        below *= n;
    }
    *made = inner;
    if (below == count && inner != type && PMPI_Type_commit(made) == MPI_SUCCESS) return 1;
    if (inner != type) PMPI_Type_free(&inner);
    return 0;
}

static struct part part(const CFI_cdesc_t *x, MPI_Count count, MPI_Fint type) {
    struct part p = {.buf = fortran_address(x->base_addr), .count = count, .type = PMPI_Type_f2c(type)};
    if (p.buf == FORTRAN_IN_PLACE || p.buf == NULL || count <= 1 || follow(x)) return p;
    p.made = section(x, count, p.type, &p.type);
    p.wrong = !p.made;
    if (p.made) p.count = 1;
    return p;
}

// Of a buffer with a count for each member, which must be in one piece; also in Open MPI.
static void *whole(const CFI_cdesc_t *x, int *wrong) {
    void *buf = fortran_address(x->base_addr);
    if (buf != FORTRAN_IN_PLACE && buf != NULL && !follow(x)) *wrong = 1;
    return buf;
}

enum { NO_SECTION = 13 }; // MPI_ERR_ARG of this ABI

static void done(struct part *p) {
    if (p->made) PMPI_Type_free(&p->type);
}

static void ends(MPI_Comm comm, int rc, int wrong, MPI_Fint *ierr) {
    if (wrong) PMPI_Comm_call_errhandler(comm, rc = NO_SECTION);
    fortran_set(ierr, rc);
}

// What stands at the end of a call: nothing, a request, or an info and a request.
#define PLAIN_PARAM
#define PLAIN_ARG
#define PLAIN_OUT
#define ASYNC_PARAM , MPI_Fint *request
#define ASYNC_ARG , &made
#define ASYNC_OUT \
    if (!wrong && rc == MPI_SUCCESS) *request = PMPI_Request_c2f(made);
#define INIT_PARAM , MPI_Fint *info, MPI_Fint *request
#define INIT_ARG , PMPI_Info_f2c(*info), &made
#define INIT_OUT ASYNC_OUT

#define BEGIN                            \
    MPI_Comm c = PMPI_Comm_f2c(*comm);   \
    MPI_Request made = MPI_REQUEST_NULL; \
    int rc = MPI_SUCCESS, wrong = 0;     \
    (void)made;

#define END(sort) sort##_OUT ends(c, rc, wrong, ierr);

// name(buf, count, type, root, comm)
#define BCAST(name, mixed, COUNT, DISP, sort)                                              \
    EXPORT void name(CFI_cdesc_t *x, COUNT *count, MPI_Fint *type, MPI_Fint *root,         \
                     MPI_Fint *comm sort##_PARAM, MPI_Fint *ierr) {                        \
        BEGIN struct part p = part(x, *count, *type);                                      \
        wrong = p.wrong;                                                                   \
        if (!wrong) rc = PMPI_##mixed(p.buf, (COUNT)p.count, p.type, *root, c sort##_ARG); \
        done(&p);                                                                          \
        END(sort)                                                                          \
    }

// name(buf, count, type, buf, count, type, comm)
#define ALL(name, mixed, COUNT, DISP, sort)                                                               \
    EXPORT void name(CFI_cdesc_t *x1, COUNT *sendcount, MPI_Fint *sendtype, CFI_cdesc_t *x2,              \
                     COUNT *recvcount, MPI_Fint *recvtype, MPI_Fint *comm sort##_PARAM, MPI_Fint *ierr) { \
        BEGIN struct part s = part(x1, *sendcount, *sendtype);                                            \
        void *to = whole(x2, &wrong);                                                                     \
        wrong |= s.wrong;                                                                                 \
        if (!wrong)                                                                                       \
            rc = PMPI_##mixed(s.buf, (COUNT)s.count, s.type, to, *recvcount, PMPI_Type_f2c(*recvtype),    \
                              c sort##_ARG);                                                              \
        done(&s);                                                                                         \
        END(sort)                                                                                         \
    }

// The same, and the count of the first buffer is for each member.
#define TO(name, mixed, COUNT, DISP, sort)                                                                \
    EXPORT void name(CFI_cdesc_t *x1, COUNT *sendcount, MPI_Fint *sendtype, CFI_cdesc_t *x2,              \
                     COUNT *recvcount, MPI_Fint *recvtype, MPI_Fint *comm sort##_PARAM, MPI_Fint *ierr) { \
        BEGIN void *from = whole(x1, &wrong), *to = whole(x2, &wrong);                                    \
        if (!wrong)                                                                                       \
            rc = PMPI_##mixed(from, *sendcount, PMPI_Type_f2c(*sendtype), to, *recvcount,                 \
                              PMPI_Type_f2c(*recvtype), c sort##_ARG);                                    \
        END(sort)                                                                                         \
    }

// name(buf, count, type, buf, counts, displacements, type, comm)
#define ALLV(name, mixed, COUNT, DISP, sort)                                                           \
    EXPORT void name(CFI_cdesc_t *x1, COUNT *sendcount, MPI_Fint *sendtype, CFI_cdesc_t *x2,           \
                     COUNT *recvcounts, DISP *displs, MPI_Fint *recvtype, MPI_Fint *comm sort##_PARAM, \
                     MPI_Fint *ierr) {                                                                 \
        BEGIN struct part s = part(x1, *sendcount, *sendtype);                                         \
        void *to = whole(x2, &wrong);                                                                  \
        wrong |= s.wrong;                                                                              \
        if (!wrong)                                                                                    \
            rc = PMPI_##mixed(s.buf, (COUNT)s.count, s.type, to, recvcounts, displs,                   \
                              PMPI_Type_f2c(*recvtype), c sort##_ARG);                                 \
        done(&s);                                                                                      \
        END(sort)                                                                                      \
    }

// name(buf, counts, displacements, type, buf, counts, displacements, type, comm)
#define TOV(name, mixed, COUNT, DISP, sort)                                                                  \
    EXPORT void name(CFI_cdesc_t *x1, COUNT *sendcounts, DISP *sdispls, MPI_Fint *sendtype, CFI_cdesc_t *x2, \
                     COUNT *recvcounts, DISP *rdispls, MPI_Fint *recvtype, MPI_Fint *comm sort##_PARAM,      \
                     MPI_Fint *ierr) {                                                                       \
        BEGIN void *from = whole(x1, &wrong), *to = whole(x2, &wrong);                                       \
        if (!wrong)                                                                                          \
            rc = PMPI_##mixed(from, sendcounts, sdispls, PMPI_Type_f2c(*sendtype), to, recvcounts, rdispls,  \
                              PMPI_Type_f2c(*recvtype), c sort##_ARG);                                       \
        END(sort)                                                                                            \
    }

// name(buf, counts, displacements, types, buf, counts, displacements, types, comm)
#define TOW(name, mixed, COUNT, DISP, sort, neighbors)                                                 \
    EXPORT void name(CFI_cdesc_t *x1, COUNT *sendcounts, DISP *sdispls, MPI_Fint *sendtypes,           \
                     CFI_cdesc_t *x2, COUNT *recvcounts, DISP *rdispls, MPI_Fint *recvtypes,           \
                     MPI_Fint *comm sort##_PARAM, MPI_Fint *ierr) {                                    \
        BEGIN void *from = whole(x1, &wrong), *to = whole(x2, &wrong);                                 \
        int out = 0, in = 0;                                                                           \
        ckpt_front_blocks(c, neighbors, &out, &in);                                                    \
        MPI_Datatype *s = fortran_types(from == FORTRAN_IN_PLACE ? 0 : out, sendtypes),                \
                     *t = fortran_types(in, recvtypes);                                                \
        if (!wrong)                                                                                    \
            rc = PMPI_##mixed(from, sendcounts, sdispls, s, to, recvcounts, rdispls, t, c sort##_ARG); \
        free(s);                                                                                       \
        free(t);                                                                                       \
        END(sort)                                                                                      \
    }

// name(buf, count, type, buf, count, type, root, comm)
#define GATHER(name, mixed, COUNT, DISP, sort)                                                          \
    EXPORT void name(CFI_cdesc_t *x1, COUNT *sendcount, MPI_Fint *sendtype, CFI_cdesc_t *x2,            \
                     COUNT *recvcount, MPI_Fint *recvtype, MPI_Fint *root, MPI_Fint *comm sort##_PARAM, \
                     MPI_Fint *ierr) {                                                                  \
        BEGIN struct part s = part(x1, *sendcount, *sendtype);                                          \
        void *to = whole(x2, &wrong);                                                                   \
        wrong |= s.wrong;                                                                               \
        if (!wrong)                                                                                     \
            rc = PMPI_##mixed(s.buf, (COUNT)s.count, s.type, to, *recvcount, PMPI_Type_f2c(*recvtype),  \
                              *root, c sort##_ARG);                                                     \
        done(&s);                                                                                       \
        END(sort)                                                                                       \
    }
#define SCATTER(name, mixed, COUNT, DISP, sort)                                                          \
    EXPORT void name(CFI_cdesc_t *x1, COUNT *sendcount, MPI_Fint *sendtype, CFI_cdesc_t *x2,             \
                     COUNT *recvcount, MPI_Fint *recvtype, MPI_Fint *root, MPI_Fint *comm sort##_PARAM,  \
                     MPI_Fint *ierr) {                                                                   \
        BEGIN void *from = whole(x1, &wrong);                                                            \
        struct part r = part(x2, *recvcount, *recvtype);                                                 \
        wrong |= r.wrong;                                                                                \
        if (!wrong)                                                                                      \
            rc = PMPI_##mixed(from, *sendcount, PMPI_Type_f2c(*sendtype), r.buf, (COUNT)r.count, r.type, \
                              *root, c sort##_ARG);                                                      \
        done(&r);                                                                                        \
        END(sort)                                                                                        \
    }

// name(buf, count, type, buf, counts, displacements, type, root, comm)
#define GATHERV(name, mixed, COUNT, DISP, sort)                                              \
    EXPORT void name(CFI_cdesc_t *x1, COUNT *sendcount, MPI_Fint *sendtype, CFI_cdesc_t *x2, \
                     COUNT *recvcounts, DISP *displs, MPI_Fint *recvtype, MPI_Fint *root,    \
                     MPI_Fint *comm sort##_PARAM, MPI_Fint *ierr) {                          \
        BEGIN struct part s = part(x1, *sendcount, *sendtype);                               \
        void *to = whole(x2, &wrong);                                                        \
        wrong |= s.wrong;                                                                    \
        if (!wrong)                                                                          \
            rc = PMPI_##mixed(s.buf, (COUNT)s.count, s.type, to, recvcounts, displs,         \
                              PMPI_Type_f2c(*recvtype), *root, c sort##_ARG);                \
        done(&s);                                                                            \
        END(sort)                                                                            \
    }

// name(buf, counts, displacements, type, buf, count, type, root, comm)
#define SCATTERV(name, mixed, COUNT, DISP, sort)                                                            \
    EXPORT void name(CFI_cdesc_t *x1, COUNT *sendcounts, DISP *displs, MPI_Fint *sendtype, CFI_cdesc_t *x2, \
                     COUNT *recvcount, MPI_Fint *recvtype, MPI_Fint *root, MPI_Fint *comm sort##_PARAM,     \
                     MPI_Fint *ierr) {                                                                      \
        BEGIN void *from = whole(x1, &wrong);                                                               \
        struct part r = part(x2, *recvcount, *recvtype);                                                    \
        wrong |= r.wrong;                                                                                   \
        if (!wrong)                                                                                         \
            rc = PMPI_##mixed(from, sendcounts, displs, PMPI_Type_f2c(*sendtype), r.buf, (COUNT)r.count,    \
                              r.type, *root, c sort##_ARG);                                                 \
        done(&r);                                                                                           \
        END(sort)                                                                                           \
    }

// Each with counts of 32 bits, and with large ones.
#define BOTH(SHAPE, lower, mixed, DISP, sort, ...)                                            \
    SHAPE(ompi_##lower##_wrapper_f08, mixed, MPI_Fint, DISP, sort __VA_OPT__(, ) __VA_ARGS__) \
    SHAPE(ompi_##lower##_wrapper_f08_c, mixed##_c, MPI_Count, MPI_Aint, sort __VA_OPT__(, ) __VA_ARGS__)
// Each in its three forms.
#define FORMS(SHAPE, lower, mixed, async_mixed, ...)                               \
    BOTH(SHAPE, lower, mixed, MPI_Fint, PLAIN __VA_OPT__(, ) __VA_ARGS__)          \
    BOTH(SHAPE, i##lower, async_mixed, MPI_Fint, ASYNC __VA_OPT__(, ) __VA_ARGS__) \
    BOTH(SHAPE, lower##_init, mixed##_init, MPI_Fint, INIT __VA_OPT__(, ) __VA_ARGS__)

FORMS(BCAST, bcast, Bcast, Ibcast)
FORMS(ALL, allgather, Allgather, Iallgather)
FORMS(TO, alltoall, Alltoall, Ialltoall)
FORMS(ALLV, allgatherv, Allgatherv, Iallgatherv)
FORMS(TOV, alltoallv, Alltoallv, Ialltoallv)
FORMS(TOW, alltoallw, Alltoallw, Ialltoallw, 0)
FORMS(GATHER, gather, Gather, Igather)
FORMS(SCATTER, scatter, Scatter, Iscatter)
FORMS(GATHERV, gatherv, Gatherv, Igatherv)
FORMS(SCATTERV, scatterv, Scatterv, Iscatterv)
BOTH(TOW, neighbor_alltoallw, Neighbor_alltoallw, MPI_Aint, PLAIN, 1)
BOTH(TOW, ineighbor_alltoallw, Ineighbor_alltoallw, MPI_Aint, ASYNC, 1)
BOTH(TOW, neighbor_alltoallw_init, Neighbor_alltoallw_init, MPI_Aint, INIT, 1)

// ---- requests: as in libmpi_mpifh, where these are ours ----

void ompi_waitall_f(MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *);
void ompi_testany_f(MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *);

EXPORT void ompi_waitall_wrapper_f08(MPI_Fint *count, MPI_Fint *requests, MPI_Fint *statuses,
                                     MPI_Fint *ierr) {
    ompi_waitall_f(count, requests, statuses, ierr);
}

EXPORT void ompi_testany_wrapper_f08(MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *flag,
                                     MPI_Fint *status, MPI_Fint *ierr) {
    ompi_testany_f(count, requests, index, flag, status, ierr);
}
