// SPDX-License-Identifier: Apache-2.0
//
// tags.c: the tags of the real MPI.
#include <limits.h>

#include "back/impl/error.h"
#include "back/impl/tags.h"

int back_real_tag_ub(void) {
    int *value = NULL, flag = 0;
    int rc = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &flag);
    return rc == MPI_SUCCESS && flag ? *value : INT_MAX;
}

int back_tag_ub(void) {
    int real = back_real_tag_ub();
    return real < CANON_TAG_UB ? real : CANON_TAG_UB;
}

int back_tag_fits(const char *request, int rank, int tag) {
    int fits = tag <= back_real_tag_ub();
    if (!fits)
        back_fail(MPI_SUCCESS,
                  "a pending request (%s, rank %d) has the tag %d, and those of %s end at %d: restart "
                  "the job under the MPI it was saved under",
                  request, rank, tag, BACK_NAME, back_real_tag_ub());
    return fits;
}
