// SPDX-License-Identifier: Apache-2.0
//
// program.h: the application's ELF files in the arena (program.c; its gate page is in crossing.h).
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdint.h>

struct program {
    uint64_t entry, phdr, phnum, base, interp_base, interp_entry;
};
const char *program_load(const char *path, struct program *out); // NULL, or what is wrong
uint64_t program_stack(const struct program *p, const char *exe, char **argv, char **envp);
void program_show(const char *comm); // name and arguments, as ps shows them
const char *vdso_load(void);         // NULL, or what is wrong

#endif
