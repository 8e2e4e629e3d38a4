/* SPDX-License-Identifier: Apache-2.0
 *
 * fti.h: the functions of FTI (the Fault Tolerance Interface) that libckpt_fti.so has: names, types and numbers are
 * FTI's, so that its programs are compiled unchanged; what is done is libckpt's, see mpix_checkpoint.h.
 *
 * Compile with the MPI's mpicc, -I of this folder, and link with -lckpt_fti -lckpt, libckpt_fti.so being that of the MPI
 * (lib/ckpt/fti/mpich, lib/ckpt/fti/openmpi).  docs/fti.md says what of FTI is there, and what is different.
 */
#ifndef CKPT_FTI_H
#define CKPT_FTI_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
/* FTI's own header brings these, and its programs count on that. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What functions return. */
#define FTI_SCES 0    /* it worked */
#define FTI_DONE 1    /* a checkpoint was made */
#define FTI_NSCS (-1) /* it did not work */
#define FTI_NREC (-2) /* nothing could be recovered */

#define FTI_BUFS 256

/* What programs send to a rank that is kept for FTI, which there is none of here (head = 0). */
#define FTI_HEAD 2
#define FTI_ENDW 995
#define FTI_REJW 996

typedef int fti_id_t;
#define FTIT_type fti_id_t
typedef struct FTIT_H5Group FTIT_H5Group; /* there is no HDF5 here: NULL */

/* The ranks of the program: all that FTI_Init was given, since no rank is kept for FTI (head = 0). */
extern MPI_Comm FTI_COMM_WORLD;

/* Types of elements. */
extern fti_id_t FTI_CHAR, FTI_SHRT, FTI_INTG, FTI_LONG;
extern fti_id_t FTI_UCHR, FTI_USHT, FTI_UINT, FTI_ULNG;
extern fti_id_t FTI_SFLT, FTI_DBLE, FTI_LDBE;

/* Begins, after MPI_Init; reads the configuration.  Collective.  comm has the ranks of MPI_COMM_WORLD. */
int FTI_Init(const char *configFile, MPI_Comm comm);
/* 0: a fresh start; 1: after a failure; 2: after an end with keep_last_ckpt. */
int FTI_Status(void);
/* Ends, before MPI_Finalize.  Collective. */
int FTI_Finalize(void);

int FTI_InitType(fti_id_t *type, int bytes);
fti_id_t FTI_InitCompositeType(const char *name, size_t bytes, FTIT_H5Group *group);
int FTI_AddScalarField(fti_id_t id, const char *name, fti_id_t type, int64_t offset);
int FTI_AddVectorField(fti_id_t id, const char *name, fti_id_t type, int64_t offset, int dims,
                       int64_t *sizes);

int FTI_Protect(int id, void *base, int64_t count, fti_id_t type);
int FTI_Checkpoint(int id, int level);
int FTI_Recover(void);
/* Recovers when there is something, the first time; else makes a checkpoint when the configuration says that it is time. */
int FTI_Snapshot(void);

/* A checkpoint of some of what is protected. */
int FTI_InitICP(int id, int level, bool activate);
int FTI_AddVarICP(int id);
int FTI_FinalizeICP(void);

/* One by one; sizes are bytes. */
int64_t FTI_GetStoredSize(int id);
void *FTI_Realloc(int id, void *base);
int FTI_RecoverVarInit(void);
int FTI_RecoverVar(int id);
int FTI_RecoverVarFinalize(void);

/* A number for FTI_Protect that belongs to a name, which is saved with the checkpoint: set finds one that nothing has
 * yet, get finds that of the name, also of the checkpoint that can be recovered, or -1. */
int FTI_setIDFromString(const char *name);
int FTI_getIDFromString(const char *name);

/* What the configuration says.  Members have FTI's names; those about what is not there are left out. */
typedef struct FTIT_configuration {
    bool stagingEnabled, dcpFtiff, dcpPosix, keepL4Ckpt, keepHeadsAlive; /* false */
    char cfgFile[FTI_BUFS];
    int saveLastCkpt;
    int verbosity, blockSize, transferSize;
    int ckptTag, stageTag, finalTag, generalTag;
    int test;   /* local_test */
    int ioMode; /* 1000 + ckpt_io; the files are libckpt's with each */
    char localDir[FTI_BUFS], glbalDir[FTI_BUFS], metadDir[FTI_BUFS];
} FTIT_configuration;

typedef struct FTIT_execution {
    char id[FTI_BUFS];
    int reco;     /* FTI_Status */
    int ckptLvel; /* of the last checkpoint; 0: there was none */
    unsigned int ckptCnt, ckptId;
    unsigned int nbVar; /* what is protected */
    int initSCES;
    MPI_Comm globalComm;
} FTIT_execution;

typedef struct FTIT_topology {
    int nbProc, nbNodes;
    int myRank, splitRank, splitSize;
    int nodeSize, nbHeads, nbApprocs, groupSize;
    int nodeID;
    int amIaHead; /* 0 */
} FTIT_topology;

typedef struct FTIT_checkpoint {
    char dir[FTI_BUFS]; /* where FTI's names of the files of that level are */
    bool hasCkpt;
    int isInline; /* 1: checkpoints are whole when the call returns */
    int ckptIntv; /* minutes */
    int ckptCnt;
} FTIT_checkpoint;

typedef struct FTIT_injection {
    int rank, index, position, number, frequency; /* read, and not done */
} FTIT_injection;

typedef struct FTIT_allConfiguration {
    FTIT_configuration configuration;
    FTIT_execution execution;
    FTIT_topology topology;
    FTIT_checkpoint checkpoint[5]; /* by level; [0] is not used */
    FTIT_injection injection;
} FTIT_allConfiguration;

/* After FTI_Init.  Both arguments are looked at by nobody, as in FTI. */
FTIT_allConfiguration FTI_GetConfig(const char *configFile, MPI_Comm comm);

#ifdef __cplusplus
}
#endif
#endif
