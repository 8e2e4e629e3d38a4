// SPDX-License-Identifier: Apache-2.0
//
// syscall: what does a system call cost that ckptrun traps, and one that it lets through?
//
// getpid and the mappings are emulated; getuid and write are nobody's business under seccomp
// (Syscall User Dispatch traps all); clock_gettime is no system call but goes through the vDSO.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "measure.h"

int main(int argc, char **argv) {
    struct measure m = measure_begin(argc, argv);
    int wrong = 0, null = open("/dev/null", O_WRONLY);
    DEMAND(null >= 0);

    pid_t pid = getpid();
    MEASURE(&m, "getpid, trapped", 20, wrong += syscall(SYS_getpid) != pid);
    MEASURE(&m, "mmap and munmap, trapped", 5, {
        void *p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        wrong += p == MAP_FAILED || munmap(p, 65536) != 0;
    });
    uid_t uid = getuid();
    MEASURE(&m, "getuid", 20, wrong += (uid_t)syscall(SYS_getuid) != uid);
    MEASURE(&m, "write of 0 bytes", 20, wrong += write(null, "", 0) != 0);
    MEASURE(&m, "clock_gettime", 100, {
        struct timespec t;
        wrong += clock_gettime(CLOCK_MONOTONIC, &t) != 0;
    });
    DEMAND(wrong == 0);
    close(null);
    return 0;
}
