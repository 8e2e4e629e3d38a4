// SPDX-License-Identifier: Apache-2.0
//
// getconfig.c: what FTI_GetConfig answers.
#include "config.h"
#include "state.h"

static int number(const char *section, const char *key, int other) {
    return (int)config_number(fti.text, section, key, other);
}

static void text(char *out, const char *key) {
    char buffer[FTI_BUFS];
    snprintf(out, FTI_BUFS, "%s", config_get(fti.text, "basic", key, "", buffer, sizeof buffer));
}

static FTIT_configuration configuration(void) {
    FTIT_configuration c = {
        .saveLastCkpt = fti.keep_last,
        .verbosity = number("basic", "verbosity", -1),
        .blockSize = number("advanced", "block_size", -1) * 1024,
        .transferSize = number("advanced", "transfer_size", -1) * 1024 * 1024,
        .ckptTag = number("advanced", "ckpt_tag", 711),
        .stageTag = number("advanced", "stage_tag", 406),
        .finalTag = number("advanced", "final_tag", 3107),
        .generalTag = number("advanced", "general_tag", 2612),
        .test = number("advanced", "local_test", -1),
        .ioMode = number("basic", "ckpt_io", 0) + 1000,
    };
    if (strlen(fti.config) < sizeof c.cfgFile) strcpy(c.cfgFile, fti.config);
    text(c.localDir, "ckpt_dir");
    text(c.glbalDir, "glbl_dir");
    text(c.metadDir, "meta_dir");
    return c;
}

EXPORT FTIT_allConfiguration FTI_GetConfig(const char *configFile, MPI_Comm comm) {
    FTIT_allConfiguration all = {0};
    (void)configFile, (void)comm;
    BEGUN(all);
    all.configuration = configuration();
    FTIT_execution *e = &all.execution;
    snprintf(e->id, sizeof e->id, "%s", fti.id);
    e->reco = fti.status;
    e->ckptLvel = fti.last_level;
    e->ckptId = (unsigned)fti.last_id;
    for (int level = 1; level <= LEVELS; level++) e->ckptCnt += (unsigned)fti.made[level];
    e->nbVar = (unsigned)fti.pieces;
    e->initSCES = 1;
    e->globalComm = MPI_COMM_WORLD;
    int size = number("basic", "node_size", 1), group = number("basic", "group_size", 4);
    all.topology = (FTIT_topology){.nbProc = fti.ranks,
                                   .nbNodes = fti.at.nodes,
                                   .myRank = fti.rank,
                                   .splitRank = fti.rank,
                                   .splitSize = fti.ranks,
                                   .nodeSize = size,
                                   .nbApprocs = size,
                                   .groupSize = group,
                                   .nodeID = fti.at.node_of[fti.rank]};
    for (int level = 1; level <= LEVELS; level++) {
        FTIT_checkpoint *c = &all.checkpoint[level];
        const char *dir = level < LEVELS && fti.at.names[0] != 0 ? fti.at.names : fti.at.dir;
        if ((size_t)snprintf(c->dir, sizeof c->dir, "%s/l%d", dir, level) >= sizeof c->dir) c->dir[0] = 0;
        c->hasCkpt = fti.made[level] > 0;
        c->isInline = 1;
        c->ckptIntv = (int)fti.every[level];
        c->ckptCnt = fti.made[level];
    }
    all.injection = (FTIT_injection){.rank = number("injection", "rank", 0),
                                     .index = number("injection", "index", 0),
                                     .position = number("injection", "position", 0),
                                     .number = number("injection", "number", 0),
                                     .frequency = number("injection", "frequency", -1)};
    return all;
}
