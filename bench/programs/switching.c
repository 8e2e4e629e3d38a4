// SPDX-License-Identifier: Apache-2.0
//
// switching: what does it cost to give the processor to another rank?
//
//   switching BATCHES              2 ranks take turns on one processor, without a call of MPI
//   switching BATCHES crowded      more ranks than processors meet in a barrier, whose MPI yields while it waits
//
// A switch saves and loads the bases of FS and GS.  Under ckptrun that of GS is not 0, and where neither the kernel
// nor a program may write it with an instruction of its own, loading it is a visit to the hypervisor.
#define _GNU_SOURCE // CPU_SET
#include <sched.h>

#include "job.h"

// The first processor that this process may use.
static void one_processor(void) {
    cpu_set_t all, one;
    int first = 0;
    DEMAND(sched_getaffinity(0, sizeof all, &all) == 0);
    while (!CPU_ISSET(first, &all)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    DEMAND(sched_setaffinity(0, sizeof one, &one) == 0);
}

int main(int argc, char **argv) {
    struct job j = job_begin(argc, argv, 0);
    if (argc > 2) {
        DEMAND(strcmp(argv[2], "crowded") == 0);
        MEASURE(&j.m, "MPI_Barrier", 20, MPI_Barrier(MPI_COMM_WORLD));
        return job_end();
    }
    DEMAND(j.size == 2);
    one_processor();
    MPI_Barrier(MPI_COMM_WORLD);
    MEASURE(&j.m, "sched_yield, and one of the other rank", 50, sched_yield());
    return job_end();
}
