// SPDX-License-Identifier: Apache-2.0
//
// answers.h: what the functions of libmlx5 and the like say of an adapter that is none of theirs. Their arguments are
// not looked at: who calls leaves them where they are and takes them away again, as C does on x86-64.
#ifndef VERBS_DIRECT_ANSWERS_H
#define VERBS_DIRECT_ANSWERS_H

#include <errno.h>
#include <stddef.h>
#include <sys/types.h>

// clang-format off
#define DIRECT(type, name, ...) \
    __attribute__((visibility("default"))) type name(void); \
    type name(void) { __VA_ARGS__ }
#define DIRECT_ERROR(name) DIRECT(int, name, return errno = EOPNOTSUPP;)
#define DIRECT_NULL(name) DIRECT(void *, name, errno = EOPNOTSUPP; return NULL;)
#define DIRECT_MINUS(name) DIRECT(ssize_t, name, errno = EOPNOTSUPP; return -1;)
#define DIRECT_FALSE(name) DIRECT(_Bool, name, return 0;)
#define DIRECT_NOTHING(name) DIRECT(void, name, )
// A former version beside the one that has the function's name.
#define DIRECT_FORMER(name, versioned) \
    __attribute__((symver(versioned))) DIRECT_ERROR(former_##name)
// clang-format on

#endif
