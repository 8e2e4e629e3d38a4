/* SPDX-License-Identifier: Apache-2.0
 *
 * drain.c: what is under way when the job is stopped is received, and kept until the application
 * asks.
 *
 * Order.  The real MPI gives an arriving message to a posted receive first, so a message that
 * draining receives itself matches none of those; receives that are posted later look at the
 * drained messages first, in the order in which they were matched.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "drain.h"
#include "sync.h"
#include "wait.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the list, and back.self */
struct drained *drained_first;
static struct drained **drained_end = &drained_first; /* where the next one goes: there may be many */
static uint64_t matches; /* messages that the application has matched */

/* ---- complete requests ---- */

struct done {
    ckpt_mpi_status status;
    int rc;
};

static int done_query(void *state, MPI_Status *status) {
    const struct done *d = state;
    MPI_Status_set_elements_x(status, MPI_BYTE, d->status.bytes);
    MPI_Status_set_cancelled(status, d->status.cancelled);
    status->MPI_SOURCE = real_rank(d->status.source);
    status->MPI_TAG = real_tag(d->status.tag);
    return d->rc;
}

static int done_free(void *state) {
    free(state);
    return MPI_SUCCESS;
}

static int done_cancel(void *state, int complete) {
    (void)state;
    (void)complete;
    return MPI_SUCCESS;
}

int back_done_request(const ckpt_mpi_status *status, int rc, MPI_Request *request) {
    struct done *d = malloc(sizeof *d);
    if (d == NULL)
        return MPI_ERR_NO_MEM;
    d->status = *status;
    d->rc = rc;
    int failed = MPI_Grequest_start(done_query, done_free, done_cancel, d, request);
    if (failed == MPI_SUCCESS)
        failed = MPI_Grequest_complete(*request);
    return failed;
}

void back_request_done(ckpt_slot *s, const MPI_Status *status, int rc) {
    ckpt_slot *comm = back_slot(CKPT_KIND_COMM, s->clock);
    int kind = s->a & REQUEST_KIND,
        cancelled = (s->a & REQUEST_CANCELLED) && STATUS_CANCELLED(status);
    ckpt_mpi_status canon;
    if (kind == REQUEST_RECV && s->b == CANON_PROC_NULL)
        canon = canon_proc_null;
    else if (kind == REQUEST_RECV || cancelled)
        canon_status(status, &canon);
    else
        canon = canon_empty;
    if (CKPT_VID_KIND(s->clock) == CKPT_KIND_FILE && STATUS_BYTES(status) > 0)
        canon.bytes = STATUS_BYTES(status); /* all that MPI says of it; the rest may be garbage */
    if (kind == REQUEST_RECV && !cancelled && s->b != CANON_PROC_NULL && back_took(rc))
        back_count_received(comm, status);
    if (kind == REQUEST_SEND && cancelled && s->b >= 0 && comm->extra)
        __atomic_fetch_sub(&ckpt_comm_of(comm)->peer[s->b].sent, 1, __ATOMIC_RELAXED);
    if (s->a & REQUEST_IDUP) {
        const struct back_idup *d = (const struct back_idup *)(uintptr_t)s->extra;
        back_slot(CKPT_KIND_COMM, d->vid)->real = TO_REAL(d->comm);
        s->a &= ~REQUEST_IDUP;
    }
    if (s->a & REQUEST_PERSISTENT)
        ((struct persistent *)(uintptr_t)s->extra)->real = s->real;
    MPI_Request r = MPI_REQUEST_NULL;
    back_done_request(&canon, rc, &r);
    s->real = TO_REAL(r);
    s->a |= REQUEST_DONE;
}

/* ---- posted receives ---- */

struct posted *posted_pages[CKPT_PAGES];
uint64_t posted_serial;

struct posted *posted_page(uint32_t page) {
    struct posted *fresh = calloc(CKPT_PAGE_SLOTS, sizeof *fresh), *none = NULL;
    if (fresh != NULL && !__atomic_compare_exchange_n(&posted_pages[page], &none, fresh, 0,
                                                      __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        free(fresh);
    return posted_pages[page];
}

ckpt_slot *next_slot(ckpt_kind kind, uint32_t *i) {
    if (*i < CKPT_VID_PREDEFINED && kind != CKPT_KIND_COMM)
        *i = CKPT_VID_PREDEFINED;
    for (; *i / CKPT_PAGE_SLOTS < CKPT_PAGES; ++*i) {
        ckpt_slot *page = back.tables->pages[kind][*i / CKPT_PAGE_SLOTS];
        if (page == NULL)
            return NULL;
        if (page[*i % CKPT_PAGE_SLOTS].generation & 1 && *i != 0)
            return &page[(*i)++ % CKPT_PAGE_SLOTS];
    }
    return NULL;
}

/* ---- drained messages ---- */

void drained_append(struct drained *m) {
    m->next = NULL;
    *drained_end = m;
    drained_end = &m->next;
    back.drained++;
}

static struct drained **find(long source, long tag, long comm) {
    for (struct drained **p = &drained_first; *p != NULL; p = &(*p)->next) {
        const struct drained *m = *p;
        if (m->comm == (ckpt_vid)comm &&
            ((int)source == CANON_ANY_SOURCE || (int)source == m->source) &&
            ((int)tag == CANON_ANY_TAG || (int)tag == m->tag))
            return p;
    }
    return NULL;
}

static void tell(const struct drained *m, ckpt_mpi_status *status) {
    *status = (ckpt_mpi_status){m->source, m->tag, 0, 0, m->bytes};
}

int back_drained_probe(long source, long tag, long comm, ckpt_mpi_status *status) {
    pthread_mutex_lock(&mutex);
    struct drained **p = find(source, tag, comm);
    if (p != NULL)
        tell(*p, status);
    pthread_mutex_unlock(&mutex);
    return p != NULL;
}

struct drained *back_drained_match(long source, long tag, long comm, ckpt_mpi_status *status) {
    pthread_mutex_lock(&mutex);
    struct drained **p = find(source, tag, comm), *m = NULL;
    if (p != NULL) {
        m = *p;
        *p = m->next;
        if (drained_end == &m->next)
            drained_end = p;
        m->next = NULL;
        m->matched = __atomic_add_fetch(&matches, 1, __ATOMIC_RELAXED);
        back.drained--;
        tell(m, status);
    }
    pthread_mutex_unlock(&mutex);
    return m;
}

struct drained *back_matched(const MPI_Status *status, long comm) {
    struct drained *m = calloc(1, sizeof *m);
    if (m == NULL)
        return NULL;
    *m = (struct drained){.comm = (ckpt_vid)comm,
                          .source = status->MPI_SOURCE,
                          .tag = status->MPI_TAG,
                          .bytes = STATUS_BYTES(status),
                          .request = MPI_REQUEST_NULL,
                          .matched = __atomic_add_fetch(&matches, 1, __ATOMIC_RELAXED)};
    return m;
}

/* n bytes as a datatype of which one is sent: counts are int.  Messages from 4 MiB on go this way, not
 * only those that need it, so that it is used. */
enum { BLOCK = 1 << 20, BLOCKED = 4 * BLOCK };

struct bytes {
    MPI_Datatype type;
    int count;
};

static int bytes_of(int64_t n, struct bytes *b) {
    *b = (struct bytes){MPI_BYTE, (int)n};
    if (n < BLOCKED)
        return MPI_SUCCESS;
    MPI_Datatype block, parts[2];
    int counts[2] = {(int)(n / BLOCK), (int)(n % BLOCK)};
    MPI_Aint at[2] = {0, (MPI_Aint)(n - n % BLOCK)};
    int rc = MPI_Type_contiguous(BLOCK, MPI_BYTE, &block);
    if (rc != MPI_SUCCESS)
        return rc;
    parts[0] = block;
    parts[1] = MPI_BYTE;
    b->count = 1;
    rc = MPI_Type_create_struct(2, counts, at, parts, &b->type);
    MPI_Type_free(&block);
    return rc == MPI_SUCCESS ? MPI_Type_commit(&b->type) : rc;
}

/* Operations that use it may still be under way. */
static void bytes_done(struct bytes *b) {
    if (b->type != MPI_BYTE)
        MPI_Type_free(&b->type);
}

int back_drained_mrecv(struct drained *m, void *buf, int count, MPI_Datatype type,
                       ckpt_mpi_status *status, int *rc) {
    if (m->data == NULL)
        return 0;
    /* A message of ours to ourselves: so the datatype, counts and truncation are the real MPI's. */
    MPI_Request s, r;
    MPI_Status st;
    struct bytes b;
    pthread_mutex_lock(&mutex);
    *rc = bytes_of(m->bytes, &b);
    if (*rc == MPI_SUCCESS)
        *rc = MPI_Isend(m->data, b.count, b.type, 0, 0, back.self, &s);
    if (*rc == MPI_SUCCESS) {
        *rc = MPI_Irecv(buf, count, type, 0, 0, back.self, &r);
        if (*rc != MPI_SUCCESS) { /* a wrong argument: the message goes, as an error allows */
            MPI_Irecv(m->data, b.count, b.type, 0, 0, back.self, &r);
            back_wait(&r, &st);
        } else {
            *rc = back_wait(&r, &st);
        }
        back_wait(&s, MPI_STATUS_IGNORE);
    }
    bytes_done(&b);
    pthread_mutex_unlock(&mutex);
    tell(m, status);
    status->bytes = *rc == MPI_SUCCESS || back_took(*rc) ? STATUS_BYTES(&st) : 0;
    if (m->claim != 0)
        back_sync_taken(m->sender, m->claim);
    free(m->data);
    free(m);
    return 1;
}

int back_drained_recv(const struct back_take *t, ckpt_mpi_status *status, int *rc) {
    struct drained *m = back_drained_match(t->source, t->tag, t->comm, status);
    return m != NULL && back_drained_mrecv(m, t->buf, t->count, t->type, status, rc);
}

void back_comm_gone(ckpt_vid comm) {
    uint32_t i = 0;
    back_buffered_gone(comm);
    for (ckpt_slot *s; (s = next_slot(CKPT_KIND_REQUEST, &i)) != NULL;)
        if (s->clock == comm)
            s->clock = VID_COMM_NULL;
    i = 0;
    for (ckpt_slot *s; (s = next_slot(CKPT_KIND_MESSAGE, &i)) != NULL;)
        if (s->clock == comm) {
            s->clock = VID_COMM_NULL;
            ((struct drained *)(uintptr_t)s->extra)->comm = VID_COMM_NULL;
        }
    pthread_mutex_lock(&mutex);
    for (struct drained **p = &drained_first; *p != NULL;) {
        struct drained *m = *p;
        if (m->comm != comm) {
            p = &m->next;
            continue;
        }
        *p = m->next; /* nobody can receive it any more */
        if (drained_end == &m->next)
            drained_end = p;
        back.drained--;
        free(m->data);
        free(m);
    }
    pthread_mutex_unlock(&mutex);
}

/* ---- one turn ---- */

/* Starts to receive a matched message into memory of ours. */
static int fetch(struct drained *m, MPI_Message *message) {
    struct bytes b;
    m->data = malloc(m->bytes ? (size_t)m->bytes : 1);
    if (m->data == NULL || bytes_of(m->bytes, &b) != MPI_SUCCESS)
        return CKPT_E_SYSTEM;
    int rc = MPI_Imrecv(m->data, b.count, b.type, message, &m->request);
    bytes_done(&b);
    return rc == MPI_SUCCESS ? 0 : CKPT_E_SYSTEM;
}

/* Completes the receive of a message, counting it; 1 while it is under way. */
static int arrive(struct drained *m) {
    int flag = 0;
    MPI_Status st;
    if (m->request == MPI_REQUEST_NULL)
        return 0;
    MPI_Test(&m->request, &flag, &st);
    if (!flag)
        return 1;
    m->request = MPI_REQUEST_NULL;
    const ckpt_slot *comm = back_slot(CKPT_KIND_COMM, m->comm);
    if (m->source >= 0 && (comm->generation & 1) && comm->extra != 0)
        ckpt_received(comm, m->source, back.shared);
    return 0;
}

static int drain_comm(ckpt_vid vid, MPI_Comm comm) {
    for (;;) {
        MPI_Message message;
        MPI_Status st;
        int flag = 0;
        if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &message, &st) != MPI_SUCCESS)
            return CKPT_E_SYSTEM;
        if (!flag)
            return 0;
        struct drained *m = back_matched(&st, vid);
        int rc = m ? fetch(m, &message) : CKPT_E_SYSTEM;
        if (rc != 0)
            return rc;
        drained_append(m);
    }
}

static int is_active(const ckpt_slot *s) {
    return (s->a & (REQUEST_PERSISTENT | REQUEST_ACTIVE)) != REQUEST_PERSISTENT;
}

/* 1 when the request must still end before the rank can be saved. */
static int drain_request(ckpt_slot *s) {
    if (s->a & (REQUEST_DONE | REQUEST_DEFERRED | REQUEST_GENERALIZED | REQUEST_COLL |
                REQUEST_PAIR) ||
        !is_active(s))
        return 0;
    MPI_Request r = (MPI_Request)(uintptr_t)s->real;
    MPI_Status st;
    int flag = 0, rc = MPI_Test(&r, &flag, &st);
    if (flag || rc != MPI_SUCCESS) {
        s->real = TO_REAL(r); /* none: a persistent one that failed may be gone */
        back_request_done(s, &st, rc);
        return 0;
    }
    return (s->a & REQUEST_KIND) != REQUEST_RECV || s->a & (REQUEST_MATCHED | REQUEST_CANCELLED);
}

int back_drain(void *ctx) {
    (void)ctx;
    int left = 0;
    uint32_t i = 0;
    for (ckpt_slot *s; (s = next_slot(CKPT_KIND_REQUEST, &i)) != NULL;)
        left += drain_request(s);
    i = 0;
    for (ckpt_slot *s; (s = next_slot(CKPT_KIND_MESSAGE, &i)) != NULL;) {
        struct drained *m = (struct drained *)(uintptr_t)s->extra;
        if (m->data == NULL) {
            MPI_Message message = (MPI_Message)(uintptr_t)s->real;
            int rc = fetch(m, &message);
            if (rc != 0)
                return rc;
            s->real = TO_REAL(MPI_MESSAGE_NULL);
        }
        left += arrive(m);
    }
    for (struct back_held *h = held_sends; h != NULL; h = h->next) {
        int flag = *h->request == MPI_REQUEST_NULL;
        if (!flag)
            MPI_Test(h->request, &flag, MPI_STATUS_IGNORE);
        if (flag)
            *h->dest = CANON_PROC_NULL;
        left += !flag;
    }
    i = 0;
    for (ckpt_slot *s; (s = next_slot(CKPT_KIND_COMM, &i)) != NULL;) {
        MPI_Comm comm = (MPI_Comm)(uintptr_t)s->real;
        if (comm == MPI_COMM_NULL || s->extra == 0)
            continue;
        int rc = drain_comm(CKPT_VID(CKPT_KIND_COMM, i - 1), comm);
        if (rc != 0)
            return rc;
    }
    for (struct drained *m = drained_first; m != NULL; m = m->next)
        left += arrive(m);
    left += back_buffered_left();
    return left;
}
