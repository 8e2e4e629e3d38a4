// SPDX-License-Identifier: Apache-2.0
//
// comm.c: communicators.  The back makes them; their names, attributes and error handlers are kept here.
#include <stdlib.h>
#include <string.h>

#include "front/front.h"

static int comm_error(ckpt_vid comm, unsigned fn, long rc) { return front_error(FRONT_COMM, comm, fn, rc); }

FRONT(int, Comm_rank, (MPI_Comm comm, int *rank)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_RANK, rank != NULL);
    const ckpt_slot *s = front_slot(CKPT_FN_MPI_COMM_RANK, CKPT_KIND_COMM, in_comm(comm));
    if (__builtin_expect(front_is_null(CKPT_KIND_COMM, s), 0)) return FRONT_ERR(CKPT_FN_MPI_COMM_RANK, COMM);
    *rank = s->rank;
    return MPI_SUCCESS;
}

FRONT(int, Comm_size, (MPI_Comm comm, int *size)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_SIZE, size != NULL);
    const ckpt_slot *s = front_slot(CKPT_FN_MPI_COMM_SIZE, CKPT_KIND_COMM, in_comm(comm));
    if (__builtin_expect(front_is_null(CKPT_KIND_COMM, s), 0)) return FRONT_ERR(CKPT_FN_MPI_COMM_SIZE, COMM);
    *size = s->size;
    return MPI_SUCCESS;
}

MPI_Comm front_comm_made(ckpt_vid parent, ckpt_vid made) {
    if (CKPT_VID_INDEX(made) == 0) return MPI_COMM_NULL;
    ckpt_vid handler = front_side(FRONT_COMM, parent)->errhandler;
    front_errhandler_hold(handler);
    front_side(FRONT_COMM, made)->errhandler = handler;
    return out_comm(made);
}

// Makes a call that makes a communicator from parent; v is where the back put its id.
static int made(unsigned fn, ckpt_vid parent, const void *a, const ckpt_vid *v, MPI_Comm *newcomm) {
    long rc = front_call(fn, a);
    if (rc != 0) return comm_error(parent, fn, rc);
    *newcomm = front_comm_made(parent, *v);
    return MPI_SUCCESS;
}

FRONT(int, Comm_free, (MPI_Comm * comm));

static int dup(unsigned fn, MPI_Comm comm, const char *info, MPI_Comm *newcomm) {
    ckpt_vid parent = in_comm(comm), v = VID_COMM_NULL;
    const struct Comm_dup_words a = {.comm = parent, .newcomm = &v, .info = info};
    int rc = made(CKPT_FN_MPI_COMM_DUP, parent, &a, &v, newcomm);
    if (rc != MPI_SUCCESS) return rc;
    front_hints_made(FRONT_COMM, v, info);
    rc = front_attrs_copy(FRONT_COMM, parent, v);
    if (rc != MPI_SUCCESS) {
        PMPI_Comm_free(newcomm);
        *newcomm = MPI_COMM_NULL;
        return front_error_code(FRONT_COMM, parent, fn, rc);
    }
    return MPI_SUCCESS;
}

FRONT(int, Comm_dup, (MPI_Comm comm, MPI_Comm *newcomm)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_DUP, newcomm != NULL);
    return dup(CKPT_FN_MPI_COMM_DUP, comm, NULL, newcomm);
}

FRONT(int, Comm_dup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm *newcomm)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_DUP_WITH_INFO, newcomm != NULL);
    return dup(CKPT_FN_MPI_COMM_DUP_WITH_INFO, comm, in_info(info), newcomm);
}

FRONT(int, Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *newcomm)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_SPLIT, newcomm != NULL);
    ckpt_vid parent = in_comm(comm), v = VID_COMM_NULL;
    const struct Comm_split_words a = {.comm = parent, .color = color, .key = key, .newcomm = &v};
    return made(CKPT_FN_MPI_COMM_SPLIT, parent, &a, &v, newcomm);
}

// Up to 4.1 MPICH's number of MPIX_COMM_TYPE_NEIGHBORHOOD is that of MPI_COMM_TYPE_RESOURCE_GUIDED from 4.2 on: the
// hints tell which one is meant.
static int split_type_of(int split_type, const char *info) {
#if FRONT_ABI == 1
    if (split_type == 4 && info && (info_value(info, CANON_HW_RESOURCE) || info_value(info, "mpi_pset_name")))
        return CANON_COMM_TYPE_HW_GUIDED;
#endif
    (void)info;
    return in_split_type(split_type);
}

FRONT(int, Comm_split_type, (MPI_Comm comm, int split_type, int key, MPI_Info info, MPI_Comm *newcomm)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_SPLIT_TYPE, newcomm != NULL);
    ckpt_vid parent = in_comm(comm), v = VID_COMM_NULL;
    const char *content = in_info(info);
    char resource[CANON_HW_RESOURCE_BYTES] = "";
    int type = split_type_of(split_type, content), named = type == CANON_COMM_TYPE_HW_UNGUIDED && content;
    const struct Comm_split_type_words a = {.comm = parent,
                                            .split_type = type,
                                            .key = key,
                                            .info = content,
                                            .newcomm = &v,
                                            .resource = named ? resource : NULL};
    int rc = made(CKPT_FN_MPI_COMM_SPLIT_TYPE, parent, &a, &v, newcomm);
    if (rc == MPI_SUCCESS && *resource) front_info_set(info, CANON_HW_RESOURCE, resource);
    if (rc == MPI_SUCCESS && v != VID_COMM_NULL) front_hints_made(FRONT_COMM, v, content);
    return rc;
}

FRONT(int, Comm_create, (MPI_Comm comm, MPI_Group group, MPI_Comm *newcomm)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_CREATE, newcomm != NULL);
    ckpt_vid parent = in_comm(comm), v = VID_COMM_NULL;
    const ckpt_mpi_group *g = in_group(group);
    if (g == NULL) return comm_error(parent, CKPT_FN_MPI_COMM_CREATE, CANON_ERRCLASS_ERR_GROUP);
    const struct Comm_create_words a = {.comm = parent, .group = g, .newcomm = &v};
    return made(CKPT_FN_MPI_COMM_CREATE, parent, &a, &v, newcomm);
}

FRONT(int, Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *newcomm)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_CREATE_GROUP, newcomm != NULL);
    ckpt_vid parent = in_comm(comm), v = VID_COMM_NULL;
    const ckpt_mpi_group *g = in_group(group);
    if (g == NULL) return comm_error(parent, CKPT_FN_MPI_COMM_CREATE_GROUP, CANON_ERRCLASS_ERR_GROUP);
    const struct Comm_create_group_words a = {.comm = parent, .group = g, .tag = tag, .newcomm = &v};
    return made(CKPT_FN_MPI_COMM_CREATE_GROUP, parent, &a, &v, newcomm);
}

FRONT(int, Cart_create,
      (MPI_Comm old_comm, int ndims, const int *dims, const int *periods, int reorder, MPI_Comm *comm_cart)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(old_comm), CKPT_FN_MPI_CART_CREATE, comm_cart != NULL);
    ckpt_vid parent = in_comm(old_comm), v = VID_COMM_NULL;
    const struct Cart_create_words a = {.old_comm = parent,
                                        .ndims = ndims,
                                        .dims = dims,
                                        .periods = periods,
                                        .reorder = reorder,
                                        .comm_cart = &v};
    *comm_cart = MPI_COMM_NULL; // the result when there are too few processes
    return made(CKPT_FN_MPI_CART_CREATE, parent, &a, &v, comm_cart);
}

FRONT(int, Cart_sub, (MPI_Comm comm, const int *remain_dims, MPI_Comm *new_comm)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_CART_SUB, new_comm != NULL);
    ckpt_vid parent = in_comm(comm), v = VID_COMM_NULL;
    const struct Cart_sub_words a = {.comm = parent, .remain_dims = remain_dims, .new_comm = &v};
    return made(CKPT_FN_MPI_CART_SUB, parent, &a, &v, new_comm);
}

FRONT(int, Graph_create,
      (MPI_Comm comm_old, int nnodes, const int *index, const int *edges, int reorder,
       MPI_Comm *comm_graph)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm_old), CKPT_FN_MPI_GRAPH_CREATE, comm_graph != NULL);
    ckpt_vid parent = in_comm(comm_old), v = VID_COMM_NULL;
    const struct Graph_create_words a = {.comm_old = parent,
                                         .nnodes = nnodes,
                                         .index = index,
                                         .edges = edges,
                                         .reorder = reorder,
                                         .comm_graph = &v};
    *comm_graph = MPI_COMM_NULL;
    return made(CKPT_FN_MPI_GRAPH_CREATE, parent, &a, &v, comm_graph);
}

FRONT(int, Dist_graph_create_adjacent,
      (MPI_Comm comm_old, int indegree, const int *sources, const int *sourceweights, int outdegree,
       const int *destinations, const int *destweights, MPI_Info info, int reorder,
       MPI_Comm *comm_dist_graph)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm_old), CKPT_FN_MPI_DIST_GRAPH_CREATE_ADJACENT,
                comm_dist_graph != NULL);
    ckpt_vid parent = in_comm(comm_old), v = VID_COMM_NULL;
    const struct Dist_graph_create_adjacent_words a = {.comm_old = parent,
                                                       .indegree = indegree,
                                                       .sources = sources,
                                                       .sourceweights = in_weights(sourceweights),
                                                       .outdegree = outdegree,
                                                       .destinations = destinations,
                                                       .destweights = in_weights(destweights),
                                                       .info = in_info(info),
                                                       .reorder = reorder,
                                                       .comm_dist_graph = &v};
    return made(CKPT_FN_MPI_DIST_GRAPH_CREATE_ADJACENT, parent, &a, &v, comm_dist_graph);
}

FRONT(int, Dist_graph_create,
      (MPI_Comm comm_old, int n, const int *nodes, const int *degrees, const int *targets, const int *weights,
       MPI_Info info, int reorder, MPI_Comm *newcomm)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm_old), CKPT_FN_MPI_DIST_GRAPH_CREATE, newcomm != NULL);
    ckpt_vid parent = in_comm(comm_old), v = VID_COMM_NULL;
    const struct Dist_graph_create_words a = {.comm_old = parent,
                                              .n = n,
                                              .nodes = nodes,
                                              .degrees = degrees,
                                              .targets = targets,
                                              .weights = in_weights(weights),
                                              .info = in_info(info),
                                              .reorder = reorder,
                                              .newcomm = &v};
    return made(CKPT_FN_MPI_DIST_GRAPH_CREATE, parent, &a, &v, newcomm);
}

FRONT(int, Intercomm_create,
      (MPI_Comm local_comm, int local_leader, MPI_Comm bridge_comm, int remote_leader, int tag,
       MPI_Comm *newintercomm)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(local_comm), CKPT_FN_MPI_INTERCOMM_CREATE, newintercomm != NULL);
    ckpt_vid parent = in_comm(local_comm), v = VID_COMM_NULL;
    const struct Intercomm_create_words a = {.local_comm = parent,
                                             .local_leader = local_leader,
                                             .bridge_comm = in_comm(bridge_comm),
                                             .remote_leader = in_rank(remote_leader),
                                             .tag = tag,
                                             .newintercomm = &v};
    return made(CKPT_FN_MPI_INTERCOMM_CREATE, parent, &a, &v, newintercomm);
}

FRONT(int, Intercomm_merge, (MPI_Comm intercomm, int high, MPI_Comm *newintracomm)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(intercomm), CKPT_FN_MPI_INTERCOMM_MERGE, newintracomm != NULL);
    ckpt_vid parent = in_comm(intercomm), v = VID_COMM_NULL;
    const struct Intercomm_merge_words a = {.intercomm = parent, .high = high, .newintercomm = &v};
    return made(CKPT_FN_MPI_INTERCOMM_MERGE, parent, &a, &v, newintracomm);
}

// The handle of the new communicator is valid when the request is complete.
FRONT(int, Comm_idup, (MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_IDUP, newcomm != NULL);
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_IDUP, request != NULL);
    ckpt_vid parent = in_comm(comm), v = VID_COMM_NULL, r = VID_REQUEST_NULL;
    const struct Comm_idup_words a = {.comm = parent, .newcomm = &v, .request = &r};
    int rc = made(CKPT_FN_MPI_COMM_IDUP, parent, &a, &v, newcomm);
    if (rc != MPI_SUCCESS) return rc;
    *request = out_request(r);
    rc = front_attrs_copy(FRONT_COMM, parent, v);
    return rc ? front_error_code(FRONT_COMM, parent, CKPT_FN_MPI_COMM_IDUP, rc) : MPI_SUCCESS;
}

FRONT(int, Comm_idup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm *newcomm, MPI_Request *request)) {
    int rc = PMPI_Comm_idup(comm, newcomm, request);
    if (rc == MPI_SUCCESS) front_hints_made(FRONT_COMM, in_comm(*newcomm), in_info(info));
    return rc;
}

static int comm_free(unsigned fn, MPI_Comm *comm) {
    ckpt_vid v = in_comm(*comm);
    if (CKPT_VID_INDEX(v) < CKPT_VID_PREDEFINED) return comm_error(v, fn, CANON_ERRCLASS_ERR_COMM);
    if (front_is_null(CKPT_KIND_COMM, front_slot(fn, CKPT_KIND_COMM, v))) return FRONT_ERR(fn, COMM);
    int rc = front_attrs_delete(fn, FRONT_COMM, v);
    if (rc != MPI_SUCCESS) return rc;
    const struct Comm_free_words a = {.comm = &v};
    long below = front_call(fn, &a);
    if (below != 0) return comm_error(v, fn, below);
    front_side_drop(FRONT_COMM, in_comm(*comm));
    *comm = MPI_COMM_NULL;
    return MPI_SUCCESS;
}

int PMPI_Comm_free(MPI_Comm *comm) { return comm_free(CKPT_FN_MPI_COMM_FREE, comm); }

FRONT(int, Comm_disconnect, (MPI_Comm * comm)) { return comm_free(CKPT_FN_MPI_COMM_DISCONNECT, comm); }

// ---- names and hints ----

FRONT(int, Comm_set_name, (MPI_Comm comm, const char *comm_name)) {
    ckpt_vid v = in_comm(comm);
    char *name = front_strdup(comm_name, MPI_MAX_OBJECT_NAME - 1);
    const struct Comm_set_name_words a = {.comm = v, .comm_name = name};
    long rc = front_call(CKPT_FN_MPI_COMM_SET_NAME, &a);
    if (rc != 0) {
        free(name);
        return comm_error(v, CKPT_FN_MPI_COMM_SET_NAME, rc);
    }
    struct front_side *s = front_side(FRONT_COMM, v);
    free(s->name);
    s->name = name;
    return MPI_SUCCESS;
}

static int get_name(const char *name, char *out, int *resultlen) {
    *resultlen = (int)strlen(strcpy(out, name));
    return MPI_SUCCESS;
}

FRONT(int, Comm_get_name, (MPI_Comm comm, char *comm_name, int *resultlen)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_GET_NAME, comm_name != NULL);
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_GET_NAME, resultlen != NULL);
    ckpt_vid v = in_comm(comm);
    if (front_is_null(CKPT_KIND_COMM, front_slot(CKPT_FN_MPI_COMM_GET_NAME, CKPT_KIND_COMM, v)))
        return v == VID_COMM_NULL && comm == MPI_COMM_NULL ? get_name("MPI_COMM_NULL", comm_name, resultlen)
                                                           : FRONT_ERR(CKPT_FN_MPI_COMM_GET_NAME, COMM);
    const char *name = front_side(FRONT_COMM, v)->name;
    if (name == NULL)
        name = v == VID_COMM_WORLD ? "MPI_COMM_WORLD" : v == VID_COMM_SELF ? "MPI_COMM_SELF" : "";
    return get_name(name, comm_name, resultlen);
}
