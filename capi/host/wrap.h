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

// Called at the start, before anything reads the environment: removes from environment and environ what
// wrap_environment had put there.  True when a program under ckptrun started this one.
bool wrap_arrived(char **environment);
void wrap_begin(void); // once the plan is known
// The environment for a program that replaces the caller, or the job's process; NULL: no memory.
char **wrap_environment(struct call *c, char *const *envp, struct outfit *o);
// The arguments with which ckptrun runs path in place of this process.
char **wrap_arguments(const char *path, char *const *argv, struct outfit *o);
void wrap_free(struct outfit *o);

#endif
