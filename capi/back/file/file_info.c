// SPDX-License-Identifier: Apache-2.0
//
// file_info.c: hints of MPI files.
//
// The back keeps the hints that the application gave when it opened a file or later.  A restart gives them to
// the MPI that opens the file again.  An application that asks for the hints gets those that the MPI below
// uses, and those of its own that this MPI does not know.
#include <stdlib.h>

#include "back/file/file.h"
#include "back/impl/error.h"
#include "back/object/comm.h"
#include "back/object/describe.h"

// Grows by pairs of strings; content as in mpi_canon.h without its last NUL.
struct pairs {
    char *text;
    size_t n;
    int failed;
};

static const char *value_of(const char *key) { return key + strlen(key) + 1; }

static const char *next(const char *key) { return value_of(value_of(key)); }

static int has(const struct pairs *p, const char *key) {
    for (const char *k = p->text; p->n > 0 && k < p->text + p->n; k = next(k))
        if (strcmp(k, key) == 0) return 1;
    return 0;
}

// A key that is there already keeps its value.
static void add(struct pairs *p, const char *key, const char *value) {
    size_t k = strlen(key) + 1, v = strlen(value) + 1;
    if (has(p, key)) return;
    char *grown = realloc(p->text, p->n + k + v + 1);
    if (grown == NULL) {
        p->failed = 1;
        return;
    }
    memcpy(grown + p->n, key, k);
    memcpy(grown + p->n + k, value, v);
    p->text = grown;
    p->n += k + v;
    grown[p->n] = 0;
}

static void add_content(struct pairs *p, const char *content) {
    for (const char *k = content; k != NULL && *k != 0; k = next(k)) add(p, k, value_of(k));
}

static void add_info(struct pairs *p, MPI_Info info) {
    int n = 0, flag;
    MPI_Info_get_nkeys(info, &n);
    for (int i = 0; i < n; i++) {
        char key[MPI_MAX_INFO_KEY + 1] = "", value[MPI_MAX_INFO_VAL + 1] = "";
        MPI_Info_get_nthkey(info, i, key);
        MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &flag);
        if (flag && key[0] != 0) add(p, key, value);
    }
}

// file, hints
long back_File_set_info(const long *a) {
    ARGS(File_set_info) args = (const void *)a;
    struct file *f = back_file_of(args->fh);
    MPI_Info info = back_info(args->info);
    int rc = MPI_File_set_info(real_file(args->fh), info);
    back_info_done(&info);
    if (rc != MPI_SUCCESS || f == NULL || args->info == 0) return back_error(rc);
    struct pairs p = {0};
    add_content(&p, args->info); // the newest first
    add_content(&p, f->info);
    if (p.failed) {
        free(p.text);
        return CANON_ERR(NO_MEM);
    }
    free(f->info);
    f->info = p.text;
    return 0;
}

// file, room for hints, bytes of the room; out: bytes of the hints
long back_File_get_info(const long *a) {
    ARGS(File_get_info) args = (const void *)a;
    const struct file *f = back_file_of(args->fh);
    MPI_Info info = MPI_INFO_NULL;
    struct pairs p = {0};
    if (f == NULL) return CANON_ERR(FILE);
    int rc = MPI_File_get_info(real_file(args->fh), &info);
    if (rc != MPI_SUCCESS) return back_error(rc);
    if (info != MPI_INFO_NULL) add_info(&p, info);
    back_info_done(&info);
    add_content(&p, f->view_info);
    add_content(&p, f->info);
    long bytes = (long)p.n + 1;
    if (bytes <= args->room) memcpy((void *)args->content, p.n ? p.text : "", (size_t)bytes);
    *(long *)args->bytes = bytes;
    free(p.text);
    return p.failed ? CANON_ERR(NO_MEM) : 0;
}
