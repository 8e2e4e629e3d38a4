// SPDX-License-Identifier: Apache-2.0
//
// tmpi.h: a small runtime like MPI, whose ranks are user-level threads.
//
// Each process runs many ranks as tasks on a few kernel threads, its workers.  The program gives the function that is
// to run as each rank.  All other functions here are called by ranks alone; those marked "switches" may run other
// ranks before they return, and may return on another kernel thread.  So a rank keeps nothing of a kernel thread
// over them: no errno, no thread-local variable, no locked mutex.
//
// Errors of the runtime itself (a lost connection, no memory) end the job with a message, as MPI_ERRORS_ARE_FATAL
// does.
#ifndef TMPI_H
#define TMPI_H

#include <stddef.h>

#define TMPI_ANY_SOURCE (-1)
#define TMPI_ANY_TAG (-1)

typedef struct tmpi_status {
    int source, tag;
    size_t bytes; // that were sent; what a shorter buffer has no room for is lost
} tmpi_status;

typedef struct tmpi_request *tmpi_request;

// Runs body as each of the ranks of this process and returns the greatest of its results.  tmpirun says how many
// ranks, workers and processes there are.  Switches no task: main calls it.
int tmpi_run(int (*body)(int argc, char **argv), int argc, char **argv);

int tmpi_rank(void);
int tmpi_size(void);

// Messages of one sender and one receiver are received in the order in which they were sent.  tag is 0 or more.
// Sends keep a copy where need be, so they return without a receiver.  Both switch.
void tmpi_send(const void *data, size_t bytes, int dest, int tag);
void tmpi_recv(void *data, size_t bytes, int source, int tag, tmpi_status *status); // status may be NULL
tmpi_request tmpi_isend(const void *data, size_t bytes, int dest, int tag);
tmpi_request tmpi_irecv(void *data, size_t bytes, int source, int tag);
// Frees the request.  Switches.
void tmpi_wait(tmpi_request request, tmpi_status *status);

// Collective; switch.  tmpi_allreduce combines in an order that depends on the number of ranks only, not on how they
// are divided among processes: the result has the same bits on all of them and in each such run.
enum tmpi_op { TMPI_SUM, TMPI_MIN, TMPI_MAX };
void tmpi_barrier(void);
void tmpi_allreduce(const double *in, double *out, int n, enum tmpi_op op);

// Lets other ranks run.  Switches.
void tmpi_yield(void);

// Saves the job.  Collective; switches.  Returns what a checkpoint did (enum ckpt_state of ckpt.h): 1 saved, 2 this is
// the continued run, 3 nothing was done, as in a job without ckptrun, 0 it failed and the job goes on.
int tmpi_checkpoint(void);

// Memory of the calling rank, zeroed.  Never NULL.
void *tmpi_malloc(size_t bytes);
void tmpi_free(void *memory);

#endif
