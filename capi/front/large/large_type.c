// SPDX-License-Identifier: Apache-2.0
//
// large_type.c: constructors of datatypes with large counts, and what MPI_Type_get_contents_c says of
// them.
//
// Where the counts fit ints, the constructor without _c makes the datatype.  Where they do not, the
// datatype is put together from smaller ones, and is so described in images, whichever MPI is below.
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "front/large/large.h"

// ---- how a datatype was made ----

struct front_contents {
    int refs, combiner; // canonical
    int nints, ncounts, ntypes;
    int *ints;
    MPI_Count *counts;
    MPI_Datatype *types;          // our own duplicates of those that are not predefined
    struct front_contents **made; // for each of them made with large counts: how
};

static int predefined(MPI_Datatype type) { return CKPT_VID_INDEX(in_type(type)) < CKPT_VID_PREDEFINED; }

static struct front_contents *made_how(MPI_Datatype type) {
    return predefined(type) ? NULL : front_side(FRONT_TYPE, in_type(type))->made;
}

static struct front_contents *hold(struct front_contents *c) {
    if (c != NULL) __atomic_fetch_add(&c->refs, 1, __ATOMIC_RELAXED);
    return c;
}

void front_contents_release(struct front_contents *c) {
    if (c == NULL || __atomic_sub_fetch(&c->refs, 1, __ATOMIC_ACQ_REL) != 0) return;
    for (int i = 0; i < c->ntypes; i++) {
        if (!predefined(c->types[i])) PMPI_Type_free(&c->types[i]);
        front_contents_release(c->made[i]);
    }
    free(c->ints);
    free(c->counts);
    free(c->types);
    free(c->made);
    free(c);
}

// Takes the values among a constructor's arguments; its arrays have n elements.  The datatypes are still
// those of the application, not duplicates.
static void take(struct front_contents *c, const char *shape, const long *a, MPI_Count n) {
    int *ints = c->ints;
    MPI_Count *counts = c->counts;
    MPI_Datatype *types = c->types;
    for (; *shape != 0; shape++, a++) {
        const void *array = (const void *)*a;
        switch (*shape) {
        case 'c':
        case 'm':
            *counts++ = *a;
            break;
        case 'C':
            memcpy(counts, array, (size_t)n * sizeof *counts);
            counts += n;
            break;
        case 't':
            *types++ = (MPI_Datatype)*a;
            break;
        case 'T':
            memcpy(types, array, (size_t)n * sizeof *types);
            types += n;
            break;
        case 'I':
        case 'D':
        case 'G':
            memcpy(ints, array, (size_t)n * sizeof *ints);
            ints += n;
            break;
        default:
            *ints++ = (int)*a;
        }
    }
}

// Returns a datatype to the application, and keeps the arguments of its constructor.
static int made(int combiner, const long *a, MPI_Datatype made_type, MPI_Datatype *newtype) {
    const char *shape = shape_of_large(combiner);
    int at = shape_find(shape, SHAPE_LENGTH);
    MPI_Count n = at >= 0 ? a[at] : 0;
    int rc = MPI_SUCCESS, ntypes = (int)shape_holds(shape, SHAPE_TYPES, n);
    struct front_contents *c = front_alloc(sizeof *c);
    *c = (struct front_contents){.refs = 1, .combiner = combiner};
    c->nints = (int)shape_holds(shape, SHAPE_INTS, n);
    c->ncounts = (int)shape_holds(shape, SHAPE_COUNTS, n);
    c->ints = front_alloc(((size_t)c->nints + 1) * sizeof(int));
    c->counts = front_alloc(((size_t)c->ncounts + 1) * sizeof(MPI_Count));
    c->types = front_alloc(((size_t)ntypes + 1) * sizeof(MPI_Datatype));
    c->made = front_alloc(((size_t)ntypes + 1) * sizeof *c->made);
    take(c, shape, a, n);
    shape_convert(shape, c->ints, in_order, in_distrib, in_darg);
    for (int i = 0; i < ntypes && rc == MPI_SUCCESS; i++) {
        MPI_Datatype given = c->types[i];
        if (!predefined(given)) rc = PMPI_Type_dup(given, &c->types[i]);
        if (rc == MPI_SUCCESS) c->made[c->ntypes++] = hold(made_how(given));
    }
    if (rc != MPI_SUCCESS) {
        front_contents_release(c);
        return rc;
    }
    front_side(FRONT_TYPE, in_type(made_type))->made = c;
    *newtype = made_type;
    return MPI_SUCCESS;
}

static int type_error(unsigned fn, int class) { return front_error(FRONT_COMM, VID_COMM_WORLD, fn, class); }

static int too_large(unsigned fn) { return front_too_large(FRONT_COMM, VID_COMM_WORLD, fn); }

// ---- the pieces ----

static int fits(MPI_Count n) { return n == (int)n; }

static int all_fit(const MPI_Count *v, MPI_Count n) {
    int all = 1;
    for (MPI_Count i = 0; i < n; i++) all &= fits(v[i]);
    return all;
}

static int *as_ints(const MPI_Count *v, MPI_Count n) {
    int *to = front_alloc(((size_t)(n > 0 ? n : 0) + 1) * sizeof *to);
    for (MPI_Count i = 0; i < n; i++) to[i] = (int)v[i];
    return to;
}

enum { PIECE = 1 << 30 }; // elements of the pieces that a large one is made of

// Makes a datatype of count elements, stride bytes apart.
static int spread(MPI_Count count, MPI_Count stride, MPI_Datatype old, MPI_Datatype *newtype) {
    if (fits(count)) return PMPI_Type_create_hvector((int)count, 1, stride, old, newtype);
    MPI_Datatype piece, part[2];
    MPI_Count whole = count / PIECE;
    const MPI_Aint at[2] = {0, whole * PIECE * stride};
    const int one[2] = {1, 1};
    int rc = PMPI_Type_create_hvector(PIECE, 1, stride, old, &piece);
    if (rc != MPI_SUCCESS) return rc;
    rc = spread(whole, PIECE * stride, piece, &part[0]);
    if (rc == MPI_SUCCESS) {
        rc = PMPI_Type_create_hvector((int)(count % PIECE), 1, stride, old, &part[1]);
        if (rc == MPI_SUCCESS) {
            rc = PMPI_Type_create_struct(2, one, at, part, newtype);
            PMPI_Type_free(&part[1]);
        }
        PMPI_Type_free(&part[0]);
    }
    PMPI_Type_free(&piece);
    return rc;
}

static int many(MPI_Count count, MPI_Datatype old, MPI_Datatype *newtype) {
    MPI_Aint lb, extent;
    if (fits(count)) return PMPI_Type_contiguous((int)count, old, newtype);
    int rc = PMPI_Type_get_extent(old, &lb, &extent);
    return rc == MPI_SUCCESS ? spread(count, extent, old, newtype) : rc;
}

// Makes a datatype of count blocks, stride bytes apart.
static int blocks(MPI_Count count, MPI_Count length, MPI_Count stride, MPI_Datatype old,
                  MPI_Datatype *newtype) {
    MPI_Datatype block;
    int rc = many(length, old, &block);
    if (rc != MPI_SUCCESS) return rc;
    rc = spread(count, stride, block, newtype);
    PMPI_Type_free(&block);
    return rc;
}

// Makes blocks of these lengths at these bytes; each: one datatype per block, else one for all.
static int scattered(int count, const MPI_Count *lengths, const MPI_Aint *at, const MPI_Datatype *types,
                     int each, MPI_Datatype *newtype) {
    MPI_Datatype *block = front_alloc(((size_t)count + 1) * sizeof *block);
    int *one = front_alloc(((size_t)count + 1) * sizeof *one), rc = MPI_SUCCESS, n = 0;
    for (; n < count && rc == MPI_SUCCESS; n++) {
        one[n] = 1;
        rc = many(lengths[n], types[each ? n : 0], &block[n]);
    }
    if (rc == MPI_SUCCESS)
        rc = PMPI_Type_create_struct(count, one, at, block, newtype);
    else
        n--;
    while (n-- > 0) PMPI_Type_free(&block[n]);
    free(block);
    free(one);
    return rc;
}

// ---- constructors ----

FRONT(int, Type_contiguous_c, (MPI_Count count, MPI_Datatype oldtype, MPI_Datatype *newtype)) {
    MPI_Datatype t;
    int rc = many(count, oldtype, &t);
    if (rc != MPI_SUCCESS) return rc;
    const long a[] = {count, (long)oldtype};
    return made(CANON_COMBINER_CONTIGUOUS, a, t, newtype);
}

FRONT(int, Type_vector_c,
      (MPI_Count count, MPI_Count blocklength, MPI_Count stride, MPI_Datatype oldtype,
       MPI_Datatype *newtype)) {
    const MPI_Count v[] = {count, blocklength, stride};
    MPI_Datatype t;
    MPI_Aint lb, extent;
    int rc;
    if (all_fit(v, 3)) {
        rc = PMPI_Type_vector((int)count, (int)blocklength, (int)stride, oldtype, &t);
    } else {
        rc = PMPI_Type_get_extent(oldtype, &lb, &extent);
        if (rc == MPI_SUCCESS) rc = blocks(count, blocklength, stride * extent, oldtype, &t);
    }
    if (rc != MPI_SUCCESS) return rc;
    const long a[] = {count, blocklength, stride, (long)oldtype};
    return made(CANON_COMBINER_VECTOR, a, t, newtype);
}

FRONT(int, Type_create_hvector_c,
      (MPI_Count count, MPI_Count blocklength, MPI_Count stride, MPI_Datatype oldtype,
       MPI_Datatype *newtype)) {
    const MPI_Count v[] = {count, blocklength, stride};
    MPI_Datatype t;
    int rc = all_fit(v, 2) ? PMPI_Type_create_hvector((int)count, (int)blocklength, stride, oldtype, &t)
                           : blocks(count, blocklength, stride, oldtype, &t);
    if (rc != MPI_SUCCESS) return rc;
    const long a[] = {count, blocklength, stride, (long)oldtype};
    return made(CANON_COMBINER_HVECTOR, a, t, newtype);
}

// Blocks of their own lengths, at displacements in units of bytes.
static int hindexed(int count, const MPI_Count *lengths, const MPI_Count *at, MPI_Datatype old,
                    MPI_Datatype *t) {
    if (!all_fit(lengths, count)) return scattered(count, lengths, at, &old, 0, t);
    int *n = as_ints(lengths, count), rc = PMPI_Type_create_hindexed(count, n, at, old, t);
    free(n);
    return rc;
}

FRONT(int, Type_create_hindexed_c,
      (MPI_Count count, const MPI_Count *blocklengths, const MPI_Count *displacements, MPI_Datatype oldtype,
       MPI_Datatype *newtype)) {
    MPI_Datatype t;
    if (count > INT_MAX / 2) return too_large(CKPT_FN_MPI_TYPE_CREATE_HINDEXED_C);
    int rc = hindexed((int)count, blocklengths, displacements, oldtype, &t);
    if (rc != MPI_SUCCESS) return rc;
    const long a[] = {count, (long)blocklengths, (long)displacements, (long)oldtype};
    return made(CANON_COMBINER_HINDEXED, a, t, newtype);
}

FRONT(int, Type_indexed_c,
      (MPI_Count count, const MPI_Count *blocklengths, const MPI_Count *displacements, MPI_Datatype oldtype,
       MPI_Datatype *newtype)) {
    MPI_Datatype t;
    MPI_Aint lb, extent;
    int rc;
    if (count > INT_MAX / 2) return too_large(CKPT_FN_MPI_TYPE_INDEXED_C);
    if (all_fit(blocklengths, count) && all_fit(displacements, count)) {
        int *n = as_ints(blocklengths, count), *at = as_ints(displacements, count);
        rc = PMPI_Type_indexed((int)count, n, at, oldtype, &t);
        free(n);
        free(at);
    } else {
        rc = PMPI_Type_get_extent(oldtype, &lb, &extent);
        MPI_Count *at = front_alloc(((size_t)count + 1) * sizeof *at);
        for (MPI_Count i = 0; rc == MPI_SUCCESS && i < count; i++) at[i] = displacements[i] * extent;
        if (rc == MPI_SUCCESS) rc = hindexed((int)count, blocklengths, at, oldtype, &t);
        free(at);
    }
    if (rc != MPI_SUCCESS) return rc;
    const long a[] = {count, (long)blocklengths, (long)displacements, (long)oldtype};
    return made(CANON_COMBINER_INDEXED, a, t, newtype);
}

// Blocks of one length; unit: bytes of a unit of the displacements.
static int indexed_block(int count, MPI_Count length, const MPI_Count *displacements, MPI_Aint unit,
                         MPI_Datatype old, MPI_Datatype *t) {
    MPI_Datatype block;
    MPI_Aint *at = front_alloc(((size_t)(count > 0 ? count : 0) + 1) * sizeof *at);
    for (int i = 0; i < count; i++) at[i] = displacements[i] * unit;
    int rc = many(length, old, &block);
    if (rc == MPI_SUCCESS) {
        rc = PMPI_Type_create_hindexed_block(count, 1, at, block, t);
        PMPI_Type_free(&block);
    }
    free(at);
    return rc;
}

FRONT(int, Type_create_hindexed_block_c,
      (MPI_Count count, MPI_Count blocklength, const MPI_Count *displacements, MPI_Datatype oldtype,
       MPI_Datatype *newtype)) {
    MPI_Datatype t;
    if (count > INT_MAX / 2) return too_large(CKPT_FN_MPI_TYPE_CREATE_HINDEXED_BLOCK_C);
    int rc = fits(blocklength)
                 ? PMPI_Type_create_hindexed_block((int)count, (int)blocklength, displacements, oldtype, &t)
                 : indexed_block((int)count, blocklength, displacements, 1, oldtype, &t);
    if (rc != MPI_SUCCESS) return rc;
    const long a[] = {count, blocklength, (long)displacements, (long)oldtype};
    return made(CANON_COMBINER_HINDEXED_BLOCK, a, t, newtype);
}

FRONT(int, Type_create_indexed_block_c,
      (MPI_Count count, MPI_Count blocklength, const MPI_Count *displacements, MPI_Datatype oldtype,
       MPI_Datatype *newtype)) {
    MPI_Datatype t;
    MPI_Aint lb, extent;
    int rc;
    if (count > INT_MAX / 2) return too_large(CKPT_FN_MPI_TYPE_CREATE_INDEXED_BLOCK_C);
    if (fits(blocklength) && all_fit(displacements, count)) {
        int *at = as_ints(displacements, count);
        rc = PMPI_Type_create_indexed_block((int)count, (int)blocklength, at, oldtype, &t);
        free(at);
    } else {
        rc = PMPI_Type_get_extent(oldtype, &lb, &extent);
        if (rc == MPI_SUCCESS)
            rc = indexed_block((int)count, blocklength, displacements, extent, oldtype, &t);
    }
    if (rc != MPI_SUCCESS) return rc;
    const long a[] = {count, blocklength, (long)displacements, (long)oldtype};
    return made(CANON_COMBINER_INDEXED_BLOCK, a, t, newtype);
}

FRONT(int, Type_create_struct_c,
      (MPI_Count count, const MPI_Count *blocklengths, const MPI_Count *displacements,
       const MPI_Datatype *types, MPI_Datatype *newtype)) {
    MPI_Datatype t;
    int rc;
    if (count > INT_MAX / 2) return too_large(CKPT_FN_MPI_TYPE_CREATE_STRUCT_C);
    if (all_fit(blocklengths, count)) {
        int *n = as_ints(blocklengths, count);
        rc = PMPI_Type_create_struct((int)count, n, displacements, types, &t);
        free(n);
    } else {
        rc = scattered((int)count, blocklengths, displacements, types, 1, &t);
    }
    if (rc != MPI_SUCCESS) return rc;
    const long a[] = {count, (long)blocklengths, (long)displacements, (long)types};
    return made(CANON_COMBINER_STRUCT, a, t, newtype);
}

FRONT(int, Type_create_resized_c,
      (MPI_Datatype oldtype, MPI_Count lb, MPI_Count extent, MPI_Datatype *newtype)) {
    MPI_Datatype t;
    int rc = PMPI_Type_create_resized(oldtype, lb, extent, &t);
    if (rc != MPI_SUCCESS) return rc;
    const long a[] = {(long)oldtype, lb, extent};
    return made(CANON_COMBINER_RESIZED, a, t, newtype);
}

// A block of an array, dimension by dimension from the one whose elements are neighbours.
static int subarray(int ndims, const MPI_Count *sizes, const MPI_Count *subsizes, const MPI_Count *starts,
                    int fortran, MPI_Datatype old, MPI_Datatype *newtype) {
    MPI_Aint lb, stride, first = 0;
    const int one = 1;
    MPI_Datatype t, next;
    int rc = PMPI_Type_get_extent(old, &lb, &stride);
    if (rc == MPI_SUCCESS) rc = PMPI_Type_dup(old, &t);
    for (int k = 0; k < ndims && rc == MPI_SUCCESS; k++) {
        int i = fortran ? k : ndims - 1 - k;
        rc = spread(subsizes[i], stride, t, &next);
        PMPI_Type_free(&t);
        t = next;
        first += starts[i] * stride;
        stride *= sizes[i];
    }
    if (rc != MPI_SUCCESS) return rc;
    rc = PMPI_Type_create_hindexed(1, &one, &first, t, &next);
    PMPI_Type_free(&t);
    if (rc == MPI_SUCCESS) {
        rc = PMPI_Type_create_resized(next, 0, stride, newtype);
        PMPI_Type_free(&next);
    }
    return rc;
}

FRONT(int, Type_create_subarray_c,
      (int ndims, const MPI_Count *sizes, const MPI_Count *subsizes, const MPI_Count *starts, int order,
       MPI_Datatype oldtype, MPI_Datatype *newtype)) {
    MPI_Datatype t;
    int rc;
    if (all_fit(sizes, ndims)) {
        int *n = as_ints(sizes, ndims), *sub = as_ints(subsizes, ndims), *from = as_ints(starts, ndims);
        rc = PMPI_Type_create_subarray(ndims, n, sub, from, order, oldtype, &t);
        free(n);
        free(sub);
        free(from);
    } else {
        for (int i = 0; i < ndims; i++)
            if (subsizes[i] < 1 || starts[i] < 0 || starts[i] + subsizes[i] > sizes[i])
                return type_error(CKPT_FN_MPI_TYPE_CREATE_SUBARRAY_C, CANON_ERRCLASS_ERR_ARG);
        rc = subarray(ndims, sizes, subsizes, starts, in_order(order) == CANON_ORDER_FORTRAN, oldtype, &t);
    }
    if (rc != MPI_SUCCESS) return rc;
    const long a[] = {ndims, (long)sizes, (long)subsizes, (long)starts, order, (long)oldtype};
    return made(CANON_COMBINER_SUBARRAY, a, t, newtype);
}

FRONT(int, Type_create_darray_c,
      (int size, int rank, int ndims, const MPI_Count *gsizes, const int *distribs, const int *dargs,
       const int *psizes, int order, MPI_Datatype oldtype, MPI_Datatype *newtype)) {
    MPI_Datatype t;
    if (!all_fit(gsizes, ndims)) return too_large(CKPT_FN_MPI_TYPE_CREATE_DARRAY_C);
    int *n = as_ints(gsizes, ndims);
    int rc = PMPI_Type_create_darray(size, rank, ndims, n, distribs, dargs, psizes, order, oldtype, &t);
    free(n);
    if (rc != MPI_SUCCESS) return rc;
    const long a[] = {size,        rank,         ndims, (long)gsizes, (long)distribs,
                      (long)dargs, (long)psizes, order, (long)oldtype};
    return made(CANON_COMBINER_DARRAY, a, t, newtype);
}

// ---- questions ----

FRONT(int, Type_get_envelope_c,
      (MPI_Datatype type, MPI_Count *num_integers, MPI_Count *num_addresses, MPI_Count *num_large_counts,
       MPI_Count *num_datatypes, int *combiner)) {
    const struct front_contents *c = made_how(type);
    int ni = 0, na = 0, nt = 0, rc = MPI_SUCCESS;
    if (c != NULL) {
        ni = c->nints;
        nt = c->ntypes;
        *combiner = out_combiner(c->combiner);
    } else {
        rc = PMPI_Type_get_envelope(type, &ni, &na, &nt, combiner);
    }
    *num_integers = ni;
    *num_addresses = na;
    *num_large_counts = c != NULL ? c->ncounts : 0;
    *num_datatypes = nt;
    return rc;
}

// A datatype that was made like inner i.
static int again(const struct front_contents *c, int i, MPI_Datatype *out) {
    int integers;
    MPI_Aint addresses;
    *out = c->types[i];
    if (predefined(c->types[i])) return MPI_SUCCESS;
    int rc = PMPI_Type_get_contents(c->types[i], 0, 0, 1, &integers, &addresses, out);
    if (rc == MPI_SUCCESS && !predefined(*out))
        front_side(FRONT_TYPE, in_type(*out))->made = hold(c->made[i]);
    return rc;
}

FRONT(int, Type_get_contents_c,
      (MPI_Datatype mtype, MPI_Count max_integers, MPI_Count max_addresses, MPI_Count max_large_counts,
       MPI_Count max_datatypes, int *integers, MPI_Aint *addresses, MPI_Count *large_counts,
       MPI_Datatype *datatypes)) {
    const struct front_contents *c = made_how(mtype);
    int rc = MPI_SUCCESS;
    if (c == NULL) {
        int ni = max_integers > INT_MAX ? INT_MAX : (int)max_integers;
        int na = max_addresses > INT_MAX ? INT_MAX : (int)max_addresses;
        int nt = max_datatypes > INT_MAX ? INT_MAX : (int)max_datatypes;
        return PMPI_Type_get_contents(mtype, ni, na, nt, integers, addresses, datatypes);
    }
    if (max_integers < c->nints || max_large_counts < c->ncounts || max_datatypes < c->ntypes)
        return type_error(CKPT_FN_MPI_TYPE_GET_CONTENTS_C, CANON_ERRCLASS_ERR_ARG);
    memcpy(integers, c->ints, (size_t)c->nints * sizeof(int));
    memcpy(large_counts, c->counts, (size_t)c->ncounts * sizeof(MPI_Count));
    for (int i = 0; i < c->ntypes && rc == MPI_SUCCESS; i++) rc = again(c, i, &datatypes[i]);
    shape_convert(shape_of_large(c->combiner), integers, out_order, out_distrib, out_darg);
    return rc;
}
