// SPDX-License-Identifier: Apache-2.0
//
// attr.c: keyvals and attributes.  They consist of the application's own pointers, and functions that
// are called when an object is duplicated or freed.  Only predefined attributes are asked for below.
//
// A value is a pointer when C set it and an integer when Fortran did.  As MPI demands, a caller in the
// other language gets the pointer as an integer, or a pointer to the integer.
#include <stdlib.h>

#include "front/front.h"

typedef int copy_function(void *object, int keyval, void *extra, void *in, void *out, int *flag);

struct keyval {
    int sort; // FRONT_COMM, FRONT_TYPE, FRONT_WIN
    void *copy, *delete, *extra;
    front_copy_proxy *copy_proxy; // NULL: functions of C
    front_delete_proxy *delete_proxy;
    int refs; // the application's handle, and every attribute
    // The handle was freed.  Attributes may still exist, and the handle may be freed again.
    int freed;
};

struct front_attr {
    struct front_attr *next;
    ckpt_vid keyval;
    int form;    // FRONT_ATTR_*
    void *value; // or the integer itself
};

// The value as C gets it.
static void *pointer(struct front_attr *a) {
    return a->form == FRONT_ATTR_POINTER ? a->value : (void *)&a->value;
}

static struct keyval *keyval_of(int keyval) { return front_object(CKPT_KIND_KEYVAL, (ckpt_vid)keyval); }

static void release(ckpt_vid v) {
    struct keyval *k = front_object(CKPT_KIND_KEYVAL, v);
    if (k != NULL && __atomic_sub_fetch(&k->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        front_object_drop(CKPT_KIND_KEYVAL, v);
        free(k);
    }
}

static int create(int sort, void *copy, void *delete, void *extra, int *keyval) {
    struct keyval *k = front_alloc(sizeof *k);
    *k = (struct keyval){sort, copy, delete, extra, NULL, NULL, 1, 0};
    *keyval = out_keyval(front_object_new(CKPT_KIND_KEYVAL, k));
    return MPI_SUCCESS;
}

static int keyval_free(unsigned fn, int sort, int *keyval) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, fn, keyval != NULL);
    struct keyval *k = keyval_of(*keyval);
    if (k == NULL || k->sort != sort) return FRONT_ERR(fn, KEYVAL);
    if (!__atomic_exchange_n(&k->freed, 1, __ATOMIC_ACQ_REL)) release((ckpt_vid)*keyval);
    *keyval = MPI_KEYVAL_INVALID;
    return MPI_SUCCESS;
}

void front_keyval_proxy(int keyval, front_copy_proxy *copy, front_delete_proxy *delete) {
    struct keyval *k = keyval_of(keyval);
    if (k == NULL) return;
    k->copy_proxy = copy;
    k->delete_proxy = delete;
}

static MPI_Fint fortran_handle(int sort, ckpt_vid object) {
    return sort == FRONT_TYPE  ? PMPI_Type_c2f(out_type(object))
           : sort == FRONT_WIN ? PMPI_Win_c2f(out_win(object))
                               : PMPI_Comm_c2f(out_comm(object));
}

// The three sorts of objects have functions that differ in the type of the handle.
static int call_copy(struct keyval *k, ckpt_vid object, struct front_attr *a, void **out, int *flag) {
    int keyval = (int)a->keyval;
    void *in = pointer(a);
    if (k->copy_proxy != NULL)
        return k->copy_proxy(k->copy, fortran_handle(k->sort, object), keyval, k->extra, a->form, a->value,
                             out, flag);
    if (FRONT_IS_DUP_FN(k->copy)) {
        *out = in;
        *flag = 1;
        return MPI_SUCCESS;
    }
    switch (k->sort) {
    case FRONT_TYPE:
        return ((MPI_Type_copy_attr_function *)k->copy)(out_type(object), keyval, k->extra, in, out, flag);
    case FRONT_WIN:
        return ((MPI_Win_copy_attr_function *)k->copy)(out_win(object), keyval, k->extra, in, out, flag);
    default:
        return ((MPI_Comm_copy_attr_function *)k->copy)(out_comm(object), keyval, k->extra, in, out, flag);
    }
}

static int call_delete(struct keyval *k, ckpt_vid object, struct front_attr *a) {
    int keyval = (int)a->keyval;
    void *value = pointer(a);
    if (k->delete == NULL) return MPI_SUCCESS;
    if (k->delete_proxy != NULL)
        return k->delete_proxy(k->delete, fortran_handle(k->sort, object), keyval, a->form, a->value,
                               k->extra);
    switch (k->sort) {
    case FRONT_TYPE:
        return ((MPI_Type_delete_attr_function *)k->delete)(out_type(object), keyval, value, k->extra);
    case FRONT_WIN:
        return ((MPI_Win_delete_attr_function *)k->delete)(out_win(object), keyval, value, k->extra);
    default:
        return ((MPI_Comm_delete_attr_function *)k->delete)(out_comm(object), keyval, value, k->extra);
    }
}

static struct front_attr **find(int sort, ckpt_vid object, int keyval) {
    struct front_attr **p = &front_side(sort, object)->attrs;
    while (*p != NULL && (*p)->keyval != (ckpt_vid)keyval) p = &(*p)->next;
    return p;
}

// The error is what the application's function returned, which may be a class or code that it added.
static int attr_error(unsigned fn, int sort, ckpt_vid object, int code) {
    return sort == FRONT_TYPE ? front_error_code(FRONT_COMM, VID_COMM_WORLD, fn, code)
                              : front_error_code(sort, object, fn, code);
}

static int set_form(unsigned fn, int sort, ckpt_vid object, int keyval, void *value, int form) {
    struct keyval *k = keyval_of(keyval);
    if (k == NULL || k->sort != sort) return FRONT_ERR(fn, KEYVAL);
    struct front_attr *a = *find(sort, object, keyval);
    if (a != NULL) {
        int rc = call_delete(k, object, a);
        if (rc != MPI_SUCCESS) return attr_error(fn, sort, object, rc);
        a->value = value;
        a->form = form;
        return MPI_SUCCESS;
    }
    struct front_side *s = front_side(sort, object);
    a = front_alloc(sizeof *a);
    *a = (struct front_attr){s->attrs, (ckpt_vid)keyval, form, value};
    __atomic_fetch_add(&k->refs, 1, __ATOMIC_RELAXED);
    s->attrs = a;
    return MPI_SUCCESS;
}

static int set(unsigned fn, int sort, ckpt_vid object, int keyval, void *value) {
    return set_form(fn, sort, object, keyval, value, FRONT_ATTR_POINTER);
}

static int get(unsigned fn, int sort, ckpt_vid object, int keyval, void *value, int *flag) {
    struct keyval *k = keyval_of(keyval);
    if (k == NULL || k->sort != sort) return FRONT_ERR(fn, KEYVAL);
    struct front_attr *a = *find(sort, object, keyval);
    *flag = a != NULL;
    if (a != NULL) *(void **)value = pointer(a);
    return MPI_SUCCESS;
}

static int delete (unsigned fn, int sort, ckpt_vid object, int keyval) {
    struct keyval *k = keyval_of(keyval);
    if (k == NULL || k->sort != sort) return FRONT_ERR(fn, KEYVAL);
    struct front_attr *a = *find(sort, object, keyval);
    if (a == NULL) return MPI_SUCCESS;
    int rc = call_delete(k, object, a);
    if (rc != MPI_SUCCESS) return attr_error(fn, sort, object, rc);
    struct front_attr **p = find(sort, object, keyval); // the function may have changed the list
    if (*p == a) {
        *p = a->next;
        free(a);
        release((ckpt_vid)keyval);
    }
    return MPI_SUCCESS;
}

int front_attrs_delete(unsigned fn, int sort, ckpt_vid object) {
    struct front_attr *a;
    const struct front_side *side = front_side_known(sort, object);
    while (side != NULL && (a = side->attrs) != NULL) {
        int rc = delete (fn, sort, object, (int)a->keyval);
        if (rc != MPI_SUCCESS) return rc;
    }
    return MPI_SUCCESS;
}

int front_attrs_copy(int sort, ckpt_vid from, ckpt_vid to) {
    struct front_attr **end = &front_side(sort, to)->attrs;
    for (struct front_attr *a = front_side(sort, from)->attrs; a != NULL; a = a->next) {
        struct keyval *k = front_object(CKPT_KIND_KEYVAL, a->keyval);
        void *value = NULL;
        int flag = 0;
        if (k->copy == NULL) continue;
        int rc = call_copy(k, from, a, &value, &flag);
        if (rc != MPI_SUCCESS) return rc;
        if (!flag) continue;
        struct front_attr *copy = front_alloc(sizeof *copy);
        int form = k->copy_proxy != NULL ? a->form : FRONT_ATTR_POINTER;
        *copy = (struct front_attr){NULL, a->keyval, form, value};
        __atomic_fetch_add(&k->refs, 1, __ATOMIC_RELAXED);
        *end = copy;
        end = &copy->next;
    }
    return MPI_SUCCESS;
}

// For a predefined attribute the application gets a pointer to our memory, which stays valid.
static int predefined(int attr, void *value, int *flag) {
    static int values[CANON_ATTRS];
    const struct Comm_get_attr_words a = {.attribute = attr, .value = &values[attr], .flag = flag};
    *flag = 1;
    if (attr == CANON_ATTR_LASTUSEDCODE)
        values[attr] = front_lastusedcode();
    else {
        long rc = front_call(CKPT_FN_MPI_COMM_GET_ATTR, &a);
        if (rc != 0) return front_error(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_COMM_GET_ATTR, rc);
        if (attr == CANON_ATTR_IO || attr == CANON_ATTR_HOST) values[attr] = out_rank(values[attr]);
    }
    if (*flag) *(void **)value = &values[attr];
    return MPI_SUCCESS;
}

static int live(unsigned fn, ckpt_kind kind, ckpt_vid vid) {
    return !front_is_null(kind, front_slot(fn, kind, vid));
}

// ---- from Fortran ----

int front_attr_set(int sort, ckpt_vid object, int keyval, long value, int form) {
    static const unsigned fn[] = {CKPT_FN_MPI_COMM_SET_ATTR, CKPT_FN_MPI_TYPE_SET_ATTR,
                                  CKPT_FN_MPI_WIN_SET_ATTR};
    if (!live(fn[sort], CKPT_VID_KIND(object), object)) return FRONT_ERR(fn[sort], ARG);
    return set_form(fn[sort], sort, object, keyval, (void *)value, form);
}

int front_attr_get(int sort, ckpt_vid object, int keyval, long *value, int *flag) {
    static const unsigned fn[] = {CKPT_FN_MPI_COMM_GET_ATTR, CKPT_FN_MPI_TYPE_GET_ATTR,
                                  CKPT_FN_MPI_WIN_GET_ATTR};
    if (!live(fn[sort], CKPT_VID_KIND(object), object)) return FRONT_ERR(fn[sort], ARG);
    void *p;
    if (sort == FRONT_COMM && in_attr(keyval) != 0) {
        int rc = predefined(in_attr(keyval), &p, flag);
        if (rc == MPI_SUCCESS && *flag) *value = *(int *)p;
        return rc;
    }
    if (sort == FRONT_WIN && in_win_attr(keyval) != 0 && front_win_attr(object, keyval, &p)) {
        // The base is a pointer, the size an MPI_Aint, the others are ints.
        int which = in_win_attr(keyval);
        *value = which == 1 ? (long)p : which == 2 ? *(MPI_Aint *)p : *(int *)p;
        *flag = 1;
        return MPI_SUCCESS;
    }
    struct keyval *k = keyval_of(keyval);
    if (k == NULL || k->sort != sort) return FRONT_ERR(fn[sort], KEYVAL);
    struct front_attr *a = *find(sort, object, keyval);
    *flag = a != NULL;
    if (a != NULL) *value = (long)a->value;
    return MPI_SUCCESS;
}

// ---- communicators ----

FRONT(int, Comm_create_keyval,
      (MPI_Comm_copy_attr_function * copy_fn, MPI_Comm_delete_attr_function *delete_fn, int *keyval,
       void *extra_state)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_COMM_CREATE_KEYVAL, keyval != NULL);
    return create(FRONT_COMM, (void *)copy_fn, (void *)delete_fn, extra_state, keyval);
}

FRONT(int, Comm_free_keyval, (int *keyval)) {
    return keyval_free(CKPT_FN_MPI_COMM_FREE_KEYVAL, FRONT_COMM, keyval);
}

FRONT(int, Comm_set_attr, (MPI_Comm comm, int keyval, void *value)) {
    if (!live(CKPT_FN_MPI_COMM_SET_ATTR, CKPT_KIND_COMM, in_comm(comm)))
        return FRONT_ERR(CKPT_FN_MPI_COMM_SET_ATTR, COMM);
    return set(CKPT_FN_MPI_COMM_SET_ATTR, FRONT_COMM, in_comm(comm), keyval, value);
}

FRONT(int, Comm_get_attr, (MPI_Comm comm, int keyval, void *value, int *flag)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_GET_ATTR, value != NULL);
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_GET_ATTR, flag != NULL);
    if (!live(CKPT_FN_MPI_COMM_GET_ATTR, CKPT_KIND_COMM, in_comm(comm)))
        return FRONT_ERR(CKPT_FN_MPI_COMM_GET_ATTR, COMM);
    int attr = in_attr(keyval);
    if (attr != 0) return predefined(attr, value, flag);
    return get(CKPT_FN_MPI_COMM_GET_ATTR, FRONT_COMM, in_comm(comm), keyval, value, flag);
}

FRONT(int, Comm_delete_attr, (MPI_Comm comm, int keyval)) {
    if (!live(CKPT_FN_MPI_COMM_DELETE_ATTR, CKPT_KIND_COMM, in_comm(comm)))
        return FRONT_ERR(CKPT_FN_MPI_COMM_DELETE_ATTR, COMM);
    return delete (CKPT_FN_MPI_COMM_DELETE_ATTR, FRONT_COMM, in_comm(comm), keyval);
}

// The names of MPI 1.

FRONT(int, Keyval_create,
      (MPI_Comm_copy_attr_function * copy_fn, MPI_Comm_delete_attr_function *delete_fn, int *keyval,
       void *extra_state)) {
    return PMPI_Comm_create_keyval(copy_fn, delete_fn, keyval, extra_state);
}

FRONT(int, Keyval_free, (int *keyval)) { return PMPI_Comm_free_keyval(keyval); }

FRONT(int, Attr_put, (MPI_Comm comm, int keyval, void *value)) {
    return PMPI_Comm_set_attr(comm, keyval, value);
}

FRONT(int, Attr_get, (MPI_Comm comm, int keyval, void *value, int *flag)) {
    return PMPI_Comm_get_attr(comm, keyval, value, flag);
}

FRONT(int, Attr_delete, (MPI_Comm comm, int keyval)) { return PMPI_Comm_delete_attr(comm, keyval); }

// ---- datatypes ----

FRONT(int, Type_create_keyval,
      (MPI_Type_copy_attr_function * copy_fn, MPI_Type_delete_attr_function *delete_fn, int *keyval,
       void *extra_state)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_CREATE_KEYVAL, keyval != NULL);
    return create(FRONT_TYPE, (void *)copy_fn, (void *)delete_fn, extra_state, keyval);
}

FRONT(int, Type_free_keyval, (int *keyval)) {
    return keyval_free(CKPT_FN_MPI_TYPE_FREE_KEYVAL, FRONT_TYPE, keyval);
}

FRONT(int, Type_set_attr, (MPI_Datatype type, int keyval, void *value)) {
    if (!live(CKPT_FN_MPI_TYPE_SET_ATTR, CKPT_KIND_DATATYPE, in_type(type)))
        return FRONT_ERR(CKPT_FN_MPI_TYPE_SET_ATTR, TYPE);
    return set(CKPT_FN_MPI_TYPE_SET_ATTR, FRONT_TYPE, in_type(type), keyval, value);
}

FRONT(int, Type_get_attr, (MPI_Datatype type, int keyval, void *value, int *flag)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_GET_ATTR, value != NULL);
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_GET_ATTR, flag != NULL);
    if (!live(CKPT_FN_MPI_TYPE_GET_ATTR, CKPT_KIND_DATATYPE, in_type(type)))
        return FRONT_ERR(CKPT_FN_MPI_TYPE_GET_ATTR, TYPE);
    return get(CKPT_FN_MPI_TYPE_GET_ATTR, FRONT_TYPE, in_type(type), keyval, value, flag);
}

FRONT(int, Type_delete_attr, (MPI_Datatype type, int keyval)) {
    if (!live(CKPT_FN_MPI_TYPE_DELETE_ATTR, CKPT_KIND_DATATYPE, in_type(type)))
        return FRONT_ERR(CKPT_FN_MPI_TYPE_DELETE_ATTR, TYPE);
    return delete (CKPT_FN_MPI_TYPE_DELETE_ATTR, FRONT_TYPE, in_type(type), keyval);
}

// ---- windows ----

FRONT(int, Win_create_keyval,
      (MPI_Win_copy_attr_function * copy_fn, MPI_Win_delete_attr_function *delete_fn, int *keyval,
       void *extra_state)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_WIN_CREATE_KEYVAL, keyval != NULL);
    return create(FRONT_WIN, (void *)copy_fn, (void *)delete_fn, extra_state, keyval);
}

FRONT(int, Win_free_keyval, (int *keyval)) {
    return keyval_free(CKPT_FN_MPI_WIN_FREE_KEYVAL, FRONT_WIN, keyval);
}

FRONT(int, Win_set_attr, (MPI_Win win, int keyval, void *value)) {
    if (!live(CKPT_FN_MPI_WIN_SET_ATTR, CKPT_KIND_WIN, in_win(win)))
        return FRONT_ERR(CKPT_FN_MPI_WIN_SET_ATTR, WIN);
    return set(CKPT_FN_MPI_WIN_SET_ATTR, FRONT_WIN, in_win(win), keyval, value);
}

FRONT(int, Win_get_attr, (MPI_Win win, int keyval, void *value, int *flag)) {
    FRONT_NEEDS(FRONT_WIN, in_win(win), CKPT_FN_MPI_WIN_GET_ATTR, value != NULL);
    FRONT_NEEDS(FRONT_WIN, in_win(win), CKPT_FN_MPI_WIN_GET_ATTR, flag != NULL);
    if (!live(CKPT_FN_MPI_WIN_GET_ATTR, CKPT_KIND_WIN, in_win(win)))
        return FRONT_ERR(CKPT_FN_MPI_WIN_GET_ATTR, WIN);
    if (front_win_attr(in_win(win), keyval, value)) {
        *flag = 1;
        return MPI_SUCCESS;
    }
    return get(CKPT_FN_MPI_WIN_GET_ATTR, FRONT_WIN, in_win(win), keyval, value, flag);
}

FRONT(int, Win_delete_attr, (MPI_Win win, int keyval)) {
    if (!live(CKPT_FN_MPI_WIN_DELETE_ATTR, CKPT_KIND_WIN, in_win(win)))
        return FRONT_ERR(CKPT_FN_MPI_WIN_DELETE_ATTR, WIN);
    return delete (CKPT_FN_MPI_WIN_DELETE_ATTR, FRONT_WIN, in_win(win), keyval);
}
