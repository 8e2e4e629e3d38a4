// SPDX-License-Identifier: Apache-2.0
//
// table.c: which of the tables of MPI's functions a job uses (zz_table.c, zz_clocked.c).
#include "back/calls.h"
#include "back/table.h"

ckpt_back_fn *const *back_counted_table(void) {
    return !BACK_COUNTS ? back_table : back.host->two_phase ? back_committed_table : back_clocked_table;
}
