// SPDX-License-Identifier: Apache-2.0
//
// maps.h: the mappings of this process, as the kernel lists them (maps.c).
#ifndef MAPS_H
#define MAPS_H

#include <stdbool.h>
#include <stdint.h>

struct maps {
    int fd;
    long at, n;
    char bytes[2048];
};

struct mapping {
    uint64_t start, end;
    char perms[4]; // as "rw-p", no NUL
    bool file;     // it is of a file
};

bool maps_open(struct maps *m);
bool maps_next(struct maps *m, struct mapping *to); // by address
void maps_close(struct maps *m);

#endif
