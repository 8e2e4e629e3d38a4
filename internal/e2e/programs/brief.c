// SPDX-License-Identifier: Apache-2.0
//
// brief.c: a thread asks for a checkpoint, and has ended long before its image is written. Compiled with
// and without MPI (-DMPI).
#include <mpix_checkpoint.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef MPI
#include <mpi.h>
#endif

enum { BYTES = 64 << 20 };

static void fail(const char *what) {
    char why[1000] = "";
    MPIX_Checkpoint_reason(why, sizeof why);
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void save(const char *what) {
    MPIX_CR_state_t state;
    if (MPIX_Checkpoint(&state) || (state != MPIX_CR_STATE_CHECKPOINT && state != MPIX_CR_STATE_RESTART))
        fail(what);
}

static void *brief(void *unused) {
    (void)unused;
    save("the thread that ends");
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
#ifdef MPI
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    if (level != MPI_THREAD_MULTIPLE) fail("MPI_THREAD_MULTIPLE");
#endif
    // What takes its time to be written: bytes that cannot be compressed.
    unsigned *memory = malloc(BYTES), x = 1;
    if (!memory) fail("memory");
    for (size_t i = 0; i < BYTES / sizeof x; i++) memory[i] = x = x * 1664525u + 1013904223u;
    pthread_t thread;
    if (pthread_create(&thread, NULL, brief, NULL) || pthread_join(thread, NULL)) fail("thread");
    save("the main thread"); // after the first image was written, or given up
    x = 1;
    for (size_t i = 0; i < BYTES / sizeof x; i++)
        if (memory[i] != (x = x * 1664525u + 1013904223u)) fail("memory differs");
#ifdef MPI
    MPI_Finalize();
#endif
    puts("done");
    return 0;
}
