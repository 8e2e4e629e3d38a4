// SPDX-License-Identifier: Apache-2.0
//
// drained.c: messages that are received before the application asks for them.
#include <stdio.h>
#include <stdlib.h>

#include "back/impl/counts.h"
#include "back/impl/error.h"
#include "back/impl/lock.h"
#include "back/impl/reserve.h"
#include "back/impl/status.h"
#include "back/message/blocking.h"
#include "back/message/drained.h"
#include "back/message/sync.h"

struct back_drained_list back_drained_all = TAILQ_HEAD_INITIALIZER(back_drained_all);
static uint64_t matches; // messages that the application has matched

static void free_message(struct drained *m) {
    if (m->request != MPI_REQUEST_NULL) // the message has still to arrive there
        return;
    free(m->data);
    back_release(m);
}

// The slot of the communicator of m, if that exists and m is to be counted; else NULL.
static const ckpt_slot *counter_of(const struct drained *m) {
    const ckpt_slot *comm = back_slot(CKPT_KIND_COMM, m->comm);
    return m->source >= 0 && (comm->generation & 1) && comm->counters != 0 ? comm : NULL;
}

static void count_message(struct drained *m) {
    const ckpt_slot *comm = counter_of(m);
    if (!m->counted && comm != NULL) ckpt_received(comm, m->source, back.shared);
    m->counted = 1;
}

// The application receives m from the real MPI after all, and m is counted then.
static void uncount(struct drained *m) {
    const ckpt_slot *comm = counter_of(m);
    if (m->counted && comm != NULL)
        __atomic_fetch_sub(&ckpt_comm_of(comm)->peer[m->source].received, 1, __ATOMIC_RELAXED);
    m->counted = 0;
}

void back_drained_append(struct drained *m) {
    TAILQ_INSERT_TAIL(&back_drained_all, m, others);
    back.drained++;
}

static struct drained *find(long source, long tag, long comm) {
    struct drained *m;
    TAILQ_FOREACH(m, &back_drained_all, others) {
        if (m->comm == (ckpt_vid)comm && ((int)source == CANON_ANY_SOURCE || (int)source == m->source) &&
            ((int)tag == CANON_ANY_TAG || (int)tag == m->tag))
            return m;
    }
    return NULL;
}

static void unlink_locked(struct drained *m) {
    TAILQ_REMOVE(&back_drained_all, m, others);
    back.drained--;
}

static void tell(const struct drained *m, ckpt_mpi_status *status) {
    *status = (ckpt_mpi_status){m->source, m->tag, 0, 0, m->bytes};
}

int back_drained_probe(long source, long tag, long comm, ckpt_mpi_status *status) {
    back_lock(LOCK_DRAINED);
    const struct drained *m = find(source, tag, comm);
    if (m != NULL) tell(m, status);
    back_unlock(LOCK_DRAINED);
    return m != NULL;
}

struct drained *back_drained_match(long source, long tag, long comm, ckpt_mpi_status *status) {
    back_lock(LOCK_DRAINED);
    struct drained *m = find(source, tag, comm);
    if (m != NULL) {
        unlink_locked(m);
        m->matched = __atomic_add_fetch(&matches, 1, __ATOMIC_RELAXED);
        if (m->data == NULL) uncount(m);
        tell(m, status);
    }
    back_unlock(LOCK_DRAINED);
    return m;
}

struct drained *back_matched_begin(void) {
    return back_reserve(sizeof(struct drained));
}

void back_matched_end(struct drained *m, MPI_Message message, const MPI_Status *status, long comm) {
    *m = (struct drained){.comm = (ckpt_vid)comm,
                          .source = status->MPI_SOURCE,
                          .tag = status->MPI_TAG,
                          .bytes = STATUS_BYTES(status),
                          .message = message,
                          .request = MPI_REQUEST_NULL,
                          .matched = __atomic_add_fetch(&matches, 1, __ATOMIC_RELAXED)};
}

void back_matched_drop(struct drained *m) { back_release(m); }

int back_drained_has(const struct drained *m) { return m->data != NULL; }

// Frees a message that the application has taken, and tells its sender if that waits for it.
static void taken(struct drained *m) {
    free(m->data);
    m->data = NULL;
    if (m->claim != 0)
        back_sync_taken(m); // m is the word to the sender now
    else
        back_release(m);
}

MPI_Message back_drained_give(struct drained *m) {
    MPI_Message message = m->message;
    uncount(m);
    taken(m);
    return message;
}

// n bytes as one element of a datatype, since counts are int.  Messages from 4 MiB on are sent this way, also
// those that do not need it, so that this code is used and tested.
enum { BLOCK = 1 << 20, BLOCKED = 4 * BLOCK };

struct bytes {
    MPI_Datatype type;
    int count;
};

static int bytes_of(int64_t n, struct bytes *b) {
    *b = (struct bytes){MPI_BYTE, (int)n};
    if (n < BLOCKED) return MPI_SUCCESS;
    MPI_Datatype block, parts[2];
    int counts[2] = {(int)(n / BLOCK), (int)(n % BLOCK)};
    MPI_Aint at[2] = {0, (MPI_Aint)(n - n % BLOCK)};
    int rc = MPI_Type_contiguous(BLOCK, MPI_BYTE, &block);
    if (rc != MPI_SUCCESS) return rc;
    parts[0] = block;
    parts[1] = MPI_BYTE;
    b->count = 1;
    rc = MPI_Type_create_struct(2, counts, at, parts, &b->type);
    MPI_Type_free(&block);
    return rc == MPI_SUCCESS ? MPI_Type_commit(&b->type) : rc;
}

// Frees the datatype; operations that use it may still be under way.
static void bytes_done(struct bytes *b) {
    if (b->type != MPI_BYTE) MPI_Type_free(&b->type);
}

int back_drained_mrecv(struct drained *m, void *buf, int count, MPI_Datatype type, ckpt_mpi_status *status,
                       int *rc) {
    if (m->data == NULL) return 0;
    // Gives the bytes to the application as a message to ourselves: so the real MPI does datatypes, counts
    // and truncation.
    MPI_Request s, r;
    MPI_Status st;
    struct bytes b;
    if (m->request != MPI_REQUEST_NULL) { // a checkpoint was given up before m had arrived
        back_wait_real(&m->request, MPI_STATUS_IGNORE);
        count_message(m);
    }
    back_lock(LOCK_DRAINED);
    *rc = bytes_of(m->bytes, &b);
    if (*rc == MPI_SUCCESS) *rc = MPI_Isend(m->data, b.count, b.type, 0, 0, back.self, &s);
    if (*rc == MPI_SUCCESS) {
        *rc = MPI_Irecv(buf, count, type, 0, 0, back.self, &r);
        if (*rc != MPI_SUCCESS) { // a wrong argument: the message is lost, as MPI allows after an error
            MPI_Irecv(m->data, b.count, b.type, 0, 0, back.self, &r);
            back_wait_real(&r, &st);
        } else {
            *rc = back_wait_real(&r, &st);
        }
        back_wait_real(&s, MPI_STATUS_IGNORE);
    }
    bytes_done(&b);
    back_unlock(LOCK_DRAINED);
    tell(m, status);
    status->bytes = *rc == MPI_SUCCESS || back_took(*rc) ? STATUS_BYTES(&st) : 0;
    taken(m);
    return 1;
}

int back_drained_recv(const struct back_take *t, ckpt_mpi_status *status, int *rc, MPI_Message *message) {
    struct drained *m = back_drained_match(t->source, t->tag, t->comm, status);
    *message = MPI_MESSAGE_NULL;
    if (m == NULL) return 0;
    if (!back_drained_mrecv(m, t->buf, t->count, t->type, status, rc)) *message = back_drained_give(m);
    return 1;
}

void back_drained_gone(ckpt_vid comm) {
    uint32_t i = 0;
    for (ckpt_slot *s; (s = back_next_slot(CKPT_KIND_MESSAGE, &i)) != NULL;)
        if (s->clock == comm) {
            s->clock = VID_COMM_NULL;
            back_matched_of(s)->comm = VID_COMM_NULL;
        }
    back_lock(LOCK_DRAINED);
    for (struct drained *m = TAILQ_FIRST(&back_drained_all), *next; m != NULL; m = next) {
        next = TAILQ_NEXT(m, others);
        if (m->comm != comm) continue;
        unlink_locked(m); // nobody can receive m any more
        free_message(m);
    }
    back_unlock(LOCK_DRAINED);
}

// ---- a turn of draining ----

// Starts to receive a matched message into memory of ours; without memory the message is starved.
static int fetch(struct drained *m) {
    struct bytes b;
    char *data = malloc(m->bytes ? (size_t)m->bytes : 1);
    m->starved = data == NULL;
    if (data == NULL) return 0;
    int rc = bytes_of(m->bytes, &b);
    if (rc == MPI_SUCCESS) {
        rc = MPI_Imrecv(data, b.count, b.type, &m->message, &m->request);
        bytes_done(&b);
    }
    if (rc == MPI_SUCCESS) {
        m->data = data;
        return 0;
    }
    back_fail(rc, "receiving a message from rank %d of its communicator into the image", m->source);
    m->request = MPI_REQUEST_NULL;
    free(data);
    return CKPT_E_SYSTEM;
}

// One turn of receiving a message: 1 while it is under way.  A starved message is not under way.
int back_drained_arrive(struct drained *m) {
    int flag = 0, rc = m->data == NULL ? fetch(m) : 0;
    if (rc != 0) return rc;
    if (m->request != MPI_REQUEST_NULL) {
        MPI_Test(&m->request, &flag, MPI_STATUS_IGNORE);
        if (!flag) return 1;
        m->request = MPI_REQUEST_NULL;
    }
    count_message(m);
    return 0;
}

static int starves(struct drained *m, char *why, size_t bytes) {
    if (m->starved && fetch(m) == 0 && m->starved)
        snprintf(why, bytes, "no memory for a message of %lld bytes from rank %d of its communicator",
                 (long long)m->bytes, m->source);
    return m->starved;
}

int back_drained_holds(char *why, size_t bytes) {
    uint32_t i = 0;
    for (ckpt_slot *s; (s = back_next_slot(CKPT_KIND_MESSAGE, &i)) != NULL;)
        if (starves(back_matched_of(s), why, bytes)) return 1;
    struct drained *m;
    TAILQ_FOREACH(m, &back_drained_all, others) {
        if (starves(m, why, bytes)) return 1;
    }
    return 0;
}

// The record of a message is made before the message is matched: a matched message can neither be left to the
// real MPI nor be forgotten.
int back_drained_match_all(ckpt_vid vid, MPI_Comm comm) {
    for (;;) {
        MPI_Message message;
        MPI_Status st = {.MPI_TAG = 0}; // MPICH leaves "cancelled" as it finds it
        struct drained *m = back_matched_begin();
        int flag = 0, rc = MPI_ERR_NO_MEM;
        if (m != NULL) rc = MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &message, &st);
        if (rc != MPI_SUCCESS) back_fail(rc, "looking for messages that are under way");
        if (rc != MPI_SUCCESS || !flag) {
            back_release(m);
            return rc == MPI_SUCCESS ? 0 : CKPT_E_SYSTEM;
        }
        back_matched_end(m, message, &st, vid);
        back_drained_append(m);
    }
}
