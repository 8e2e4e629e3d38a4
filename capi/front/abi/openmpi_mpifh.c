// SPDX-License-Identifier: Apache-2.0
//
// openmpi_mpifh.c: our part of libmpi_mpifh.so.40, the Fortran companion of Open MPI.
//
// This library has the real library's name, so that the linker finds it first, and needs the real
// library, which has all functions that are not here.  Here are those functions that look into the
// object behind a handle instead of asking libmpi.
#include <stdlib.h>

#include "front/abi/openmpi_fortran.h"
#include "front/gen/zz_mpifh.h"

// Programs and other libraries know these by their names: no header of ours declares them.
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define EXPORT __attribute__((visibility("default")))

#define set fortran_set // what each function ends with

// ---- groups ----

#define GROUP_PAIR(name)                                                                          \
    EXPORT void ompi_group_##name##_f(MPI_Fint *a, MPI_Fint *b, MPI_Fint *made, MPI_Fint *ierr) { \
        MPI_Group g;                                                                              \
        int rc = PMPI_Group_##name(PMPI_Group_f2c(*a), PMPI_Group_f2c(*b), &g);                   \
        if (rc == MPI_SUCCESS) *made = PMPI_Group_c2f(g);                                         \
        set(ierr, rc);                                                                            \
    }
GROUP_PAIR(difference)
GROUP_PAIR(intersection)
GROUP_PAIR(union)

#define GROUP_RANKS(name, type)                                                                 \
    EXPORT void ompi_group_##name##_f(MPI_Fint *group, MPI_Fint *n, type ranks, MPI_Fint *made, \
                                      MPI_Fint *ierr) {                                         \
        MPI_Group g;                                                                            \
        int rc = PMPI_Group_##name(PMPI_Group_f2c(*group), *n, ranks, &g);                      \
        if (rc == MPI_SUCCESS) *made = PMPI_Group_c2f(g);                                       \
        set(ierr, rc);                                                                          \
    }
typedef int (*triples)[3];
GROUP_RANKS(excl, MPI_Fint *)
GROUP_RANKS(incl, MPI_Fint *)
GROUP_RANKS(range_excl, triples)
GROUP_RANKS(range_incl, triples)

// ---- attributes ----

#define ATTRS(lower, sort)                                                                     \
    EXPORT void ompi_##lower##_set_attr_f(MPI_Fint *object, MPI_Fint *keyval, MPI_Aint *value, \
                                          MPI_Fint *ierr) {                                    \
        set(ierr, ckpt_front_attr_set(sort, *object, *keyval, *value, FRONT_ATTR_AINT));       \
    }                                                                                          \
    EXPORT void ompi_##lower##_get_attr_f(MPI_Fint *object, MPI_Fint *keyval, MPI_Aint *value, \
                                          MPI_Fint *flag, MPI_Fint *ierr) {                    \
        set(ierr, ckpt_front_attr_get(sort, *object, *keyval, value, flag));                   \
    }
ATTRS(comm, FRONT_COMM)
ATTRS(type, FRONT_TYPE)
ATTRS(win, FRONT_WIN)

EXPORT void ompi_attr_put_f(MPI_Fint *comm, MPI_Fint *keyval, MPI_Fint *value, MPI_Fint *ierr) {
    set(ierr, ckpt_front_attr_set(FRONT_COMM, *comm, *keyval, *value, FRONT_ATTR_FINT));
}

EXPORT void ompi_attr_get_f(MPI_Fint *comm, MPI_Fint *keyval, MPI_Fint *value, MPI_Fint *flag,
                            MPI_Fint *ierr) {
    long v = 0;
    int rc = ckpt_front_attr_get(FRONT_COMM, *comm, *keyval, &v, flag);
    if (rc == MPI_SUCCESS && *flag) *value = (MPI_Fint)v;
    set(ierr, rc);
}

// ---- operations, datatypes, data representations ----

EXPORT void ompi_op_create_f(void *function, MPI_Fint *commute, MPI_Fint *op, MPI_Fint *ierr) {
    set(ierr, ckpt_front_op_create(function, *commute != 0, op));
}

EXPORT void ompi_grequest_start_f(void *query, void *free_fn, void *cancel, MPI_Aint *extra,
                                  MPI_Fint *request, MPI_Fint *ierr) {
    set(ierr, ckpt_front_grequest_start(query, free_fn, cancel, extra, request));
}

EXPORT void ompi_type_match_size_f(MPI_Fint *class, MPI_Fint *size, MPI_Fint *type, MPI_Fint *ierr) {
    MPI_Datatype t;
    int rc = PMPI_Type_match_size(*class, *size, &t);
    if (rc == MPI_SUCCESS) *type = PMPI_Type_c2f(t);
    set(ierr, rc);
}

extern void mpi_conversion_fn_null_(void);

// In Fortran MPI_CONVERSION_FN_NULL is a function.
static void *conversion(void *function) {
    return function == (void *)mpi_conversion_fn_null_ ? NULL : function;
}

EXPORT void ompi_register_datarep_f(char *name, void *read, void *write, void *extent, MPI_Aint *extra,
                                    MPI_Fint *ierr, int len) {
    char text[256] = "";
    while (len > 0 && name[len - 1] == ' ') len--;
    for (int i = 0; i < len && i < (int)sizeof text - 1; i++) text[i] = name[i];
    set(ierr, PMPI_Register_datarep(text, conversion(read), conversion(write), extent, extra));
}

// ---- requests ----

extern MPI_Fint mpi_fortran_status_ignore_[], mpi_fortran_statuses_ignore_[];
enum { STATUS_INTS = sizeof(MPI_Status) / sizeof(MPI_Fint) };

// The module mpi_f08 passes the same addresses for ignored statuses.
static int wanted(const MPI_Fint *status) {
    return status != mpi_fortran_status_ignore_ && status != mpi_fortran_statuses_ignore_;
}

EXPORT void ompi_request_free_f(MPI_Fint *request, MPI_Fint *ierr) {
    MPI_Request r = PMPI_Request_f2c(*request);
    int rc = PMPI_Request_free(&r);
    if (rc == MPI_SUCCESS) *request = PMPI_Request_c2f(r);
    set(ierr, rc);
}

EXPORT void ompi_wait_f(MPI_Fint *request, MPI_Fint *status, MPI_Fint *ierr) {
    MPI_Request r = PMPI_Request_f2c(*request);
    MPI_Status s;
    int rc = PMPI_Wait(&r, wanted(status) ? &s : MPI_STATUS_IGNORE);
    if (rc == MPI_SUCCESS) {
        *request = PMPI_Request_c2f(r);
        if (wanted(status)) PMPI_Status_c2f(&s, status);
    }
    set(ierr, rc);
}

EXPORT void ompi_test_f(MPI_Fint *request, MPI_Fint *flag, MPI_Fint *status, MPI_Fint *ierr) {
    MPI_Request r = PMPI_Request_f2c(*request);
    MPI_Status s;
    int rc = PMPI_Test(&r, flag, wanted(status) ? &s : MPI_STATUS_IGNORE);
    if (rc == MPI_SUCCESS && *flag) {
        *request = PMPI_Request_c2f(r);
        if (wanted(status)) PMPI_Status_c2f(&s, status);
    }
    set(ierr, rc);
}

// The requests of one call as C handles, and the statuses when the caller wants them.
struct batch {
    int n;
    MPI_Request *requests, small[16];
    MPI_Status *statuses, small_statuses[16];
};

static void begin(struct batch *b, int n, const MPI_Fint *requests, const MPI_Fint *statuses) {
    b->n = n > 0 ? n : 0;
    b->requests = b->small;
    b->statuses = b->small_statuses;
    if (b->n > 16) {
        b->requests = ckpt_front_alloc((size_t)b->n * sizeof *b->requests);
        b->statuses = ckpt_front_alloc((size_t)b->n * sizeof *b->statuses);
    }
    for (int i = 0; i < b->n; i++) b->requests[i] = PMPI_Request_f2c(requests[i]);
    if (!wanted(statuses)) {
        if (b->statuses != b->small_statuses) free(b->statuses);
        b->statuses = MPI_STATUS_IGNORE;
    }
}

// Writes back all requests, and the first n statuses.
static void end(struct batch *b, MPI_Fint *requests, int n, MPI_Fint *statuses) {
    for (int i = 0; i < b->n; i++) requests[i] = PMPI_Request_c2f(b->requests[i]);
    if (b->statuses != MPI_STATUS_IGNORE)
        for (int i = 0; i < n; i++) PMPI_Status_c2f(&b->statuses[i], statuses + (size_t)i * STATUS_INTS);
    if (b->requests != b->small) free(b->requests);
    if (b->statuses != b->small_statuses) free(b->statuses);
}

// When the call failed for some requests, the statuses say for each one what happened.
EXPORT void ompi_waitall_f(MPI_Fint *count, MPI_Fint *requests, MPI_Fint *statuses, MPI_Fint *ierr) {
    struct batch b;
    begin(&b, *count, requests, statuses);
    int rc = PMPI_Waitall(b.n, b.requests, b.statuses);
    end(&b, requests, b.n, statuses);
    set(ierr, rc);
}

EXPORT void ompi_testall_f(MPI_Fint *count, MPI_Fint *requests, MPI_Fint *flag, MPI_Fint *statuses,
                           MPI_Fint *ierr) {
    struct batch b;
    begin(&b, *count, requests, statuses);
    int rc = PMPI_Testall(b.n, b.requests, flag, b.statuses);
    end(&b, requests, rc == MPI_SUCCESS && !*flag ? 0 : b.n, statuses);
    set(ierr, rc);
}

// Indices count from 1 in Fortran.
static void index_out(MPI_Fint *index) {
    if (*index != MPI_UNDEFINED) ++*index;
}

EXPORT void ompi_waitany_f(MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *status,
                           MPI_Fint *ierr) {
    struct batch b;
    begin(&b, *count, requests, status);
    MPI_Status s;
    int rc = PMPI_Waitany(b.n, b.requests, index, &s);
    end(&b, requests, 0, status);
    if (rc == MPI_SUCCESS) {
        index_out(index);
        if (wanted(status)) PMPI_Status_c2f(&s, status);
    }
    set(ierr, rc);
}

EXPORT void ompi_testany_f(MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *flag,
                           MPI_Fint *status, MPI_Fint *ierr) {
    struct batch b;
    begin(&b, *count, requests, status);
    MPI_Status s;
    int rc = PMPI_Testany(b.n, b.requests, index, flag, &s);
    end(&b, requests, 0, status);
    if (rc == MPI_SUCCESS && *flag) {
        index_out(index);
        if (wanted(status)) PMPI_Status_c2f(&s, status);
    }
    set(ierr, rc);
}

static void some(int (*call)(int, MPI_Request *, int *, int *, MPI_Status *), MPI_Fint *count,
                 MPI_Fint *requests, MPI_Fint *done, MPI_Fint *indices, MPI_Fint *statuses, MPI_Fint *ierr) {
    struct batch b;
    begin(&b, *count, requests, statuses);
    int rc = call(b.n, b.requests, done, indices, b.statuses);
    int n = *done == MPI_UNDEFINED ? 0 : *done;
    end(&b, requests, n, statuses);
    for (int i = 0; i < n; i++) index_out(&indices[i]);
    set(ierr, rc);
}

EXPORT void ompi_waitsome_f(MPI_Fint *count, MPI_Fint *requests, MPI_Fint *done, MPI_Fint *indices,
                            MPI_Fint *statuses, MPI_Fint *ierr) {
    some(PMPI_Waitsome, count, requests, done, indices, statuses, ierr);
}

EXPORT void ompi_testsome_f(MPI_Fint *count, MPI_Fint *requests, MPI_Fint *done, MPI_Fint *indices,
                            MPI_Fint *statuses, MPI_Fint *ierr) {
    some(PMPI_Testsome, count, requests, done, indices, statuses, ierr);
}

// ---- a datatype for each member ----

// A call that does not block has its own copy of the datatypes when it returns.
static int alltoallw(void *sendbuf, const MPI_Fint *sendcounts, const MPI_Fint *sdispls,
                     const MPI_Fint *sendtypes, void *recvbuf, const MPI_Fint *recvcounts,
                     const MPI_Fint *rdispls, const MPI_Fint *recvtypes, MPI_Fint comm,
                     MPI_Request *request) {
    MPI_Comm c = PMPI_Comm_f2c(comm);
    void *from = fortran_address(sendbuf), *to = fortran_address(recvbuf);
    int n = 0;
    ckpt_front_blocks(c, 0, &n, &n);
    // With MPI_IN_PLACE the argument may be one value instead of an array.
    MPI_Datatype *s = fortran_types(from == FORTRAN_IN_PLACE ? 0 : n, sendtypes),
                 *r = fortran_types(n, recvtypes);
    int rc;
    if (request == NULL)
        rc = PMPI_Alltoallw(from, sendcounts, sdispls, s, to, recvcounts, rdispls, r, c);
    else
        rc = PMPI_Ialltoallw(from, sendcounts, sdispls, s, to, recvcounts, rdispls, r, c, request);
    free(s);
    free(r);
    return rc;
}

EXPORT void ompi_alltoallw_f(void *sendbuf, MPI_Fint *sendcounts, MPI_Fint *sdispls, MPI_Fint *sendtypes,
                             void *recvbuf, MPI_Fint *recvcounts, MPI_Fint *rdispls, MPI_Fint *recvtypes,
                             MPI_Fint *comm, MPI_Fint *ierr) {
    set(ierr, alltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes,
                        *comm, NULL));
}

EXPORT void ompi_ialltoallw_f(void *sendbuf, MPI_Fint *sendcounts, MPI_Fint *sdispls, MPI_Fint *sendtypes,
                              void *recvbuf, MPI_Fint *recvcounts, MPI_Fint *rdispls, MPI_Fint *recvtypes,
                              MPI_Fint *comm, MPI_Fint *request, MPI_Fint *ierr) {
    MPI_Request made;
    int rc = alltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes,
                       *comm, &made);
    if (rc == MPI_SUCCESS) *request = PMPI_Request_c2f(made);
    set(ierr, rc);
}

// ---- names ----

MPIFH_FUNCTIONS(FORTRAN_NAMES)
