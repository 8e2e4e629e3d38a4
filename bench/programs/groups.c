// SPDX-License-Identifier: Apache-2.0
//
// groups: what does a call of each group of MPI cost?
#include "job.h"

int main(int argc, char **argv) {
    struct job j = job_begin(argc, argv, 2);
    int peer = 1 - j.rank, wrong = 0, value = 0, flag = 0;
    int64_t out = 0, in = -1, sum = 0;
    double matrix[16][16] = {{0}}, column[16] = {0};
    MPI_Request r[2];

    MEASURE(&j.m, "local query: MPI_Comm_rank", 200, {
        MPI_Comm_rank(MPI_COMM_WORLD, &value);
        wrong += value != j.rank;
    });
    MEASURE(&j.m, "local query: MPI_Initialized", 200, {
        MPI_Initialized(&flag);
        wrong += !flag;
    });
    MEASURE(&j.m, "blocking: MPI_Send and MPI_Recv, a round trip", 50, {
        if (j.rank == 0) {
            MPI_Send(&out, 1, MPI_INT64_T, peer, 0, MPI_COMM_WORLD);
            MPI_Recv(&in, 1, MPI_INT64_T, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&in, 1, MPI_INT64_T, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&in, 1, MPI_INT64_T, peer, 0, MPI_COMM_WORLD);
        }
    });
    MEASURE(&j.m, "blocking: MPI_Probe and MPI_Recv, to itself", 50, {
        MPI_Status status;
        MPI_Isend(&out, 1, MPI_INT64_T, 0, 0, MPI_COMM_SELF, &r[0]);
        MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &status);
        MPI_Recv(&in, 1, MPI_INT64_T, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_SELF, &status);
        MPI_Wait(&r[0], &status);
    });
    MEASURE(&j.m, "non-blocking: MPI_Irecv, MPI_Isend and MPI_Waitall", 50, {
        MPI_Irecv(&in, 1, MPI_INT64_T, peer, 0, MPI_COMM_WORLD, &r[0]);
        MPI_Isend(&out, 1, MPI_INT64_T, peer, 0, MPI_COMM_WORLD, &r[1]);
        MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
    });
    MEASURE(&j.m, "non-blocking: MPI_Iprobe that finds nothing", 50, {
        MPI_Iprobe(0, 99, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
        wrong += flag;
    });
    out = j.rank + 1;
    MEASURE(&j.m, "collective: MPI_Allreduce", 50, {
        MPI_Allreduce(&out, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        wrong += sum != 3;
    });
    MEASURE(&j.m, "collective: MPI_Iallreduce and MPI_Wait", 50, {
        MPI_Iallreduce(&out, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, &r[0]);
        MPI_Wait(&r[0], MPI_STATUS_IGNORE);
    });
    MPI_Datatype vector;
    MEASURE(&j.m, "derived datatype: made, committed, freed", 20, {
        MPI_Type_vector(16, 1, 16, MPI_DOUBLE, &vector);
        MPI_Type_commit(&vector);
        MPI_Type_free(&vector);
    });
    MPI_Type_vector(16, 1, 16, MPI_DOUBLE, &vector);
    MPI_Type_commit(&vector);
    MEASURE(&j.m, "derived datatype: a column to itself", 50, {
        MPI_Sendrecv(matrix, 1, vector, 0, 0, column, 16, MPI_DOUBLE, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    });
    MEASURE(&j.m, "derived datatype: MPI_Pack", 50, {
        int at = 0;
        MPI_Pack(matrix, 1, vector, column, sizeof column, &at, MPI_COMM_SELF);
        wrong += at != sizeof column;
    });
    MEASURE(&j.m, "derived datatype: MPI_Type_get_extent", 200, {
        MPI_Aint lower;
        MPI_Aint extent;
        MPI_Type_get_extent(vector, &lower, &extent);
        wrong += extent != (15 * 16 + 1) * (MPI_Aint)sizeof(double);
    });
    MPI_Type_free(&vector);
    MEASURE(&j.m, "group: MPI_Comm_group, MPI_Group_rank, MPI_Group_free", 50, {
        MPI_Group g;
        MPI_Comm_group(MPI_COMM_WORLD, &g);
        MPI_Group_rank(g, &value);
        MPI_Group_free(&g);
        wrong += value != j.rank;
    });
    MEASURE(&j.m, "communicator: MPI_Comm_compare", 50, {
        MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_SELF, &value);
        wrong += value != MPI_UNEQUAL;
    });
    MEASURE(&j.m, "communicator: MPI_Comm_get_attr", 50, {
        int *bound;
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &flag);
        wrong += !flag;
    });
    MPI_Comm comm;
    MEASURE(&j.m, "communicator: MPI_Comm_dup and MPI_Comm_free", 20, {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_free(&comm);
    });
    MEASURE(&j.m, "communicator: MPI_Comm_split, one rank each, and MPI_Comm_free", 20, {
        MPI_Comm_split(MPI_COMM_WORLD, j.rank, 0, &comm);
        MPI_Comm_free(&comm);
    });
    DEMAND(wrong == 0);
    return job_end();
}
