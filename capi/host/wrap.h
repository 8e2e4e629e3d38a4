// SPDX-License-Identifier: Apache-2.0
//
// wrap.h: programs that start the program (wrap.c).
#ifndef WRAP_H
#define WRAP_H

#include <stdbool.h>
#include <stddef.h>

struct call;

// Memory of the arguments and environment for an exec; NULL: none.
struct outfit {
    char **at;
    size_t bytes, used; // used: by pointers
    char *text;
};

// At the start, before anything reads the environment: takes what wrap_environment had put there out of
// both.  True when a program under ckptrun started this one.
bool wrap_arrived(char **environment);
void wrap_begin(void); // once the plan is known
// Environment for a program that takes the place of the caller, or of the job's process; NULL: no memory.
char **wrap_environment(struct call *c, char *const *envp, struct outfit *o);
// ckptrun's arguments to run path in the place of this process.
char **wrap_arguments(const char *path, char *const *argv, struct outfit *o);
void wrap_free(struct outfit *o);

#endif
