// SPDX-License-Identifier: Apache-2.0
//
// persist_comm.c: the communicators of persistent collectives.
//
// Members may start the persistent collectives of one communicator in different orders (MPI 4.0, 6.13);
// only the calls that make these requests have the same order everywhere.  But the real MPI and the clock
// match the non-blocking calls of the starts by their order on a communicator.  So each request has a
// duplicate of its communicator for itself, made with the request.  On the duplicate the starts of all
// members have one order, and the duplicate's clock counts the starts of this request alone.
//
// Each member frees a request when it likes, and the duplicate with the request, in the real MPI too.  Then
// nothing is under way on the duplicate, nor will be.  libckpt keeps its clock, as for any communicator that
// other members have not freed yet.  An image may have the duplicate on some members only: these can do
// nothing with the request but free it, and the duplicate is not made again.
#include <stdio.h>
#include <stdlib.h>

#include "back/collective/persist.h"
#include "back/impl/error.h"
#include "back/impl/handles.h"
#include "back/object/comm.h"
#include "back/object/outside.h"

long back_own_comm_new(ckpt_vid comm, const char *name, ckpt_vid *own) {
    MPI_Comm real = MPI_COMM_NULL;
    char of[MPI_MAX_OBJECT_NAME] = "", text[MPI_MAX_OBJECT_NAME + 64];
    int n = 0;
    *own = comm;
    if (back_is_outside(comm)) return 0; // processes of other jobs do not duplicate it
    if (MPI_Comm_dup(real_comm(comm), &real) != MPI_SUCCESS) return 0; // it has no more, on any member
    long rc = back_new_own_comm(real, comm, own);
    if (rc != 0) {
        MPI_Comm_free(&real);
        return rc;
    }
    MPI_Comm_get_name(real_comm(comm), of, &n);
    snprintf(text, sizeof text, "%s on %s", name, of);
    ckpt_vid_set_name(back.job, *own, text);
    return 0;
}

void back_own_comm_free(ckpt_vid own) {
    MPI_Comm real = real_comm(own);
    if (real != MPI_COMM_NULL) // null when an image had the duplicate on some members only
        MPI_Comm_free(&real);
    ckpt_vid_free(back.job, own);
}

// ---- in a restart ----

static struct saved {
    uint64_t identity;
    ckpt_vid vid;
    int members;
    void *descriptor;
    size_t bytes;
} * saved;
static int nsaved;

int back_own_comm_saved(ckpt_vid vid, const void *descriptor, size_t bytes) {
    struct saved s = {.vid = vid, .bytes = bytes};
    s.identity = back_own_comm_members(descriptor, bytes, &s.members);
    if (s.identity == 0) return CKPT_E_CORRUPT;
    struct saved *grown = realloc(saved, (size_t)(nsaved + 1) * sizeof s);
    if (grown != NULL) saved = grown;
    s.descriptor = grown == NULL ? NULL : malloc(bytes);
    if (s.descriptor == NULL) {
        back_fail(MPI_ERR_NO_MEM, "making the communicator of a persistent collective again");
        return CKPT_E_SYSTEM;
    }
    memcpy(s.descriptor, descriptor, bytes);
    saved[nsaved++] = s;
    return 0;
}

static int by_number(uint64_t x, uint64_t y) { return x < y ? -1 : x > y; }

static int by_identity(const void *x, const void *y) {
    return by_number(((const struct saved *)x)->identity, ((const struct saved *)y)->identity);
}

static int by_value(const void *x, const void *y) {
    return by_number(*(const uint64_t *)x, *(const uint64_t *)y);
}

// The identities of these communicators on all ranks, sorted, and how many there are; NULL: an error.
static uint64_t *everybodys(int *total) {
    int *counts = malloc((size_t)back.size * sizeof(int)), *places = malloc((size_t)back.size * sizeof(int));
    uint64_t *mine = malloc((size_t)(nsaved + 1) * sizeof *mine), *all = NULL;
    int rc = MPI_ERR_NO_MEM;
    *total = 0;
    for (int i = 0; mine != NULL && i < nsaved; i++) mine[i] = saved[i].identity;
    if (counts != NULL && places != NULL && mine != NULL)
        rc = MPI_Allgather(&nsaved, 1, MPI_INT, counts, 1, MPI_INT, back.control);
    for (int i = 0; rc == MPI_SUCCESS && i < back.size; i++) {
        places[i] = *total;
        *total += counts[i];
    }
    if (rc == MPI_SUCCESS) {
        all = malloc((size_t)(*total + 1) * sizeof *all);
        rc = all == NULL ? MPI_ERR_NO_MEM
             : *total > 0
                 ? MPI_Allgatherv(mine, nsaved, MPI_UINT64_T, all, counts, places, MPI_UINT64_T, back.control)
                 : MPI_SUCCESS;
    }
    if (rc != MPI_SUCCESS) {
        back_fail(rc, "asking all ranks which persistent collectives they have");
        free(all);
        all = NULL;
    } else {
        qsort(all, (size_t)*total, sizeof *all, by_value);
    }
    free(counts);
    free(places);
    free(mine);
    return all;
}

// All ranks go through their duplicates in one order, and make only those that all members have.
int back_own_comms_open(void) {
    int total, rc = 0;
    uint64_t *all = everybodys(&total);
    if (all == NULL) return CKPT_E_SYSTEM;
    qsort(saved, (size_t)nsaved, sizeof *saved, by_identity);
    for (int i = 0, at = 0; i < nsaved; i++) {
        struct saved *s = &saved[i];
        int have = 0;
        for (; at < total && all[at] <= s->identity; at++) have += all[at] == s->identity;
        uint64_t real = TO_REAL(MPI_COMM_NULL);
        if (rc == 0 && have == s->members) rc = back_own_comm_again(s->vid, s->descriptor, s->bytes, &real);
        back_slot(CKPT_KIND_COMM, s->vid)->real = real;
        free(s->descriptor);
    }
    free(all);
    free(saved);
    saved = NULL;
    nsaved = 0;
    return rc;
}
