// SPDX-License-Identifier: Apache-2.0
//
// words.c: of which release the words are that differ between releases of one MPI.
#include <string.h>

#include "front/front.h"

#define MPICH_SAYS "MPICH Version:"
#define OPENMPI_SAYS "Open MPI v"

static int number(const char **p) {
    int n = 0;
    *p += strspn(*p, " \t.");
    for (; **p >= '0' && **p <= '9' && n < 1000; ++*p) n = 10 * n + **p - '0';
    return n;
}

// Asked for each time, because a restart may be above another one.
struct front_words front_words(void) {
    char says[64] = "";
    int length = 0;
    const struct Get_library_version_words a = {.version = says, .resultlen = &length, .room = sizeof says};
    if (front_call_always(CKPT_FN_MPI_GET_LIBRARY_VERSION, &a) != 0) says[0] = 0;
    int mpich = strncmp(says, MPICH_SAYS, strlen(MPICH_SAYS)) == 0;
    int openmpi = strncmp(says, OPENMPI_SAYS, strlen(OPENMPI_SAYS)) == 0;
    const char *at = says + (mpich ? strlen(MPICH_SAYS) : openmpi ? strlen(OPENMPI_SAYS) : 0);
    int major = number(&at), minor = number(&at), release = RELEASE(major, minor);
#if FRONT_ABI == 1
    (void)openmpi;
    return (struct front_words){.mpich = 1, .release = mpich ? release : RELEASE(4, 0)};
#elif FRONT_ABI == 2
    (void)mpich;
    return (struct front_words){.mpich = 0, .release = openmpi ? release : RELEASE(4, 1)};
#else
    return (struct front_words){.mpich = mpich, .release = mpich || openmpi ? release : RELEASE(6, 0)};
#endif
}
