// SPDX-License-Identifier: Apache-2.0
//
// shm.c: memory that processes share.  The core has the processes of a segment meet, and its file made; it is mapped
// here, in the runtime's half.  What is mapped is known to the core alone: nothing of it is kept here.
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "embed/embed.h"
#include "embed/functions.h"

#define EXPORT __attribute__((visibility("default")))

enum { SIZE_1_1 = 40 }; // of ckpt_shm, when it came; it never changes
_Static_assert(offsetof(ckpt_shm, flags) + sizeof(unsigned) == SIZE_1_1, "ckpt_shm of 1.1");

static int refuse(int code, const char *why, ckpt_error *error) {
    embed_say(error, code, why);
    return code;
}

// Maps the file of a segment in whole pages: its address, or NULL and errno.
static void *map(const char *path, size_t bytes) {
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return NULL;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int why = errno;
    close(fd);
    errno = why;
    return at == MAP_FAILED ? NULL : at;
}

EXPORT int ckpt_shm_map(ckpt_job *job, const ckpt_shm *shm, void **at, ckpt_error *error) {
    ckpt_shm s = {.size = 0};
    char path[128]; // /dev/shm/libckpt-, 16 digits, -, and 63 characters
    if (job == NULL || embed_of(job) != embed_job_open())
        return refuse(CKPT_E_ARG, "this is no open job: it was not returned by ckpt_open, or was closed",
                      error);
    if (shm == NULL || at == NULL)
        return refuse(CKPT_E_ARG, "ckpt_shm_map was given no ckpt_shm, or no place for the address", error);
    int e = embed_take(&s, sizeof s, SIZE_1_1, shm, "ckpt_shm", "1.1", error);
    if (e != 0) return e;
    if (s.name == NULL || s.processes == NULL)
        return refuse(CKPT_E_ARG, "ckpt_shm has no name, or no list of processes", error);
    e = ckpt_core_shm_make(job, &s, path, sizeof path, error);
    if (e != 0) return e;
    size_t bytes = (s.bytes + 4095) & ~(size_t)4095;
    errno = 0;
    void *mine = map(path, bytes);
    e = ckpt_core_shm_mapped(job, s.name, mine, mine ? 0 : errno, error);
    if (e == 0)
        *at = mine;
    else if (mine != NULL)
        munmap(mine, bytes);
    return e;
}

EXPORT int ckpt_shm_unmap(ckpt_job *job, const char *name) {
    void *at;
    size_t bytes;
    if (job == NULL || embed_of(job) != embed_job_open() || name == NULL) return CKPT_E_ARG;
    int e = ckpt_core_shm_unmapping(job, name, &at, &bytes);
    if (e != 0) return e;
    if (munmap(at, bytes) != 0) return CKPT_E_SYSTEM;
    return ckpt_core_shm_unmapped(job, name);
}
