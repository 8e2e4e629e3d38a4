// SPDX-License-Identifier: Apache-2.0
//
// tiers.c: saves numbers at a level of FTI, or recovers them by their names and checks them.
//
//   tiers CONFIG LEVEL END      END: "end" calls FTI_Finalize, "die" does not
//
// When FTI_Init fails it goes on to FTI_Finalize and says what each has answered.
#include <fti.h>
#include <inttypes.h>

enum { NUMBERS = 50000 };

static const char *names[] = {"one", "two"};

int main(int argc, char **argv) {
    int rank, saved = 0, level = argc == 4 ? atoi(argv[2]) : 0;
    uint64_t *numbers[2];
    if (argc != 4) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int begun = FTI_Init(argv[1], MPI_COMM_WORLD);
    if (begun != FTI_SCES) {
        printf("init %d finalize %d status %d\n", begun, FTI_Finalize(), FTI_Status());
        MPI_Finalize();
        return 0;
    }
    for (int k = 0; k < 2; k++) {
        numbers[k] = calloc(NUMBERS, sizeof **numbers);
        if (numbers[k] == NULL) MPI_Abort(MPI_COMM_WORLD, 5);
    }
    FTIT_allConfiguration all = FTI_GetConfig(argv[1], MPI_COMM_WORLD);
    if (all.topology.splitRank != rank || all.topology.nodeID != rank || all.topology.nbNodes != 4 ||
        all.configuration.ioMode != 1001 || all.execution.reco != FTI_Status() ||
        all.checkpoint[2].ckptIntv != 2)
        MPI_Abort(MPI_COMM_WORLD, 6);
    if (FTI_Status() == 0) {
        for (int k = 0; k < 2; k++) {
            int at = rank % 2 == 0 ? k : 1 - k; // other numbers on other ranks
            int id = FTI_setIDFromString(names[at]);
            for (int i = 0; i < NUMBERS; i++)
                numbers[at][i] = (uint64_t)i * 1000003u + (uint64_t)(rank * 2 + at);
            if (id < 0 || FTI_Protect(id, numbers[at], NUMBERS, FTI_ULNG) != FTI_SCES)
                MPI_Abort(MPI_COMM_WORLD, 7);
        }
        saved = FTI_Checkpoint(17, level);
        if (rank == 0) printf("saved %d\n", saved);
    } else {
        if (FTI_getIDFromString("three") != -1) MPI_Abort(MPI_COMM_WORLD, 8);
        for (int k = 0; k < 2; k++) {
            int id = FTI_getIDFromString(names[k]);
            if (id != (rank % 2 == 0 ? k : 1 - k) ||
                FTI_GetStoredSize(id) != (int64_t)sizeof **numbers * NUMBERS)
                MPI_Abort(MPI_COMM_WORLD, 9);
            FTI_Protect(id, numbers[k], NUMBERS, FTI_ULNG);
        }
        if (FTI_Recover() != FTI_SCES) MPI_Abort(MPI_COMM_WORLD, 10);
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < NUMBERS; i++)
                if (numbers[k][i] != (uint64_t)i * 1000003u + (uint64_t)(rank * 2 + k))
                    MPI_Abort(MPI_COMM_WORLD, 11);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) printf("recovered\n");
    }
    if (strcmp(argv[3], "end") == 0 && FTI_Finalize() != FTI_SCES) MPI_Abort(MPI_COMM_WORLD, 12);
    MPI_Finalize();
    return 0;
}
