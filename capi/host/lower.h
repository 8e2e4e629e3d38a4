// SPDX-License-Identifier: Apache-2.0
//
// lower.h: what lives in the lower half beside ckptrun: libckpt-core.so and the back (lower.c).
#ifndef LOWER_H
#define LOWER_H

#include <stdbool.h>
#include <stddef.h>

_Noreturn void die(int status, const char *format, ...);
void lower_open(void);
void back_choose(const char *path,
                 const char *none); // the back, else why there is none, from the plan; both stay valid
int back_restart(char **message);
bool back_calls_up(void); // callbacks of libckpt's may call functions of the application, on a stopped thread

// Functions of the gate (ckpt/private/gate.h).
long fn_load_back(const long *a);
long fn_checkpoint(const long *a);
long fn_reason(const long *a);
long fn_api(const long *a);        // whole.c
long fn_talk(const long *a);       // whole.c
long fn_load_verbs(const long *a); // verbs.c
void *core_function(const char *name);
void lower_functions(unsigned first, long (*const *fn)(const long *),
                     unsigned n); // behind the gate, from now on

// ---- verbs.c: of struct host_ops ----
struct verbs_calls;
const struct verbs_calls *verbs_calls(int must, char *why, size_t bytes);

#endif
