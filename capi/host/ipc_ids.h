// SPDX-License-Identifier: Apache-2.0
//
// ipc_ids.h: ids of System V segments, semaphores and message queues.
//
// An id that the application holds stays good after a restart, in which the object is made again and may get another id of the
// kernel's.  So ids are translated, by a table that a restart fills (package ckpt/sysv): on all processes of the job in the same
// way, so that they may tell each other ids.  What is not in the table has the kernel's id, and an object that is made later
// never gets an id that is in the table for another one.
//
// All functions but the last two are called under host.lock.
#ifndef IPC_IDS_H
#define IPC_IDS_H

#include <stdbool.h>

#include "hostgo.h"

struct ipc_ids {
    long get;                                     // the call that makes one
    long (*control)(int real, int cmd, void *to); // IPC_STAT, IPC_RMID
    long spare[2];                                // after the key, for one that only takes the place of an id
    bool found; // also those that others have made are noted when they are found by their key
    struct ipc_id known[IPC_MOST];
    int knowns;
};
extern struct ipc_ids segments, semaphores, queues;

int ipc_real(const struct ipc_ids *s, int id);      // -1: it is gone
int ipc_virtual(const struct ipc_ids *s, int real); // -1: none can be told from that of another object
long ipc_get(struct ipc_ids *s, const long a[3], int flags); // of shmget and the like
void ipc_removed(struct ipc_ids *s, int id);                 // by IPC_RMID, which need not be the end of it
long ipc_status(const struct ipc_ids *s, int real, void *to);

int ipc_known(int kind, struct ipc_id *list, int max); // of struct host_ops, as is
void ipc_set(int kind, const struct ipc_id *list, int n);

#endif
