// SPDX-License-Identifier: Apache-2.0
//
// openmpi_mpifh5.c: what else is ours in libmpi_mpifh.so.40 of Open MPI 5 and 6, whose functions here look into the objects
// behind handles: into requests of collective calls with arrays, into communicators, and into infos.
#include <stdlib.h>
#include <string.h>

#include "front/abi/openmpi_fortran.h"

// Programs and other libraries know these by their names: no header of ours declares them.
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define EXPORT __attribute__((visibility("default")))

// ---- collective calls: those that do not block, and persistent ones ----

// Hands out the request that a call has made.
static void made(int rc, MPI_Request r, MPI_Fint *request, MPI_Fint *ierr) {
    if (rc == MPI_SUCCESS) *request = PMPI_Request_c2f(r);
    fortran_set(ierr, rc);
}

// Each call comes as MPI_Iname, and as MPI_name_init, which has an info before the request.
#define INFO_PARAM , MPI_Fint *info
#define INFO_VALUE , PMPI_Info_f2c(*info)

#define GATHERV(lower, upper, mixed, info_param, info_value)                                                 \
    EXPORT void ompi_##lower##_f(void *sendbuf, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recvbuf,      \
                                 MPI_Fint *recvcounts, MPI_Fint *displs, MPI_Fint *recvtype, MPI_Fint *root, \
                                 MPI_Fint *comm info_param, MPI_Fint *request, MPI_Fint *ierr) {             \
        MPI_Request r;                                                                                       \
        int rc = PMPI_##mixed(fortran_address(sendbuf), *sendcount, PMPI_Type_f2c(*sendtype),                \
                              fortran_address(recvbuf), recvcounts, displs, PMPI_Type_f2c(*recvtype), *root, \
                              PMPI_Comm_f2c(*comm) info_value, &r);                                          \
        made(rc, r, request, ierr);                                                                          \
    }                                                                                                        \
    FORTRAN_NAMES(lower, upper, mixed)

#define SCATTERV(lower, upper, mixed, info_param, info_value)                                               \
    EXPORT void ompi_##lower##_f(void *sendbuf, MPI_Fint *sendcounts, MPI_Fint *displs, MPI_Fint *sendtype, \
                                 void *recvbuf, MPI_Fint *recvcount, MPI_Fint *recvtype, MPI_Fint *root,    \
                                 MPI_Fint *comm info_param, MPI_Fint *request, MPI_Fint *ierr) {            \
        MPI_Request r;                                                                                      \
        int rc = PMPI_##mixed(fortran_address(sendbuf), sendcounts, displs, PMPI_Type_f2c(*sendtype),       \
                              fortran_address(recvbuf), *recvcount, PMPI_Type_f2c(*recvtype), *root,        \
                              PMPI_Comm_f2c(*comm) info_value, &r);                                         \
        made(rc, r, request, ierr);                                                                         \
    }                                                                                                       \
    FORTRAN_NAMES(lower, upper, mixed)

#define ALLGATHERV(lower, upper, mixed, info_param, info_value)                                         \
    EXPORT void ompi_##lower##_f(void *sendbuf, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recvbuf, \
                                 MPI_Fint *recvcounts, MPI_Fint *displs, MPI_Fint *recvtype,            \
                                 MPI_Fint *comm info_param, MPI_Fint *request, MPI_Fint *ierr) {        \
        MPI_Request r;                                                                                  \
        int rc = PMPI_##mixed(fortran_address(sendbuf), *sendcount, PMPI_Type_f2c(*sendtype),           \
                              fortran_address(recvbuf), recvcounts, displs, PMPI_Type_f2c(*recvtype),   \
                              PMPI_Comm_f2c(*comm) info_value, &r);                                     \
        made(rc, r, request, ierr);                                                                     \
    }                                                                                                   \
    FORTRAN_NAMES(lower, upper, mixed)

#define ALLTOALLV(lower, upper, mixed, info_param, info_value)                                               \
    EXPORT void ompi_##lower##_f(void *sendbuf, MPI_Fint *sendcounts, MPI_Fint *sdispls, MPI_Fint *sendtype, \
                                 void *recvbuf, MPI_Fint *recvcounts, MPI_Fint *rdispls, MPI_Fint *recvtype, \
                                 MPI_Fint *comm info_param, MPI_Fint *request, MPI_Fint *ierr) {             \
        MPI_Request r;                                                                                       \
        int rc = PMPI_##mixed(fortran_address(sendbuf), sendcounts, sdispls, PMPI_Type_f2c(*sendtype),       \
                              fortran_address(recvbuf), recvcounts, rdispls, PMPI_Type_f2c(*recvtype),       \
                              PMPI_Comm_f2c(*comm) info_value, &r);                                          \
        made(rc, r, request, ierr);                                                                          \
    }                                                                                                        \
    FORTRAN_NAMES(lower, upper, mixed)

#define REDUCE_SCATTER(lower, upper, mixed, info_param, info_value)                                         \
    EXPORT void ompi_##lower##_f(void *sendbuf, void *recvbuf, MPI_Fint *recvcounts, MPI_Fint *type,        \
                                 MPI_Fint *op, MPI_Fint *comm info_param, MPI_Fint *request,                \
                                 MPI_Fint *ierr) {                                                          \
        MPI_Request r;                                                                                      \
        int rc = PMPI_##mixed(fortran_address(sendbuf), fortran_address(recvbuf), recvcounts,               \
                              PMPI_Type_f2c(*type), PMPI_Op_f2c(*op), PMPI_Comm_f2c(*comm) info_value, &r); \
        made(rc, r, request, ierr);                                                                         \
    }                                                                                                       \
    FORTRAN_NAMES(lower, upper, mixed)

// A datatype for each member, or for each neighbour, whose displacements are addresses. The MPI below takes a copy.
#define ALLTOALLW(lower, upper, mixed, neighbors, displacement, info_param, info_value)                    \
    EXPORT void ompi_##lower##_f(void *sendbuf, MPI_Fint *sendcounts, displacement *sdispls,               \
                                 MPI_Fint *sendtypes, void *recvbuf, MPI_Fint *recvcounts,                 \
                                 displacement *rdispls, MPI_Fint *recvtypes, MPI_Fint *comm info_param,    \
                                 MPI_Fint *request, MPI_Fint *ierr) {                                      \
        MPI_Request r;                                                                                     \
        MPI_Comm c = PMPI_Comm_f2c(*comm);                                                                 \
        void *from = fortran_address(sendbuf);                                                             \
        int out = 0, in = 0;                                                                               \
        ckpt_front_blocks(c, neighbors, &out, &in);                                                        \
        MPI_Datatype *s = fortran_types(from == FORTRAN_IN_PLACE ? 0 : out, sendtypes),                    \
                     *t = fortran_types(in, recvtypes);                                                    \
        int rc = PMPI_##mixed(from, sendcounts, sdispls, s, fortran_address(recvbuf), recvcounts, rdispls, \
                              t, c info_value, &r);                                                        \
        free(s);                                                                                           \
        free(t);                                                                                           \
        made(rc, r, request, ierr);                                                                        \
    }                                                                                                      \
    FORTRAN_NAMES(lower, upper, mixed)

GATHERV(igatherv, IGATHERV, Igatherv, , )
SCATTERV(iscatterv, ISCATTERV, Iscatterv, , )
ALLGATHERV(iallgatherv, IALLGATHERV, Iallgatherv, , )
ALLGATHERV(ineighbor_allgatherv, INEIGHBOR_ALLGATHERV, Ineighbor_allgatherv, , )
ALLTOALLV(ialltoallv, IALLTOALLV, Ialltoallv, , )
ALLTOALLV(ineighbor_alltoallv, INEIGHBOR_ALLTOALLV, Ineighbor_alltoallv, , )
ALLTOALLW(ineighbor_alltoallw, INEIGHBOR_ALLTOALLW, Ineighbor_alltoallw, 1, MPI_Aint, , )
REDUCE_SCATTER(ireduce_scatter, IREDUCE_SCATTER, Ireduce_scatter, , )

GATHERV(gatherv_init, GATHERV_INIT, Gatherv_init, INFO_PARAM, INFO_VALUE)
SCATTERV(scatterv_init, SCATTERV_INIT, Scatterv_init, INFO_PARAM, INFO_VALUE)
ALLGATHERV(allgatherv_init, ALLGATHERV_INIT, Allgatherv_init, INFO_PARAM, INFO_VALUE)
ALLGATHERV(neighbor_allgatherv_init, NEIGHBOR_ALLGATHERV_INIT, Neighbor_allgatherv_init, INFO_PARAM,
           INFO_VALUE)
ALLTOALLV(alltoallv_init, ALLTOALLV_INIT, Alltoallv_init, INFO_PARAM, INFO_VALUE)
ALLTOALLV(neighbor_alltoallv_init, NEIGHBOR_ALLTOALLV_INIT, Neighbor_alltoallv_init, INFO_PARAM, INFO_VALUE)
ALLTOALLW(alltoallw_init, ALLTOALLW_INIT, Alltoallw_init, 0, MPI_Fint, INFO_PARAM, INFO_VALUE)
ALLTOALLW(neighbor_alltoallw_init, NEIGHBOR_ALLTOALLW_INIT, Neighbor_alltoallw_init, 1, MPI_Aint, INFO_PARAM,
          INFO_VALUE)
REDUCE_SCATTER(reduce_scatter_init, REDUCE_SCATTER_INIT, Reduce_scatter_init, INFO_PARAM, INFO_VALUE)

// ---- infos: strings have blanks at their ends, and their lengths come last ----

static char *key_of(const char *key, int len) {
    while (len > 0 && *key == ' ') key++, len--;
    while (len > 0 && key[len - 1] == ' ') len--;
    char *c = ckpt_front_alloc((size_t)len + 1);
    memcpy(c, key, (size_t)len);
    return c;
}

static void blanks(char *to, int len, const char *from) {
    size_t n = strnlen(from, (size_t)len);
    memcpy(to, from, n);
    memset(to + n, ' ', (size_t)len - n);
}

EXPORT void ompi_info_get_f(MPI_Fint *info, char *key, MPI_Fint *valuelen, char *value, MPI_Fint *flag,
                            MPI_Fint *ierr, int key_len, int value_len) {
    (void)valuelen; // the length of the string is what there is room for
    char text[MPI_MAX_INFO_VAL + 1] = "", *k = key_of(key, key_len);
    int found = 0, rc = PMPI_Info_get(PMPI_Info_f2c(*info), k, MPI_MAX_INFO_VAL, text, &found);
    free(k);
    if (rc == MPI_SUCCESS) {
        *flag = found;
        if (found) blanks(value, value_len, text);
    }
    fortran_set(ierr, rc);
}
FORTRAN_NAMES(info_get, INFO_GET, Info_get)

EXPORT void ompi_info_get_string_f(MPI_Fint *info, char *key, MPI_Fint *buflen, char *value, MPI_Fint *flag,
                                   MPI_Fint *ierr, int key_len, int value_len) {
    char text[MPI_MAX_INFO_VAL + 1] = "", *k = key_of(key, key_len);
    int found = 0, length = sizeof text;
    int rc = PMPI_Info_get_string(PMPI_Info_f2c(*info), k, &length, text, &found);
    free(k);
    if (rc == MPI_SUCCESS) {
        *flag = found;
        if (found && *buflen > 0) blanks(value, value_len, text);
        if (found) *buflen = length - 1; // in C the length has a place for the zero
    }
    fortran_set(ierr, rc);
}
FORTRAN_NAMES(info_get_string, INFO_GET_STRING, Info_get_string)

EXPORT void ompi_info_get_valuelen_f(MPI_Fint *info, char *key, MPI_Fint *valuelen, MPI_Fint *flag,
                                     MPI_Fint *ierr, int key_len) {
    char *k = key_of(key, key_len);
    int found = 0, length = 0, rc = PMPI_Info_get_valuelen(PMPI_Info_f2c(*info), k, &length, &found);
    free(k);
    if (rc == MPI_SUCCESS) {
        *flag = found;
        if (found) *valuelen = length;
    }
    fortran_set(ierr, rc);
}
FORTRAN_NAMES(info_get_valuelen, INFO_GET_VALUELEN, Info_get_valuelen)

EXPORT void ompi_info_get_nthkey_f(MPI_Fint *info, MPI_Fint *n, char *key, MPI_Fint *ierr, int key_len) {
    char text[MPI_MAX_INFO_KEY + 1] = "";
    int rc = PMPI_Info_get_nthkey(PMPI_Info_f2c(*info), *n, text);
    if (rc == MPI_SUCCESS) blanks(key, key_len, text);
    fortran_set(ierr, rc);
}
FORTRAN_NAMES(info_get_nthkey, INFO_GET_NTHKEY, Info_get_nthkey)
