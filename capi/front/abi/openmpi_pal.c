// SPDX-License-Identifier: Apache-2.0
//
// openmpi_pal.c: stands for libopen-pal, the library below MPI of Open MPI 5 and 6, where its Fortran library names it: what
// that library calls, or may be bound to at once.
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

// Other libraries know these by their names: no header of ours declares them.
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define EXPORT __attribute__((visibility("default")))

EXPORT bool opal_uses_threads;
// Classes of objects: our part of the Fortran library makes none.
EXPORT int opal_class_init_epoch = 1;
EXPORT void *opal_list_item_t_class[16];
EXPORT void opal_class_initialize(void *class) { (void)class; }

// An argument vector that the Fortran library got from our libmpi.
EXPORT void opal_argv_free(char **argv) {
    for (char **a = argv; a != NULL && *a != NULL; a++) free(*a);
    free(argv);
}
