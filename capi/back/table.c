// SPDX-License-Identifier: Apache-2.0
//
// table.c: MPI's functions, by number, with the collective ones behind the clock.
//
// Those that are written by hand: name, which argument is the communicator.
#include "back/calls.h"
#include "back/collective/clock.h"
#include "back/collective/clocked.h"
#include "back/collective/deferred.h"
#include "back/file/file.h"
#include "back/gen/zz_collectives.h"
#include "back/table.h"
#include "back/window/window.h"

#define BLOCKING(X)                                              \
    X(Alltoallw, ALLTOALLW, 8)                                   \
    X(Neighbor_alltoallw, NEIGHBOR_ALLTOALLW, 8)                 \
    X(Comm_dup, COMM_DUP, 0)                                     \
    X(Comm_dup_with_info, COMM_DUP_WITH_INFO, 0)                 \
    X(Comm_split, COMM_SPLIT, 0)                                 \
    X(Comm_split_type, COMM_SPLIT_TYPE, 0)                       \
    X(Comm_create, COMM_CREATE, 0)                               \
    X(Intercomm_merge, INTERCOMM_MERGE, 0)                       \
    X(Cart_create, CART_CREATE, 0)                               \
    X(Cart_sub, CART_SUB, 0)                                     \
    X(Graph_create, GRAPH_CREATE, 0)                             \
    X(Dist_graph_create, DIST_GRAPH_CREATE, 0)                   \
    X(Dist_graph_create_adjacent, DIST_GRAPH_CREATE_ADJACENT, 0) \
    X(Comm_spawn, COMM_SPAWN, 6)                                 \
    X(Comm_spawn_multiple, COMM_SPAWN_MULTIPLE, 6)               \
    X(Comm_accept, COMM_ACCEPT, 3)                               \
    X(Comm_connect, COMM_CONNECT, 3)                             \
    X(Win_create, WIN_CREATE, 4)                                 \
    X(Win_allocate, WIN_ALLOCATE, 4)                             \
    X(Win_allocate_shared, WIN_ALLOCATE_SHARED, 5)               \
    X(Win_create_dynamic, WIN_CREATE_DYNAMIC, 1)                 \
    X(File_open, FILE_OPEN, 0)

#define NONBLOCKING(X)                             \
    X(Ialltoallw, IALLTOALLW, 8)                   \
    X(Ineighbor_alltoallw, INEIGHBOR_ALLTOALLW, 8) \
    X(Comm_idup, COMM_IDUP, 0)

#define BY_HAND(name, NAME, comm)                           \
    static long call_##name(const long *a, MPI_Comm real) { \
        (void)real;                                         \
        return back_##name(a);                              \
    }
BLOCKING(BY_HAND)
NONBLOCKING(BY_HAND)
BLOCKING(CLOCKED_BLOCKING)
NONBLOCKING(CLOCKED_NONBLOCKING)

ckpt_back_fn *const *back_counted_table(void) {
    static ckpt_back_fn *table[CKPT_FN_MPI_END - CKPT_FN_MPI];
    if (!BACK_COUNTS) return back_table;
    memcpy(table, back_table, sizeof table);
#define PUT(name, NAME, comm) table[NUMBER(NAME)] = clocked_##name;
#define PUT_COMMITTED(name, NAME, comm) table[NUMBER(NAME)] = committed_##name;
    if (back.host->two_phase) {
        BLOCKING(PUT_COMMITTED)
        GENERATED_BLOCKING(PUT_COMMITTED)
    } else {
        BLOCKING(PUT)
        GENERATED_BLOCKING(PUT)
    }
    NONBLOCKING(PUT)
    GENERATED_NONBLOCKING(PUT)
    back_file_functions(table);
    back_clock_functions(table);
    back_deferred_functions(table);
    back_meet_functions(table);
    back_window_functions(table);
    return table;
}
