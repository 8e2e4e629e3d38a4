// SPDX-License-Identifier: Apache-2.0
//
// objects.h: what the files of object/ do for others.
#ifndef CKPT_FRONT_OBJECTS_H
#define CKPT_FRONT_OBJECTS_H

#include "canon/info.h"
#include "canon/shape.h"
#include "front/core.h"

// ---- attr.c ------------------------------------------------------------------------------------

// Copies attributes (with their copy functions) to a duplicate.  Returns the ABI's code of the first
// failure, for which no error handler has been called yet.
int front_attrs_copy(int sort, ckpt_vid from, ckpt_vid to);
// Deletes all attributes for fn, newest first.  Returns the ABI's code of the first failure, for which the
// object's error handler has been called.
int front_attrs_delete(unsigned fn, int sort, ckpt_vid vid);

// The forms of attributes in Fortran.  The numbers are MPICH's, whose Fortran library uses them.
enum { FRONT_ATTR_POINTER = 0, FRONT_ATTR_AINT = 1, FRONT_ATTR_FINT = 3 };
// Calls a function of Fortran for an attribute; handle is the Fortran one.
typedef int front_copy_proxy(void *fn, int handle, int keyval, void *extra, int form, void *value,
                             void **copy, int *flag);
typedef int front_delete_proxy(void *fn, int handle, int keyval, int form, void *value, void *extra);
void front_keyval_proxy(int keyval, front_copy_proxy *copy, front_delete_proxy *delete);
int front_attr_set(int sort, ckpt_vid object, int keyval, long value, int form);
int front_attr_get(int sort, ckpt_vid object, int keyval, long *value, int *flag);

// ---- comm.c ------------------------------------------------------------------------------------

// Completes the front's part of a new communicator.
MPI_Comm front_comm_made(ckpt_vid parent, ckpt_vid made);

// ---- group.c -----------------------------------------------------------------------------------

// The group that fn (object, size out, members out) returns.
int front_group_of(int sort, unsigned fn, ckpt_vid object, MPI_Group *group);

const ckpt_mpi_group *in_group(MPI_Group g);
// A group without members yet, with room for size.  front_group_new takes the group and gives it a handle;
// front_group_discard frees a group that got none.
ckpt_mpi_group *front_group_alloc(int size);
MPI_Group front_group_new(ckpt_mpi_group *g);
void front_group_discard(ckpt_mpi_group *g);
// Called when the communicator that kept a group is freed; g may be NULL.
void front_group_let_go(struct front_group *g);

// ---- hints.c -----------------------------------------------------------------------------------

// Keeps the hints that a communicator or window was made with; NULL: none were given.
void front_hints_made(int sort, ckpt_vid vid, const char *given);

// ---- words.c -----------------------------------------------------------------------------------

// Hints that nobody gave and the like differ between releases of one MPI.  A program gets what the MPI below has
// when that is of its ABI.  Above another MPI it gets what the first release with its ABI has, since nothing here
// says for which one it was compiled; a program of the standard ABI then gets those of the MPI below.
#define RELEASE(major, minor) ((major)*1000 + (minor))
struct front_words {
    int mpich;   // words of MPICH; 0: of Open MPI
    int release; // RELEASE
};
struct front_words front_words(void);
#define FRONT_MEMORY_KINDS "mpi,system" // of memory that programs may give to MPI

// ---- info.c ------------------------------------------------------------------------------------

const char *in_info(MPI_Info info);
MPI_Info front_info_new(const char *content);
extern ckpt_vid front_info_env;         // the object that MPI_INFO_ENV stands for
void front_info_environment(int level); // environment.c: makes it

// Sets the value of key.  The caller has checked that key and value are usable.
void front_info_set(MPI_Info info, const char *key, const char *value);
void front_info_drop(MPI_Info info);

// ---- window.c ----------------------------------------------------------------------------------

// A predefined attribute of a window; 0 when keyval is none.
int front_win_attr(ckpt_vid win, int keyval, void *value);

#endif
