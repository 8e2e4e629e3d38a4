// SPDX-License-Identifier: Apache-2.0
//
// tcp.h: what the files of the adapter over TCP share.
#ifndef VERBS_TCP_H
#define VERBS_TCP_H

#include "verbs/soft/provider/provider.h"

// ---- net.c ----
int tcp_start(const struct soft_tell *tell); // 0, or an errno
void tcp_gid(union ibv_gid *gid);            // of this process; it has started
uint16_t tcp_lid(void);                      // the same

// What a program may take from this library.
#define TCP_EXPORT __attribute__((visibility("default")))

#endif
