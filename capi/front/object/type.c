// SPDX-License-Identifier: Apache-2.0
//
// type.c: functions on datatypes with arrays of handles, attributes and names, and old names of
// functions.
#include <stdlib.h>
#include <string.h>

#include "front/front.h"

static int type_error(unsigned fn, long rc) { return front_error(FRONT_COMM, VID_COMM_WORLD, fn, rc); }

FRONT(int, Type_create_struct,
      (int count, const int *block_lengths, const MPI_Aint *displacements, const MPI_Datatype *types,
       MPI_Datatype *newtype)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_CREATE_STRUCT, newtype != NULL);
    ckpt_vid small[FRONT_SMALL], *vids = front_vids(small, count), v = VID_TYPE_NULL;
    for (int i = 0; i < count; i++) vids[i] = in_type(types[i]);
    const struct Type_create_struct_words a = {.count = count,
                                               .block_lengths = block_lengths,
                                               .displacements = displacements,
                                               .types = vids,
                                               .newtype = &v};
    long rc = front_call(CKPT_FN_MPI_TYPE_CREATE_STRUCT, &a);
    front_vids_done(vids, small);
    if (rc != 0) return type_error(CKPT_FN_MPI_TYPE_CREATE_STRUCT, rc);
    *newtype = out_type(v);
    return MPI_SUCCESS;
}

FRONT(int, Type_dup, (MPI_Datatype type, MPI_Datatype *newtype)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_DUP, newtype != NULL);
    ckpt_vid old = in_type(type), v = VID_TYPE_NULL;
    const struct Type_dup_words a = {.type = old, .newtype = &v};
    long rc = front_call(CKPT_FN_MPI_TYPE_DUP, &a);
    if (rc != 0) return type_error(CKPT_FN_MPI_TYPE_DUP, rc);
    *newtype = out_type(v);
    int failed = front_attrs_copy(FRONT_TYPE, old, v);
    if (failed != MPI_SUCCESS) {
        PMPI_Type_free(newtype);
        *newtype = MPI_DATATYPE_NULL;
        return front_error_code(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_DUP, failed);
    }
    return MPI_SUCCESS;
}

FRONT(int, Type_free, (MPI_Datatype * type)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_FREE, type != NULL);
    ckpt_vid v = in_type(*type);
    if (CKPT_VID_INDEX(v) < CKPT_VID_PREDEFINED ||
        front_is_null(CKPT_KIND_DATATYPE, front_slot(CKPT_FN_MPI_TYPE_FREE, CKPT_KIND_DATATYPE, v)))
        return FRONT_ERR(CKPT_FN_MPI_TYPE_FREE, TYPE);
    int rc = front_attrs_delete(CKPT_FN_MPI_TYPE_FREE, FRONT_TYPE, v);
    if (rc != MPI_SUCCESS) return rc;
    front_side_drop(FRONT_TYPE, v);
    const struct Type_free_words a = {.type = &v};
    long below = front_call(CKPT_FN_MPI_TYPE_FREE, &a);
    if (below != 0) return type_error(CKPT_FN_MPI_TYPE_FREE, below);
    *type = MPI_DATATYPE_NULL;
    return MPI_SUCCESS;
}

FRONT(int, Type_get_contents,
      (MPI_Datatype mtype, int max_integers, int max_addresses, int max_datatypes, int *integers,
       MPI_Aint *addresses, MPI_Datatype *datatypes)) {
    ckpt_vid small[FRONT_SMALL], *vids = front_vids(small, max_datatypes);
    int count = 0, combiner = 0;
    const struct Type_get_contents_words a = {.mtype = in_type(mtype),
                                              .max_integers = max_integers,
                                              .max_addresses = max_addresses,
                                              .max_datatypes = max_datatypes,
                                              .integers = integers,
                                              .addresses = addresses,
                                              .datatypes = vids,
                                              .types = &count,
                                              .combiner = &combiner};
    long rc = front_call(CKPT_FN_MPI_TYPE_GET_CONTENTS, &a);
    for (int i = 0; rc == 0 && i < count; i++) datatypes[i] = out_type(vids[i]);
    front_vids_done(vids, small);
    if (rc != 0) return type_error(CKPT_FN_MPI_TYPE_GET_CONTENTS, rc);
    const char *shape = shape_of(combiner);
    if (shape != NULL) shape_convert(shape, integers, out_order, out_distrib, out_darg);
    return MPI_SUCCESS;
}

FRONT(int, Type_get_envelope,
      (MPI_Datatype type, int *num_integers, int *num_addresses, int *num_datatypes, int *combiner)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_GET_ENVELOPE, num_integers != NULL);
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_GET_ENVELOPE, num_addresses != NULL);
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_GET_ENVELOPE, num_datatypes != NULL);
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_GET_ENVELOPE, combiner != NULL);
    const struct Type_get_envelope_words a = {.type = in_type(type),
                                              .num_integers = num_integers,
                                              .num_addresses = num_addresses,
                                              .num_datatypes = num_datatypes,
                                              .combiner = combiner};
    long rc = front_call(CKPT_FN_MPI_TYPE_GET_ENVELOPE, &a);
    if (rc != 0) return type_error(CKPT_FN_MPI_TYPE_GET_ENVELOPE, rc);
    *combiner = out_combiner(*combiner);
    return MPI_SUCCESS;
}

FRONT(int, Type_create_darray,
      (int size, int rank, int ndims, const int *gsizes, const int *distribs, const int *dargs,
       const int *psizes, int order, MPI_Datatype oldtype, MPI_Datatype *newtype)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_CREATE_DARRAY, newtype != NULL);
    ckpt_vid v = VID_TYPE_NULL;
    int *d = front_alloc(2 * (size_t)(ndims > 0 ? ndims : 1) * sizeof(int)), *g = d + ndims;
    for (int i = 0; i < ndims; i++) {
        d[i] = in_distrib(distribs[i]);
        g[i] = in_darg(dargs[i]);
    }
    const struct Type_create_darray_words a = {.size = size,
                                               .rank = rank,
                                               .ndims = ndims,
                                               .gsizes = gsizes,
                                               .distribs = d,
                                               .dargs = g,
                                               .psizes = psizes,
                                               .order = in_order(order),
                                               .oldtype = in_type(oldtype),
                                               .newtype = &v};
    long rc = front_call(CKPT_FN_MPI_TYPE_CREATE_DARRAY, &a);
    free(d);
    if (rc != 0) return type_error(CKPT_FN_MPI_TYPE_CREATE_DARRAY, rc);
    *newtype = out_type(v);
    return MPI_SUCCESS;
}

// ---- names ----

FRONT(int, Type_set_name, (MPI_Datatype type, const char *type_name)) {
    ckpt_vid v = in_type(type);
    if (front_is_null(CKPT_KIND_DATATYPE, front_slot(CKPT_FN_MPI_TYPE_SET_NAME, CKPT_KIND_DATATYPE, v)))
        return FRONT_ERR(CKPT_FN_MPI_TYPE_SET_NAME, TYPE);
    struct front_side *s = front_side(FRONT_TYPE, v);
    free(s->name);
    s->name = front_strdup(type_name, MPI_MAX_OBJECT_NAME - 1);
    return MPI_SUCCESS;
}

FRONT(int, Type_get_name, (MPI_Datatype type, char *type_name, int *resultlen)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_GET_NAME, type_name != NULL);
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_GET_NAME, resultlen != NULL);
    static const char *const names[CKPT_VID_PREDEFINED] = {
#define X(name, number) [number] = "MPI_" #name,
        CANON_DATATYPE_LIST(X)
#undef X
    };
    ckpt_vid v = in_type(type);
    int predefined = CKPT_VID_INDEX(v) < CKPT_VID_PREDEFINED;
    // A predefined datatype has its name even when the real MPI has no such datatype.
    if (front_is_null(CKPT_KIND_DATATYPE, front_slot(CKPT_FN_MPI_TYPE_GET_NAME, CKPT_KIND_DATATYPE, v)) &&
        type != MPI_DATATYPE_NULL && !(predefined && names[CKPT_VID_INDEX(v)]))
        return FRONT_ERR(CKPT_FN_MPI_TYPE_GET_NAME, TYPE);
    const char *name = front_side(FRONT_TYPE, v)->name;
    if (name == NULL && predefined)
        name = CKPT_VID_INDEX(v) == 0                                ? "MPI_DATATYPE_NULL"
               : CKPT_VID_INDEX(v) == CANON_DATATYPE_C_FLOAT_COMPLEX ? "MPI_C_COMPLEX" // the same
                                                                     : names[CKPT_VID_INDEX(v)];
    *resultlen = (int)strlen(strcpy(type_name, name ? name : ""));
    return MPI_SUCCESS;
}

// ---- the names of MPI 1 ----

FRONT(int, Type_hindexed,
      (int count, const int *blocklengths, const MPI_Aint *displacements, MPI_Datatype oldtype,
       MPI_Datatype *newtype)) {
    return PMPI_Type_create_hindexed(count, blocklengths, displacements, oldtype, newtype);
}

FRONT(int, Type_hvector,
      (int count, int blocklength, MPI_Aint stride, MPI_Datatype oldtype, MPI_Datatype *newtype)) {
    return PMPI_Type_create_hvector(count, blocklength, stride, oldtype, newtype);
}

FRONT(int, Type_struct,
      (int count, const int *blocklengths, const MPI_Aint *displacements, const MPI_Datatype *oldtypes,
       MPI_Datatype *newtype)) {
    return PMPI_Type_create_struct(count, blocklengths, displacements, oldtypes, newtype);
}

FRONT(int, Type_extent, (MPI_Datatype datatype, MPI_Aint *extent)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_EXTENT, extent != NULL);
    MPI_Aint lb;
    return PMPI_Type_get_extent(datatype, &lb, extent);
}

FRONT(int, Type_lb, (MPI_Datatype datatype, MPI_Aint *displacement)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_LB, displacement != NULL);
    MPI_Aint extent;
    return PMPI_Type_get_extent(datatype, displacement, &extent);
}

FRONT(int, Type_ub, (MPI_Datatype datatype, MPI_Aint *displacement)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_UB, displacement != NULL);
    MPI_Aint lb, extent;
    int rc = PMPI_Type_get_extent(datatype, &lb, &extent);
    if (rc == MPI_SUCCESS) *displacement = lb + extent;
    return rc;
}
