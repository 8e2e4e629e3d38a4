// SPDX-License-Identifier: Apache-2.0
//
// window_share.c: the memory of MPI_Win_allocate_shared.
//
// Every rank has a file for the pages in which its part begins.  It maps the files of all ranks, one after
// the other, at addresses that the front reserved.  A file has two names: its owner maps it by one name and
// the other ranks by the other name, so that snapshot sees in the list of mappings which pages this rank has
// to save.  The names are removed when all ranks have mapped the files.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "back/impl/error.h"
#include "back/window/window.h"

// ckpt/snapshot knows how these names begin.
#define OWN "/dev/shm/libckpt-own-%016llx-%d"
#define PEER "/dev/shm/libckpt-peer-%016llx-%d"
enum { PAGE = 4096, NAME = 80 };

struct range {
    char *at;
    size_t bytes;
};

static int64_t up(int64_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static struct range pages_of(const struct window *w, int rank) {
    int64_t from = up(w->starts[rank]), to = up(w->starts[rank + 1]);
    return (struct range){w->area + from, (size_t)(to - from)};
}

static int map(int fd, struct range r) {
    return mmap(r.at, r.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
}

static int write_all(int fd, struct range r) {
    for (size_t done = 0; done < r.bytes;) {
        ssize_t n = pwrite(fd, r.at + done, r.bytes - done, (off_t)done);
        if (n <= 0 && errno != EINTR) return 0;
        done += n > 0 ? (size_t)n : 0;
    }
    return 1;
}

// Makes this rank's file, of full size so that no later write finds the file system full.
static int make_own(const struct window *w, unsigned long long id, int again) {
    char own[NAME], peer[NAME];
    struct range r = pages_of(w, w->rank);
    if (r.bytes == 0) return 1;
    snprintf(own, sizeof own, OWN, id, w->rank);
    snprintf(peer, sizeof peer, PEER, id, w->rank);
    int fd = open(own, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return 0;
    int good = posix_fallocate(fd, 0, (off_t)r.bytes) == 0 && (!again || write_all(fd, r)) &&
               link(own, peer) == 0 && map(fd, r);
    close(fd);
    return good;
}

static int map_peers(const struct window *w, unsigned long long id) {
    int good = 1;
    for (int i = 0; i < w->ranks && good; i++) {
        char peer[NAME];
        struct range r = pages_of(w, i);
        if (i == w->rank || r.bytes == 0) continue;
        snprintf(peer, sizeof peer, PEER, id, i);
        int fd = open(peer, O_RDWR | O_CLOEXEC);
        good = fd >= 0 && map(fd, r);
        if (fd >= 0) close(fd);
    }
    return good;
}

static void unlink_own(const struct window *w, unsigned long long id) {
    char name[NAME];
    snprintf(name, sizeof name, OWN, id, w->rank);
    unlink(name);
    snprintf(name, sizeof name, PEER, id, w->rank);
    unlink(name);
}

// Whether all members succeeded.
static int all(int good, MPI_Comm comm) {
    int every = 0;
    return MPI_Allreduce(&good, &every, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS && every;
}

int window_on_one_node(MPI_Comm comm, int ranks) {
    MPI_Comm node = MPI_COMM_NULL;
    int n = 0;
    if (MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node) != MPI_SUCCESS) return 0;
    MPI_Comm_size(node, &n);
    MPI_Comm_free(&node);
    return n == ranks;
}

int window_share(const struct window *w, MPI_Comm comm, int again) {
    unsigned long long id = 0;
    int have = w->starts != NULL && (w->area != NULL || w->starts[w->ranks] == 0);
    if (!window_on_one_node(comm, w->ranks)) return MPI_ERR_RMA_SHARED;
    if (w->rank == 0 && getrandom(&id, sizeof id, 0) != sizeof id) have = 0;
    MPI_Bcast(&id, 1, MPI_UNSIGNED_LONG_LONG, 0, comm);
    if (!all(have, comm)) return MPI_ERR_NO_MEM;
    int good = all(make_own(w, id, again), comm);
    if (good) good = all(map_peers(w, id), comm);
    unlink_own(w, id);
    return good ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}
