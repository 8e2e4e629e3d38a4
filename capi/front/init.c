// SPDX-License-Identifier: Apache-2.0
//
// init.c: begin and end of MPI, and functions that only ask about the environment.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "front/front.h"

static int thread_level;
static pthread_t main_thread;

int front_sessions_only;

int front_thread_level(void) { return thread_level; }

void front_begin(int required) {
    const struct Init_thread_words a = {.required = required, .provided = &thread_level};
    long rc = front_call_always(CKPT_FN_MPI_INIT_THREAD, &a);
    if (rc != 0) {
        fprintf(stderr, "libckpt: MPI_Init failed below: error class %ld.\n", rc & 0xff);
        exit(1);
    }
    main_thread = pthread_self();
    front_state = FRONT_RUNNING;
    front_info_environment(thread_level);
}

static int init(int required, int *provided, unsigned fn) {
    if (front_state != FRONT_BEFORE && !front_sessions_only) {
        fprintf(stderr, "libckpt: %s was called twice.\n", front_name(fn));
        exit(1);
    }
    if (front_state == FRONT_BEFORE) front_begin(required);
    front_sessions_only = 0;
    if (provided != NULL) *provided = out_level(thread_level);
    return MPI_SUCCESS;
}

FRONT(int, Init, (int *argc, char ***argv)) {
    (void)argc, (void)argv;
    return init(CANON_THREAD_SINGLE, NULL, CKPT_FN_MPI_INIT);
}

FRONT(int, Init_thread, (int *argc, char ***argv, int required, int *provided)) {
    (void)argc, (void)argv;
    return init(in_level(required), provided, CKPT_FN_MPI_INIT_THREAD);
}

FRONT(int, Finalize, (void)) {
    if (front_state != FRONT_RUNNING) front_not_running(CKPT_FN_MPI_FINALIZE);
    // MPI says that the attributes of MPI_COMM_SELF are deleted first, while everything still works.
    int rc = front_attrs_delete(CKPT_FN_MPI_FINALIZE, FRONT_COMM, VID_COMM_SELF);
    if (rc != MPI_SUCCESS) return rc;
    front_attrs_delete(CKPT_FN_MPI_FINALIZE, FRONT_COMM, VID_COMM_WORLD);
    long below = front_call(CKPT_FN_MPI_FINALIZE, NULL);
    if (below != 0) return front_error(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_FINALIZE, below);
    front_state = FRONT_AFTER;
    return MPI_SUCCESS;
}

FRONT(int, Initialized, (int *flag)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_INITIALIZED, flag != NULL);
    *flag = front_state != FRONT_BEFORE && !front_sessions_only;
    return MPI_SUCCESS;
}

FRONT(int, Finalized, (int *flag)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_FINALIZED, flag != NULL);
    *flag = front_state == FRONT_AFTER;
    return MPI_SUCCESS;
}

FRONT(int, Abort, (MPI_Comm comm, int errorcode)) {
    fflush(NULL);
    if (front_state == FRONT_RUNNING) {
        const struct Abort_words a = {.comm = in_comm(comm), .errorcode = errorcode};
        front_call(CKPT_FN_MPI_ABORT, &a);
    }
    _Exit(errorcode);
}

FRONT(int, Query_thread, (int *provided)) {
    *provided = out_level(thread_level);
    return MPI_SUCCESS;
}

FRONT(int, Is_thread_main, (int *flag)) {
    *flag = pthread_equal(main_thread, pthread_self());
    return MPI_SUCCESS;
}

FRONT(int, Get_version, (int *version, int *subversion)) {
    *version = FRONT_MPI_VERSION;
    *subversion = FRONT_MPI_SUBVERSION;
    return MPI_SUCCESS;
}

FRONT(int, Get_library_version, (char *version, int *resultlen)) {
    const struct Get_library_version_words a = {
        .version = version, .resultlen = resultlen, .room = MPI_MAX_LIBRARY_VERSION_STRING};
    long rc = front_call_always(CKPT_FN_MPI_GET_LIBRARY_VERSION, &a);
    return rc ? front_error(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GET_LIBRARY_VERSION, rc) : MPI_SUCCESS;
}

FRONT(int, Get_processor_name, (char *name, int *resultlen)) {
    if (gethostname(name, MPI_MAX_PROCESSOR_NAME - 1) != 0)
        return FRONT_ERR(CKPT_FN_MPI_GET_PROCESSOR_NAME, OTHER);
    name[MPI_MAX_PROCESSOR_NAME - 1] = 0;
    *resultlen = (int)strlen(name);
    return MPI_SUCCESS;
}

FRONT(double, Wtime, (void)) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

FRONT(double, Wtick, (void)) { return 1e-9; }

FRONT(int, Pcontrol, (int level, ...)) {
    (void)level;
    return MPI_SUCCESS;
}

FRONT(int, Get_address, (const void *location, MPI_Aint *address)) {
    *address = (MPI_Aint)location;
    return MPI_SUCCESS;
}

FRONT(int, Address, (const void *location, MPI_Aint *address)) { return PMPI_Get_address(location, address); }

FRONT(MPI_Aint, Aint_add, (MPI_Aint base, MPI_Aint disp)) { return base + disp; }

FRONT(MPI_Aint, Aint_diff, (MPI_Aint addr1, MPI_Aint addr2)) { return addr1 - addr2; }

// The memory is in the upper half, because the application keeps pointers into it.
FRONT(int, Alloc_mem, (MPI_Aint size, MPI_Info info, void *baseptr)) {
    (void)info;
    void *p = NULL;
    if (size < 0 || (size > 0 && posix_memalign(&p, 64, (size_t)size) != 0))
        return FRONT_ERR(CKPT_FN_MPI_ALLOC_MEM, NO_MEM);
    *(void **)baseptr = p;
    return MPI_SUCCESS;
}

FRONT(int, Free_mem, (void *base)) {
    free(base);
    return MPI_SUCCESS;
}
