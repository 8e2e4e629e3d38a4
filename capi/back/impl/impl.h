// SPDX-License-Identifier: Apache-2.0
//
// impl.h: the inside of a back.
//
// A back is compiled against one real MPI's mpi.h.  It turns virtual ids and canonical values
// (mpi_canon.h) into that MPI's, calls it, and turns the results back; and it describes every
// object so that it can be made again in a fresh MPI (describe.h).  libckpt is used through ckpt.h
// only.
//
// Errors: the real MPI is told to return them; the front raises them.
#ifndef CKPT_BACK_IMPL_H
#define CKPT_BACK_IMPL_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "back/back.h"
#include "ckpt/clock.h"
#include "ckpt/gate.h"
#include "canon/mpi_canon.h"
#include "back/gen/zz_back.h"

#if defined(OPEN_MPI)
#define BACK_NAME "openmpi"
#elif defined(MPICH_NAME)
#define BACK_NAME "mpich"
#else
#define BACK_NAME "mpi"
#endif

// Measurements of what counting costs compile a back that does not count, and cannot be saved.
#ifndef BACK_COUNTS
#define BACK_COUNTS 1
#endif

#pragma GCC visibility push(hidden)

// What libckpt keeps for the back over a restart (ckpt_runtime_state).
struct back_state {
    int level;            // thread level the application asked for
    int bsend_bytes;      // attached buffer; 0: none
    void *bsend_buffer;   // upper-half memory
    uint64_t serial;      // identities that this rank has given out
    int provided;         // thread level that it was told it has
    int tools;            // calls of MPI_T_init_thread that are not finalized
    int tools_level;      // thread level of the first of them
    int tag_ub;           // highest tag that the program was told of; 0: that of the MPI it began under
    ckpt_mpi_name *names; // that are published, the last one first; upper-half memory
};

// The back of this process.
struct back {
    // Every call looks here: one cache line, and then slots, the first of each kind.
    ckpt_tables *tables; // the job's; NULL before MPI_Init and after MPI_Finalize
    ckpt_job *job;
    int shared;                   // MPI_THREAD_MULTIPLE: several threads may be here at once
    unsigned drained;             // messages that were received by draining and not by the application yet
    unsigned sync;                // synchronous sends under way, behind which messages are counted (sync.h)
    unsigned awaiting;            // ... whose messages were drained, and whose receivers have not taken them
    ckpt_slot *slots[CKPT_KINDS]; // the first page of each kind, which never moves; NULL: no page
    int rank, size;               // in MPI_COMM_WORLD
    MPI_Comm control;             // libckpt's own; the application never sees it
    MPI_Group world;
    MPI_Group everyone; // world's members, then processes of other jobs that are or were reached
    struct back_state *state;
    const ckpt_back_host *host;
    MPI_Comm self; // libckpt's own, of this process alone: messages to the user's buffers
};
extern struct back back;

extern ckpt_back_fn *const back_table[CKPT_FN_MPI_END - CKPT_FN_MPI];
long back_missing(const long *a);

// ---- handles ----

#define TO_REAL(handle) ((uint64_t)(uintptr_t)(handle))

// As ckpt_vid_slot, with two loads less for the ids of the first page.
static inline ckpt_slot *back_slot(ckpt_kind kind, long vid) {
    uint32_t i = (ckpt_vid)vid - CKPT_VID(kind, 0);
    ckpt_slot *slot = back.slots[kind] + i;
    if (__builtin_expect(i < CKPT_PAGE_SLOTS && slot->generation & 1, 1)) return slot;
    return ckpt_vid_slot(back.tables, kind, (ckpt_vid)vid);
}

// Whether an id names what it named when its slot was of this generation.  An id that was freed has the
// slot of the null handle, whose generation may be the same.
static inline int back_same(ckpt_kind kind, ckpt_vid vid, uint32_t generation) {
    const ckpt_slot *s = back_slot(kind, vid);
    return s != back.tables->pages[kind][0] && s->generation == generation;
}
static inline MPI_Comm real_comm(long v) { return (MPI_Comm)(uintptr_t)back_slot(CKPT_KIND_COMM, v)->real; }
static inline MPI_Datatype real_type(long v) {
    return (MPI_Datatype)(uintptr_t)back_slot(CKPT_KIND_DATATYPE, v)->real;
}
static inline MPI_Op real_op(long v) { return (MPI_Op)(uintptr_t)back_slot(CKPT_KIND_OP, v)->real; }

static inline MPI_Win real_win(long v) { return (MPI_Win)(uintptr_t)back_slot(CKPT_KIND_WIN, v)->real; }
static inline MPI_File real_file(long v) { return (MPI_File)(uintptr_t)back_slot(CKPT_KIND_FILE, v)->real; }

// ---- special values ----

static inline int real_rank(long rank) {
    int r = (int)rank;
    if (__builtin_expect(r >= 0, 1)) return r;
    return r == CANON_ANY_SOURCE  ? MPI_ANY_SOURCE
           : r == CANON_PROC_NULL ? MPI_PROC_NULL
           : r == CANON_ROOT      ? MPI_ROOT
                                  : -1000; // no MPI has this rank
}
static inline int canon_rank(int r) {
    if (__builtin_expect(r >= 0, 1)) return r;
    return r == MPI_ANY_SOURCE  ? CANON_ANY_SOURCE
           : r == MPI_PROC_NULL ? CANON_PROC_NULL
           : r == MPI_ROOT      ? CANON_ROOT
                                : CANON_UNDEFINED;
}
static inline int real_tag(long tag) {
    return (int)tag == CANON_ANY_TAG ? MPI_ANY_TAG : (int)tag < 0 ? -1000 : (int)tag;
}
static inline void *real_buf(long p) { return p == CANON_IN_PLACE ? MPI_IN_PLACE : (void *)p; }
static inline int *real_weights(long p) {
    return p == CANON_UNWEIGHTED      ? (int *)MPI_UNWEIGHTED
           : p == CANON_WEIGHTS_EMPTY ? (int *)MPI_WEIGHTS_EMPTY
                                      : (int *)p;
}
static inline int canon_topo(int t) {
    return t == MPI_CART         ? CANON_CART
           : t == MPI_GRAPH      ? CANON_GRAPH
           : t == MPI_DIST_GRAPH ? CANON_DIST_GRAPH
                                 : CANON_UNDEFINED;
}

static inline int real_lock(long l) {
    return l == CANON_LOCK_EXCLUSIVE ? MPI_LOCK_EXCLUSIVE : l == CANON_LOCK_SHARED ? MPI_LOCK_SHARED : -1000;
}
static inline int real_assert(long a) {
    return (a & CANON_MODE_NOCHECK ? MPI_MODE_NOCHECK : 0) |
           (a & CANON_MODE_NOPRECEDE ? MPI_MODE_NOPRECEDE : 0) | (a & CANON_MODE_NOPUT ? MPI_MODE_NOPUT : 0) |
           (a & CANON_MODE_NOSTORE ? MPI_MODE_NOSTORE : 0) |
           (a & CANON_MODE_NOSUCCEED ? MPI_MODE_NOSUCCEED : 0);
}

// ---- statuses ----

// The form of the real MPI's, whose insides lie open in the two MPIs we know; another one is asked.
#if defined(OPEN_MPI)
enum { STATUS_REAL = STATUS_OPENMPI };
typedef struct openmpi_status real_status;
#define STATUS_BYTES(s) ((int64_t)(s)->_ucount)
#define STATUS_CANCELLED(s) ((s)->_cancelled)
_Static_assert(offsetof(MPI_Status, _cancelled) == offsetof(real_status, cancelled) &&
                   offsetof(MPI_Status, _ucount) == offsetof(real_status, bytes),
               "the status of Open MPI");
#elif defined(MPICH_NAME)
enum { STATUS_REAL = STATUS_MPICH };
typedef struct mpich_status real_status;
#define STATUS_BYTES(s) mpich_status_bytes((const real_status *)(s))
#define STATUS_CANCELLED(s) mpich_status_cancelled((const real_status *)(s))
_Static_assert(offsetof(MPI_Status, count_lo) == offsetof(real_status, count_lo) &&
                   offsetof(MPI_Status, count_hi_and_cancelled) ==
                       offsetof(real_status, count_hi_and_cancelled),
               "the status of MPICH");
#else
enum { STATUS_REAL = -1 };
typedef MPI_Status real_status;
static inline int64_t back_status_bytes(const MPI_Status *s) {
    MPI_Count n;
    return MPI_Get_elements_x(s, MPI_BYTE, &n) == MPI_SUCCESS && n >= 0 ? n : 0;
}
static inline int back_status_cancelled(const MPI_Status *s) {
    int flag = 0;
    MPI_Test_cancelled(s, &flag);
    return flag;
}
#define STATUS_BYTES(s) back_status_bytes(s)
#define STATUS_CANCELLED(s) back_status_cancelled(s)
#endif
_Static_assert(sizeof(MPI_Status) == sizeof(real_status) &&
                   offsetof(MPI_Status, MPI_SOURCE) == offsetof(real_status, MPI_SOURCE) &&
                   offsetof(MPI_Status, MPI_TAG) == offsetof(real_status, MPI_TAG) &&
                   offsetof(MPI_Status, MPI_ERROR) == offsetof(real_status, MPI_ERROR),
               "the real MPI's status");

static inline void canon_status(const MPI_Status *s, ckpt_mpi_status *c) {
    c->source = canon_rank(s->MPI_SOURCE);
    c->tag = s->MPI_TAG == MPI_ANY_TAG ? CANON_ANY_TAG : s->MPI_TAG;
    c->error = 0;
    c->cancelled = STATUS_CANCELLED(s);
    c->bytes = STATUS_BYTES(s);
}

// The status of a call that completed nothing; of a message from nobody.
static const ckpt_mpi_status canon_empty = {CANON_ANY_SOURCE, CANON_ANY_TAG, 0, 0, 0};
static const ckpt_mpi_status canon_proc_null = {CANON_PROC_NULL, CANON_ANY_TAG, 0, 0, 0};

// Gives the application a status; out is the word that the front gave for it, which may be 0.
static inline void give_canon(const ckpt_mpi_status *c, long out) {
    if (out != 0) status_put(out, c);
}
void back_give_other(const MPI_Status *s, long out); // in a form that is not the real MPI's
static inline void give_status(const MPI_Status *s, long out) {
    if (status_form(out) != STATUS_REAL) {
        if (out != 0) back_give_other(s, out);
        return;
    }
    MPI_Status *to = status_at(out);
    int error = to->MPI_ERROR;
    *to = *s;
    to->MPI_ERROR = error;
}
static inline void empty_status(long out) { give_canon(&canon_empty, out); }
// MPICH's non-blocking receives say MPI_ANY_SOURCE here.
static inline void proc_null_status(long out) { give_canon(&canon_proc_null, out); }

// Where the real MPI writes a status: where the application wants it, when that has its form, else in own.
// MPI may leave parts of it as they are.  While several threads may be here at once it is in own: programs
// give them all the same status, when they do not read it, and what is counted must not come from there.
static inline int status_direct(long out) { return status_form(out) == STATUS_REAL && !back.shared; }
static inline MPI_Status *status_for(long out, MPI_Status *own) {
    if (__builtin_expect(status_direct(out), 1)) return status_at(out);
    if (out != 0) *own = (MPI_Status){.MPI_SOURCE = MPI_ANY_SOURCE, .MPI_TAG = MPI_ANY_TAG};
    return own;
}

// ---- errors (error.c) ----

long back_error_slow(int rc) __attribute__((cold));
static inline long back_error(int rc) {
    return __builtin_expect(rc == MPI_SUCCESS, 1) ? 0 : back_error_slow(rc);
}
int back_canon_class(int class); // gen/zz_constants.c
int back_real_class(int canon);  // gen/zz_constants.c
#define CANON_ERR(class) CANON_ERRCLASS_ERR_##class

// Whether messages can have that tag here; else says why a request with it cannot be made again.
int back_tag_fits(const char *request, int rank, int tag);

// Says why a callback of libckpt fails, for ckpt_runtime_ops.failure: the text, and MPI's own for rc
// unless that is MPI_SUCCESS.
void back_fail(int rc, const char *format, ...) __attribute__((cold, format(printf, 2, 3)));
const char *back_failure(void *ctx);

// A receive that failed still took its message, when that was only too long.
static inline int back_took(int rc) {
    return rc == MPI_SUCCESS || (back_error_slow(rc) & 0xff) == CANON_ERR(TRUNCATE);
}

// ---- memory (reserve.c) ----

// Zeroed memory for something small that must not be missing; NULL when even the reserve is used up.
void *back_reserve(size_t bytes);
void back_release(void *memory);

// ---- requests (request.c) ----

enum {
    REQUEST_OTHER = 0, // counts nothing: collectives, files
    REQUEST_SEND = 1,
    REQUEST_RECV = 2,
    REQUEST_KIND = 3,
    REQUEST_PERSISTENT = 4,
    REQUEST_ACTIVE = 8,
    REQUEST_CANCELLED = 16,      // MPI_Cancel was called: ask the status
    REQUEST_IDUP = 32,           // extra is a back_idup
    REQUEST_DONE = 64,           // completed by draining: real is a generalized request with the status
    REQUEST_DEFERRED = 128,      // a collective that is not started: extra is its struct deferred
    REQUEST_SYNC = 256,          // a synchronous send
    REQUEST_USER_OP = 512,       // a collective that calls a function of the application
    REQUEST_MATCHED = 1024,      // receives a matched message: it cannot be posted again
    REQUEST_GENERALIZED = 2048,  // extra is a struct back_grequest
    REQUEST_ENDED = 4096,        // ... and MPI_Grequest_complete was called
    REQUEST_FREED = 8192,        // ... or MPI_Request_free, before that
    REQUEST_COLL = 16384,        // a persistent collective: extra is a struct back_coll
    REQUEST_PARTITIONED = 32768, // a persistent request of partitioned communication
    REQUEST_ORPHAN = 131072,     // MPI_Request_free was called: the id is ours until it is complete
    REQUEST_AWAIT = 524288,      // REQUEST_DONE, but the receiver has not taken it: its back_sync says more
    REQUEST_ORDERED = 262144,    // tested behind those that were started before it (file_order.c)
    REQUEST_PAIR = 65536 // MPI_Isendrecv: extra is a struct back_coll, inner the receive, a[0] the send
};
// A request's slot: real, clock: virtual id of its communicator, a: flags above, b: peer of a
// message (canonical rank), extra: memory to free when it is complete; persistent: its struct
// persistent.

// A fresh id of a request or message, CKPT_VID_NONE when memory is out.
ckpt_vid back_take_slow(ckpt_kind kind) __attribute__((cold));
static inline ckpt_vid back_take_id(ckpt_kind kind) {
    ckpt_vid v = ckpt_vid_take(back.tables, kind, back.shared);
    return __builtin_expect(v != CKPT_VID_NONE, 1) ? v : back_take_slow(kind);
}

// Fills the slot of an id that was taken for a request.
static inline ckpt_slot *back_set_request(ckpt_vid v, MPI_Request real, int flags, int peer, ckpt_vid comm) {
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, v);
    s->real = TO_REAL(real);
    s->clock = comm;
    s->a = flags;
    s->b = peer;
    s->extra = 0;
    return s;
}

// Takes an id for a request that is still to be made: nobody who looks at all of them finds what the slot was
// before.
static inline ckpt_vid back_take_request(void) {
    ckpt_vid v = back_take_id(CKPT_KIND_REQUEST);
    if (__builtin_expect(v != CKPT_VID_NONE, 1)) back_slot(CKPT_KIND_REQUEST, v)->a = REQUEST_OTHER;
    return v;
}

// Gives an id back that no request has got.
static inline void back_give_id(ckpt_kind kind, ckpt_vid v) {
    ckpt_vid_give(back.tables, kind, v, back.shared);
}

// Gives a real request a virtual id.  What cannot be undone takes its id before (back_take_request).
static inline long back_new_request(MPI_Request real, int flags, int peer, ckpt_vid comm, ckpt_vid *vid) {
    ckpt_vid v = back_take_id(CKPT_KIND_REQUEST);
    if (__builtin_expect(v == CKPT_VID_NONE, 0)) return CANON_ERR(NO_MEM);
    back_set_request(v, real, flags, peer, comm);
    *vid = v;
    return 0;
}

// Completes *request, giving the rest of the process a turn.  The thread is never held here.
// Returns the real MPI's error code.
int back_wait(MPI_Request *request, MPI_Status *status);

// ---- while a checkpoint is pending (wait.c) ----

static inline unsigned back_pending(void) { return ckpt_pending(back.tables); }
// What every call does then.
void back_attend(void);
// One turn of a loop that waits, in a call that can be issued again with its arguments as they are
// now: the thread may be held.  turn counts from 0.  Returns 1 when the real handle of any request
// may be another one now.
int back_turn(unsigned turn);

struct back_sync; // sync.h

// A send of a blocking call, while its thread is held.  Once it is complete the call's arguments
// say that it sends to nobody, so that a restart does not send again.
struct back_held {
    struct back_held *next;
    MPI_Request *request;
    long *dest;              // the argument
    struct back_sync *sync;  // NULL when the send is not synchronous
    struct back_sync *spare; // ... else what it will wait with (back_sync_spare)
};
// Completes the send of a blocking call; the thread may be held.  When dest is BACK_AWAITED then, a request
// in the place of the tag is to be waited for.
int back_wait_send(MPI_Request *request, const long *dest, struct back_sync *sync, const char *call,
                   long comm, long tag);

// A call that waits for long is written down, for people who ask what a rank is doing.
enum { BACK_SPIN = 200 }; // turns of a loop until then
struct back_waiting {
    struct back_waiting *next;
    const char *call;
    long comm, peer, tag; // virtual id; canonical
    int what;             // CKPT_WAIT_*
};
void back_enlist(struct back_waiting *w);
void back_delist(struct back_waiting *w);
// The number of the next turn: it stands still once the call is written down.
static inline unsigned back_next(unsigned turn) { return turn + (turn <= BACK_SPIN); }
// In a loop, after a turn that was in vain.
static inline void back_slow(unsigned turn, struct back_waiting *w, int what, const char *call, long comm,
                             long peer, long tag) {
    if (__builtin_expect(turn == BACK_SPIN, 0)) {
        *w = (struct back_waiting){NULL, call, comm, peer, tag, what};
        back_enlist(w);
    }
}
// After the loop.
static inline void back_over(unsigned turn, struct back_waiting *w) {
    if (__builtin_expect(turn > BACK_SPIN, 0)) back_delist(w);
}
int back_list_waiting(void *ctx, ckpt_waiting *list, int max);

// A receive of a blocking call.
struct back_take {
    void *buf;
    int count;
    MPI_Datatype type;
    long source, tag, comm; // canonical; virtual id
    struct back_held *send; // the same call's send, NULL when there is none
    const char *call;
};
// Receives: the drained messages first.  Returns a canonical error.
long back_take(const struct back_take *take, long status);

// ---- drained messages (drain.c) ----

struct drained;
// Takes the first drained message that matches and receives it; 0 when there is none.  Where memory was out
// when it was to be drained the real MPI still has it: it is to be received from *message then, which is
// MPI_MESSAGE_NULL otherwise.
int back_drained_recv(const struct back_take *take, ckpt_mpi_status *status, int *rc, MPI_Message *message);
// Tells about it and leaves it there.
int back_drained_probe(long source, long tag, long comm, ckpt_mpi_status *status);
// Takes it for MPI_Mprobe: what the extra of a message's slot points to.
struct drained *back_drained_match(long source, long tag, long comm, ckpt_mpi_status *status);
// A message that the real MPI is to match: what is kept of it, NULL when memory is out; then, matched.
struct drained *back_matched_begin(void);
void back_matched_end(struct drained *m, MPI_Message message, const MPI_Status *status, long comm);
void back_matched_drop(struct drained *m);
// Whether it is in memory of ours.
int back_drained_has(const struct drained *m);
// The real MPI has it: gives its handle, and forgets the rest.
MPI_Message back_drained_give(struct drained *m);
// Why messages that are matched are not in memory of ours, when that was to be; 0: they are.
int back_drained_holds(char *why, size_t bytes);
// Receives a matched message that was drained, and frees it; 0 when the real MPI still has it.
int back_drained_mrecv(struct drained *m, void *buf, int count, MPI_Datatype type, ckpt_mpi_status *status,
                       int *rc);

int back_drain(void *ctx);

// ---- complete requests (done.c) ----

// One that is to be complete; {0}: it is not begun.
struct back_done {
    struct done *d;
    MPI_Request request;
};
// Takes the memory that it needs, unless it is begun; the real MPI's code.
int back_done_begin(struct back_done *b);
// It is complete, with that status and error code; b may begin another one.
MPI_Request back_done_end(struct back_done *b, const ckpt_mpi_status *status, int rc);
// It is not needed.
void back_done_drop(struct back_done *b);
// Both steps at once, where nothing is lost when that fails.
int back_done_request(const ckpt_mpi_status *status, int rc, MPI_Request *request);
// What it was completed with: the error code is returned.
int back_done_status(MPI_Request request, MPI_Status *status);
// What draining makes of a request that is complete; ready is begun.
void back_request_done(ckpt_slot *s, const MPI_Status *status, int rc, struct back_done *ready);

// What a persistent request was made with.
struct persistent {
    uint64_t real; // while REQUEST_DONE: the persistent request itself
    int mode;      // 0: receive; 1 to 4: send, bsend, ssend, rsend
#define PERSISTENT_BSEND 2
    long a[6];
    uint32_t type_generation, comm_generation;
    struct back_sync *sync; // of a synchronous send, while it is active
};
int back_make_persistent(const struct persistent *p, MPI_Request *r);

// ---- buffered sends (bsend.c) ----

// Sends (buf, count, type, dest, tag, comm), and makes a request that is complete.  The real MPI's code.
int back_buffered_request(const long *a, MPI_Request *request);
// Waits until those on comm have been sent; on all of them for CKPT_VID_NONE.  The thread may be held.
void back_buffered_wait(ckpt_vid comm, const char *call);
// The communicator is freed.
void back_buffered_gone(ckpt_vid comm);
// How many have not, at a turn of draining.
int back_buffered_left(void);

// ---- persistent collectives (persist.c), and pairs of requests (isendrecv.c) ----

struct back_coll {
    int function;       // index of the non-blocking call in the table
    int nargs, request; // how many arguments, which of them is the address of the request's id
    int arrays;         // the types go in two arrays
    int ntypes;
    int own;        // its communicator, the argument before the request, is its own (persist_comm.c)
    ckpt_vid inner; // while active
    long a[14];
    ckpt_vid types[]; // our own
};
struct back_coll *back_coll_of(const ckpt_slot *s);
struct back_coll *back_coll_new(int ntypes);
void back_coll_free(struct back_coll *c);
// The request is freed by the application, or was not made after all.
void back_coll_end(struct back_coll *c);
long back_coll_init(int function, const char *name, const long *a, int n, unsigned types);
long back_coll_start(ckpt_slot *s);

// The communicator that a persistent collective has for itself (persist_comm.c).  Collective over comm:
// makes one, or gives comm itself, to all members alike, when the real MPI has no more or processes of other
// jobs are among them; name: of the call.
long back_own_comm_new(ckpt_vid comm, const char *name, ckpt_vid *own);
void back_own_comm_free(ckpt_vid own);
// While objects are made again: one of the image; then, with all ranks, those that all their members have.
// 0 or a CKPT_E code.
int back_own_comm_saved(ckpt_vid vid, const void *descriptor, size_t bytes);
int back_own_comms_open(void);

// ---- generalized requests (grequest.c) ----

// What a generalized request is made again with.
struct back_grequest {
    void *upper, *thunk; // the front's
};
// Makes one that is complete; 0 or a CKPT_E code.
int back_grequest_again(ckpt_slot *s, ckpt_vid vid, void *upper, void *thunk);

// ---- in images (save.c) ----

long back_save(void *ctx, void *buffer, size_t bytes);
int back_load(void *ctx, const void *saved, size_t bytes);

// ---- collective calls (clock.c) ----

// The table of functions, with the collective ones behind the clock.
ckpt_back_fn *const *back_clocked_table(void);
// Waits until a call that all members must make together may go on.  name: of the function.
void back_gate(long comm, const char *name, int mode, ckpt_coll *call);
void back_gate_return(const ckpt_coll *call, long rc);
// Whether a collective call that returned rc (canonical) was refused for its arguments, before it took part
// in anything: then it is none, for this rank too.
int back_refused(long rc);
// Peers may need this rank's part of their communication while it waits.
void back_progress(void);
// The calls whose members have no communicator of their own yet (meet.c).
void back_meet_functions(ckpt_back_fn **table);
// Two-phase commit (twophase.c); these do nothing unless it is chosen.  The barrier in front of a
// blocking collective call, and what it needs of a communicator that its members have just made.
void back_two_phase(long comm, const char *call);
long back_two_phase_done(long comm, long rc); // what the call returned; returns it
int back_two_phase_made(ckpt_vid comm, MPI_Comm real);
void back_two_phase_freed(ckpt_vid comm);
// Tells libckpt, once the job is open, who takes part in the calls on MPI_COMM_WORLD.
int back_clock_world(void);
// The communicator whose clock counts the collective calls on a window; it outlives the window, and
// is freed when MPI_Win_free has been counted.
ckpt_vid back_window_clock(long vid);
void back_window_clock_free(ckpt_vid comm);
// Whether there are windows; completes, together with all ranks, what was begun on them
// (ckpt_runtime_ops).
int back_one_sided(void *ctx);
int back_settle(void *ctx);
// Starts what was deferred and may start now.
void back_start_deferred(void);

// comm is what back_slot found; what is no communicator has no counters.
static inline void back_count_sent(const ckpt_slot *comm, int dest) {
    if (BACK_COUNTS && __builtin_expect(dest >= 0 && comm->extra != 0, 1)) ckpt_sent(comm, dest, back.shared);
}
static inline void back_count_received(const ckpt_slot *comm, const MPI_Status *s) {
    if (BACK_COUNTS && __builtin_expect(s->MPI_SOURCE >= 0 && comm->extra != 0, 1))
        ckpt_received(comm, s->MPI_SOURCE, back.shared);
}

// ---- receives that were freed before they were complete (orphan.c) ----

// Such a one: its id and its slot are ours from now on.
void back_adopt(ckpt_vid request);
// As it is called by the application; tests the others now and then.
void back_orphan(ckpt_vid request);
// Gives away those that are complete.
void back_poll_orphans(void);
// Tests a request, of which nobody needs to know more than that it is complete; 1 when it is.
int back_end_orphan(ckpt_vid request);

// A communicator is gone: requests and messages that still belong to it count for no other that gets its
// id.
void back_comm_gone(ckpt_vid comm);

// Whether a reduction with a function of the application may be under way (coll.c).
int back_reducing(void);

// What holds a checkpoint back (ckpt_runtime_ops.holds).
int back_holds(void *ctx, char *why, size_t bytes);

// ---- processes of other jobs (jobs.c) ----

// Remembers that comm reaches some; parent is what it was made from.
int back_reaches_outside(ckpt_vid comm, ckpt_vid parent);
// Whether it does.
int back_is_outside(ckpt_vid comm);
// The call in which this rank waits for some; NULL when it does not (ckpt_runtime_ops.inside).
const char *back_inside(void *ctx);
int back_jobs_hold(char *why, size_t bytes);

// Publishes the names of the saved job again.  Those that could not be are left out of the list; says how
// many, and in why, of the first of them, which and why not.
int back_names_open(char *why, size_t bytes);

// ---- the tools interface (tools.c) ----

// Once the job is open: as the saved job had initialized it.
void back_tools_open(int restarted);
int back_tools_hold(char *why, size_t bytes);
ckpt_vid back_tool_type(MPI_Datatype type);
static inline MPI_T_pvar_handle real_pvar(long handle) {
    return handle == -1 ? MPI_T_PVAR_ALL_HANDLES : (MPI_T_pvar_handle)handle;
}
#define TOOL_VERBOSITY_BASE MPI_T_VERBOSITY_USER_BASIC
#define TOOL_BIND_BASE MPI_T_BIND_NO_OBJECT
#define TOOL_SCOPE_BASE MPI_T_SCOPE_CONSTANT
#define TOOL_CLASS_BASE MPI_T_PVAR_CLASS_STATE

// ---- objects ----

// Registers a communicator that the parent's members just made, or VID_COMM_NULL when like is
// MPI_COMM_NULL.  It is described like `like`: itself, or the parent whose duplicate it will be,
// real being MPI_COMM_NULL then.  identity 0: follows from the parent's.
long back_new_comm(MPI_Comm real, MPI_Comm like, ckpt_vid parent, uint64_t identity, ckpt_vid *vid);
// The same for a duplicate that a persistent request has for itself.
long back_new_own_comm(MPI_Comm real, ckpt_vid parent, ckpt_vid *vid);
int back_is_own_comm(ckpt_vid vid);
// Its identity, and how many members it has; 0 when the descriptor is of another kind or damaged.
uint64_t back_own_comm_members(const void *descriptor, size_t bytes, int *members);
// Makes it again; collective over its members.
int back_own_comm_again(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real);
// The id of a duplicate that the parent's members will make, the identity that it will have, and nothing
// else; and the rest, when the call that makes it is begun.  Canonical errors.
long back_promise_comm(ckpt_vid parent, ckpt_vid *vid);
long back_keep_promise(ckpt_vid parent, ckpt_vid vid);
// Begins MPI_Comm_idup, of which the id of the duplicate was given out.
long back_idup_promised(const long *a);
// An identity that rank 0 of comm gives out, for communicators whose members cannot all know the
// same number of siblings.  Collective over comm.
uint64_t back_agree_identity(MPI_Comm comm);
// What a request of MPI_Comm_idup leads to.
struct back_idup {
    MPI_Comm comm;
    ckpt_vid vid;
};
int back_bind_comms(ckpt_job *job);
int back_bind_datatype(ckpt_job *job, uint32_t index, MPI_Datatype type);
int back_bind_op(ckpt_job *job, uint32_t index, MPI_Op op);
int back_bind_constants(ckpt_job *job);
int back_rebuild_comm(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real);
int back_rebuild_type(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real);
int back_rebuild_op(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real);
int back_rebuild_window(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real);
int back_rebuild_file(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real);

// World ranks of a communicator's members, -1 for those of other jobs; the caller's to free.  NULL when
// MPI does not tell.
int *back_comm_world(MPI_Comm comm, int remote, int *n);

// The identity of a communicator: equal on all members, and no other communicator's.
uint64_t back_comm_identity(ckpt_vid comm);

// The real datatype of an id that a descriptor names, committed.  *temporary when it was made for
// this use, and is the caller's to free, because the application has freed it.
int back_type_real(ckpt_vid type, MPI_Datatype *real, int *temporary);

// A handle of its own, for the application, of a datatype that may have been freed; predefined ones
// are given as they are.
long back_type_again(ckpt_vid type, ckpt_vid *vid);

// comm's or a window's or file's members: size out, ckpt_mpi_group out (NULL: only the size).
long back_group_out(MPI_Group group, int is_member, int *size, ckpt_mpi_group *out);

// Infos and groups of the front, for the length of one call.
MPI_Info back_info(const char *content);
void back_info_done(MPI_Info *info);
MPI_Group back_group(const ckpt_mpi_group *g);
void back_group_done(MPI_Group *group);

#pragma GCC visibility pop

#endif
