// SPDX-License-Identifier: Apache-2.0
//
// info.c: info objects.  They are kept in the form in which they pass the gate (mpi_canon.h), in the order
// in which their keys were set.
#include <stdlib.h>
#include <string.h>

#include "front/front.h"

struct info {
    char *content; // key NUL value NUL ... NUL
};

#define VID_INFO_ENV CKPT_VID(CKPT_KIND_INFO, 1)
ckpt_vid front_info_env;

static struct info *object(MPI_Info info) {
    ckpt_vid v = in_info_vid(info);
    return front_object(CKPT_KIND_INFO, v == VID_INFO_ENV ? front_info_env : v);
}

const char *in_info(MPI_Info info) {
    struct info *o = object(info);
    return o ? o->content : NULL;
}

MPI_Info front_info_new(const char *content) {
    struct info *o = front_alloc(sizeof *o);
    size_t n = info_bytes(content);
    o->content = memcpy(front_alloc(n), content, n);
    return out_info(front_object_new(CKPT_KIND_INFO, o));
}

static int info_error(unsigned fn, int class) { return front_error(FRONT_COMM, VID_COMM_WORLD, fn, class); }

// A usable key, or the class of the error.
static int check_key(const char *key) {
    size_t n = key ? strlen(key) : 0;
    return n == 0 || n > MPI_MAX_INFO_KEY ? CANON_ERRCLASS_ERR_INFO_KEY : 0;
}

FRONT(int, Info_create, (MPI_Info * info)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_INFO_CREATE, info != NULL);
    *info = front_info_new("");
    return MPI_SUCCESS;
}

FRONT(int, Info_dup, (MPI_Info info, MPI_Info *newinfo)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_INFO_DUP, newinfo != NULL);
    struct info *o = object(info);
    if (o == NULL) return info_error(CKPT_FN_MPI_INFO_DUP, CANON_ERRCLASS_ERR_INFO);
    *newinfo = front_info_new(o->content);
    return MPI_SUCCESS;
}

void front_info_drop(MPI_Info info) {
    struct info *o = object(info);
    front_object_drop(CKPT_KIND_INFO, in_info_vid(info));
    free(o->content);
    free(o);
}

FRONT(int, Info_free, (MPI_Info * info)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_INFO_FREE, info != NULL);
    struct info *o = object(*info);
    if (o == NULL || in_info_vid(*info) == VID_INFO_ENV)
        return info_error(CKPT_FN_MPI_INFO_FREE, CANON_ERRCLASS_ERR_INFO);
    front_info_drop(*info);
    *info = MPI_INFO_NULL;
    return MPI_SUCCESS;
}

// Makes content anew, without the pair at old (may be NULL), and with key and value in the place of that
// pair or at the end (key may be NULL).
static void replace(struct info *o, const char *old, const char *key, const char *value) {
    size_t n = info_bytes(o->content), k = key ? strlen(key) + 1 : 0;
    size_t v = key ? strlen(value) + 1 : 0;
    char *content = front_alloc(n + k + v), *p = content;
    const char *at = old ? old : o->content + n - 1, *rest = old ? info_next(old) : at;
    p = (char *)memcpy(p, o->content, (size_t)(at - o->content)) + (at - o->content);
    if (key != NULL) {
        p = (char *)memcpy(p, key, k) + k;
        p = (char *)memcpy(p, value, v) + v;
    }
    memcpy(p, rest, (size_t)(o->content + n - rest));
    free(o->content);
    o->content = content;
}

void front_info_set(MPI_Info info, const char *key, const char *value) {
    struct info *o = object(info);
    replace(o, info_key(o->content, key), key, value);
}

FRONT(int, Info_set, (MPI_Info info, const char *key, const char *value)) {
    struct info *o = object(info);
    int bad = o == NULL ? CANON_ERRCLASS_ERR_INFO : check_key(key);
    if (!bad && (value == NULL || strlen(value) > MPI_MAX_INFO_VAL)) bad = CANON_ERRCLASS_ERR_INFO_VALUE;
    if (bad) return info_error(CKPT_FN_MPI_INFO_SET, bad);
    replace(o, info_key(o->content, key), key, value);
    return MPI_SUCCESS;
}

FRONT(int, Info_delete, (MPI_Info info, const char *key)) {
    struct info *o = object(info);
    int bad = o == NULL ? CANON_ERRCLASS_ERR_INFO : check_key(key);
    const char *old = bad ? NULL : info_key(o->content, key);
    if (!bad && old == NULL) bad = CANON_ERRCLASS_ERR_INFO_NOKEY;
    if (bad) return info_error(CKPT_FN_MPI_INFO_DELETE, bad);
    replace(o, old, NULL, NULL);
    return MPI_SUCCESS;
}

FRONT(int, Info_get, (MPI_Info info, const char *key, int valuelen, char *value, int *flag)) {
    const char *content = in_info(info);
    int bad = content == NULL ? CANON_ERRCLASS_ERR_INFO : check_key(key);
    if (bad) return info_error(CKPT_FN_MPI_INFO_GET, bad);
    const char *pair = info_key(content, key);
    *flag = pair != NULL;
    if (pair != NULL) {
        const char *v = pair + strlen(pair) + 1;
        size_t n = strnlen(v, valuelen > 0 ? (size_t)valuelen : 0);
        memcpy(value, v, n);
        value[n] = 0;
    }
    return MPI_SUCCESS;
}

// buflen includes the null character, on input and on output.
FRONT(int, Info_get_string, (MPI_Info info, const char *key, int *buflen, char *value, int *flag)) {
    const char *content = in_info(info);
    int bad = content == NULL ? CANON_ERRCLASS_ERR_INFO : check_key(key);
    if (bad) return info_error(CKPT_FN_MPI_INFO_GET_STRING, bad);
    const char *v = info_value(content, key);
    *flag = v != NULL;
    if (v == NULL) return MPI_SUCCESS;
    if (*buflen > 0) {
        size_t n = strnlen(v, (size_t)*buflen - 1);
        memcpy(value, v, n);
        value[n] = 0;
    }
    *buflen = (int)strlen(v) + 1;
    return MPI_SUCCESS;
}

FRONT(int, Info_create_env, (int argc, char **argv, MPI_Info *info)) {
    int rc = PMPI_Info_create(info);
    if (rc == MPI_SUCCESS && argc > 0 && argv != NULL) rc = PMPI_Info_set(*info, "command", argv[0]);
    return rc;
}

FRONT(int, Info_get_valuelen, (MPI_Info info, const char *key, int *valuelen, int *flag)) {
    const char *content = in_info(info);
    int bad = content == NULL ? CANON_ERRCLASS_ERR_INFO : check_key(key);
    if (bad) return info_error(CKPT_FN_MPI_INFO_GET_VALUELEN, bad);
    const char *pair = info_key(content, key);
    *flag = pair != NULL;
    if (pair != NULL) *valuelen = (int)strlen(pair + strlen(pair) + 1);
    return MPI_SUCCESS;
}

FRONT(int, Info_get_nkeys, (MPI_Info info, int *nkeys)) {
    const char *content = in_info(info);
    if (content == NULL) return info_error(CKPT_FN_MPI_INFO_GET_NKEYS, CANON_ERRCLASS_ERR_INFO);
    *nkeys = 0;
    for (const char *p = content; *p; p = info_next(p)) ++*nkeys;
    return MPI_SUCCESS;
}

FRONT(int, Info_get_nthkey, (MPI_Info info, int n, char *key)) {
    const char *p = in_info(info);
    if (p == NULL) return info_error(CKPT_FN_MPI_INFO_GET_NTHKEY, CANON_ERRCLASS_ERR_INFO);
    for (int i = 0; *p && i < n; i++) p = info_next(p);
    if (n < 0 || !*p) return info_error(CKPT_FN_MPI_INFO_GET_NTHKEY, CANON_ERRCLASS_ERR_ARG);
    strcpy(key, p);
    return MPI_SUCCESS;
}
