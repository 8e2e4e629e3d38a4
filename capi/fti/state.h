// SPDX-License-Identifier: Apache-2.0
//
// state.h: what the parts of libckpt_fti.so share.
#ifndef FTI_STATE_H
#define FTI_STATE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "fti/fti.h"

#define EXPORT __attribute__((visibility("default")))

enum { LEVELS = 4 };

struct piece {
    int id;
    void *base;
    size_t bytes, element;
    bool chosen; // for the incomplete checkpoint that is being put together
};

// Where the files are; see layout.c.
struct layout {
    char local[PATH_MAX]; // CKPT_LOCAL of this node; "": there is none
    char names[PATH_MAX]; // folder of FTI's names of what is in it
    char dir[PATH_MAX];   // of the execution: CKPT_DIR
    int node_size;        // of a machine that is several nodes (local_test); 0: nodes are hosts
    int group;            // nodes
    int *node_of;         // by rank
    int nodes;
    bool leader; // this rank works for its node
};

struct state {
    bool begun;
    bool unwanted; // the program has ended well: nobody wants the checkpoints any more
    int rank, ranks;
    char config[PATH_MAX];
    char *text;  // of the configuration
    char id[64]; // of the execution
    int status;
    bool keep_last, marked; // marked: the file says that there is something to be continued
    long every[LEVELS + 1]; // minutes between snapshots; below 1: none
    long taken[LEVELS + 1]; // intervals of each that have passed
    long fast;              // so many minutes of FTI_Snapshot are one
    double start;
    int snapshots;
    struct piece *list;
    size_t pieces;
    int icp, icp_id;         // level of the incomplete checkpoint, 0: none is open; and its number
    int last_level, last_id; // of the last checkpoint of this start
    int made[LEVELS + 1];    // checkpoints of this start
    struct layout at;
};
extern struct state fti;

__attribute__((format(printf, 2, 3))) int fti_fail(int code, const char *format, ...);
const char *fti_why(void);
// The least of all ranks' values.
int fti_agree(int mine);
struct piece *fti_find(int id);

#define BEGUN(value)                                                                    \
    do {                                                                                \
        if (!fti.begun) return fti_fail(FTI_NSCS, "FTI_Init comes before this"), value; \
    } while (0)

// ---- layout.c ------------------------------------------------------------------------------------

// Finds where the files of the execution are, and tells the core.  Collective; not 0: it cannot be, and that was said.
int layout_begin(void);
// Has the core forget files whose names the user has removed.  Before anything is recovered.  Collective.
void layout_forget(void);
// Names the files of the last checkpoint, or, with level 0, those again that a restart has brought back.  Collective.
void layout_name(int level, int id);
// Removes all files of the execution that this rank answers for.
void layout_remove(void);
void layout_end(void);

// ---- strings.c -----------------------------------------------------------------------------------

enum { STRINGS_ID = INT_MAX }; // the piece of the checkpoint that has the names of FTI_setIDFromString
// Takes those of the checkpoint that can be recovered.
void strings_load(void);
// Before and after a checkpoint.  false: no memory.
bool strings_save(void);
void strings_saved(void);
void strings_end(void);

#endif
