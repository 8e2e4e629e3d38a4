// SPDX-License-Identifier: Apache-2.0
//
// logbook.c: all ranks but the last step together, the last one alone, so that what happens to it is no reason
// for the others to stand still. What a step comes to depends on all before it, and for those together on each
// of them. Every rank notes each step twice: in a log that it holds open, which a restart puts back to where it
// was, and by the name of a folder that it makes, which shows what happened: no restart takes that back. Such
// names begin with the time, which goes on, and who has read one removes it.
// usage: logbook STOP FOLDER; when there is the file STOP, it ends. FOLDER has folders journal.RANK.
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 1 << 16 };

static uint64_t field[WORDS];

static uint64_t mix(uint64_t a, uint64_t b) {
    a = (a ^ b) * 0x9e3779b97f4a7c15u;
    return a ^ a >> 29;
}

static int append(const char *folder, const char *name, int rank) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%d", folder, name, rank);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (fd < 0) {
        perror(path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return fd;
}

static void note(int fd, const char *line) {
    if (write(fd, line, strlen(line)) != (ssize_t)strlen(line)) {
        perror("write");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv) {
    int rank, size, n, end = 0;
    MPI_Comm others;
    MPI_Init(&argc, &argv);
    if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int alone = rank == size - 1;
    MPI_Comm_split(MPI_COMM_WORLD, alone, rank, &others);
    MPI_Comm_size(others, &n);
    uint64_t x = mix(1, (uint64_t)rank);
    int log = append(argv[2], "log", rank);
    for (long s = 0; !end; s++) {
        uint64_t in = 0, all = 0;
        int mine = !access(argv[1], F_OK);
        MPI_Allreduce(&mine, &end, 1, MPI_INT, MPI_MAX, others);
        MPI_Sendrecv(&x, 1, MPI_UINT64_T, (rank + 1) % n * !alone, 0, &in, 1, MPI_UINT64_T,
                     (rank + n - 1) % n * !alone, 0, others, MPI_STATUS_IGNORE);
        MPI_Allreduce(&x, &all, 1, MPI_UINT64_T, MPI_BXOR, others);
        x = mix(mix(mix(x, in), all), (uint64_t)s);
        field[x % WORDS] += x;
        x = mix(x, field[(uint64_t)s * 31 % WORDS]);
        char line[64];
        snprintf(line, sizeof line, "%ld %016lx\n", s, (unsigned long)x);
        struct timespec t;
        char name[4096];
        clock_gettime(CLOCK_REALTIME, &t);
        snprintf(name, sizeof name, "%s/journal.%d/%010ld.%09ld %ld %016lx", argv[2], rank, (long)t.tv_sec,
                 t.tv_nsec, s, (unsigned long)x);
        if (mkdir(name, 0755)) {
            perror(name);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        note(log, line);
        usleep(2000);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (!rank) puts("done");
    MPI_Finalize();
    return 0;
}
