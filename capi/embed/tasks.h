// SPDX-License-Identifier: Apache-2.0
//
// tasks.h: the tasks of one process meet in ckpt_checkpoint (tasks.c).
#ifndef EMBED_TASKS_H
#define EMBED_TASKS_H

#include <stdint.h>

#include "ckpt.h"

struct embed_job;

struct embed_tasks {
    int placeholder;
};

#endif
