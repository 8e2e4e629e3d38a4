/* SPDX-License-Identifier: Apache-2.0
 *
 * rail.h: rails, endpoints, election.
 *
 * A rail is one network of the runtime.  libckpt knows its rails, so that it can have them closed before an
 * image is made and opened again after it, on other hosts if need be, and so that a message finds the best rail
 * that is open: the election.  An endpoint is a way over one rail to one process.  A static endpoint is there
 * since its rail was opened; a dynamic one was made when a message asked for it.
 *
 * The state of a rail, which is in memory of the caller's half and so in its image (docs/embedding.md):
 *
 *             register            quiet                    close             all closed, image
 *   [Absent] ----------> [Open] --------> [Draining] ----------> [Closed] --------------------.
 *                        ^   ^                | refused             | given up: FAILED        |
 *                        |   `----------------'                     v                         v
 *                        `------- reopen() == 0 ---------------- [Opening] <-- CONTINUED or RESTARTED
 *                                                                   | != 0      ^
 *                                                                   v           | at the next reopening
 *                                                                [Broken] ------'
 *
 * A CHECKPOINTABLE rail goes from Draining to Open, and a LAZY one from Closed to [Due]: the first ckpt_route that
 * needs it opens it.  What an election finds, and what ckpt_route does with a rail whose gate is open:
 *
 *   Open       its endpoints are elected; new ones are made
 *   Draining   its endpoints are elected; later (CKPT_E_AGAIN, when no other rail has an endpoint)
 *   Closed     it has no endpoints; later
 *   Due        it has no endpoints; opens it
 *   Opening    endpoints that reopen has added are elected; later
 *   Broken     it has no endpoints; passes it over, and names it when there is no route
 */
#ifndef CKPT_RAIL_H
#define CKPT_RAIL_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { /* kinds of traffic, bits; a runtime adds its own from CKPT_MSG_OWN on */
       CKPT_MSG_EAGER = 1,
       CKPT_MSG_RENDEZVOUS = 2,
       CKPT_MSG_RMA = 4,
       CKPT_MSG_CONTROL = 8,
       CKPT_MSG_OWN = 256
};
/* Flags of a rail. */
enum {
    /* It stays open over a checkpoint: its memory and descriptors are all saved, or registered.  Its endpoints
     * stay listed; close and reopen are not called. */
    CKPT_RAIL_CHECKPOINTABLE = 1,
    /* connect may be called for any process. */
    CKPT_RAIL_ON_DEMAND = 2,
    /* It reaches processes of the same node only. */
    CKPT_RAIL_NODE = 4,
    /* It is opened again by the first ckpt_route that needs it, not at once; or by the rail itself, when another
     * process asks for an endpoint: then ckpt_endpoint_add says so. */
    CKPT_RAIL_LAZY = 8
};
enum {                         /* why a rail is opened again */
       CKPT_WHY_CONTINUED = 1, /* in the same process, after an image was taken */
       CKPT_WHY_RESTARTED = 2, /* in another process: other hosts, numbers and descriptors */
       CKPT_WHY_FAILED = 3     /* in the same process: there is no image, the checkpoint was given up */
};
enum { CKPT_EP_STATIC = 1 };

typedef struct ckpt_rail ckpt_rail;

/* Memory of the rail's own; it may stand first in a larger struct. */
typedef struct ckpt_endpoint {
    ckpt_rail *rail;
    int process;                /* the peer */
    unsigned flags;             /* CKPT_EP_STATIC */
    struct ckpt_endpoint *next; /* libckpt's: same process, next in the order of election */
} ckpt_endpoint;

/* Callbacks of a rail, on a task (ckpt.h: [task]) unless said otherwise; ctx is that of ckpt_rail_register. */
typedef struct ckpt_rail_ops {
    size_t size;
    const char *name; /* for messages: "tcp" */
    int priority;     /* higher ones are asked first; equal ones in the order in which they were registered */
    unsigned flags;   /* CKPT_RAIL_* */
    /* 1 when a message of that size and kind may take this rail.  In ckpt_elect, for each message: no lock, no
     * call.  NULL: every message. */
    int (*gate)(void *ctx, size_t bytes, int kind);
    /* Makes an endpoint to a process: 0 and *out; CKPT_E_AGAIN while it is being made (elect again after
     * ckpt_poll); CKPT_E_NOTSUP: this rail cannot reach the process (not asked again until it is opened again).
     * May use ckpt_signal_send to talk to its other end.  On the task that sends; while it is inside, others that
     * want the same process get CKPT_E_AGAIN.  *out is listed then; a rail where the other side's endpoint may be
     * listed meanwhile lists its own one itself before it returns, and so hears of that. */
    int (*connect)(void *ctx, int process, ckpt_endpoint **out);
    /* 1 when nothing of this process is under way on the rail: what was sent was acknowledged by the peer's rail,
     * nothing is unread.  Called in turns with drain until all rails say 1.  NULL: counts alone decide. */
    int (*quiet)(void *ctx);
    /* Frees all that is not memory: sockets, registrations, mappings of devices.  libckpt has taken the rail's
     * endpoints off its lists; the rail frees dynamic ones here.  Must not need a peer: after quiet nobody is
     * there to answer.  One that failed is followed by reopen, as one that succeeded. */
    int (*close)(void *ctx);
    /* Opens it again, and adds static endpoints again.  Collective over all processes, which give the same
     * reason; rails in ascending priority, so that a later one may use an earlier one.  Also after a reopen that
     * failed, which has therefore freed what it had made.  Of a LAZY rail: on the task that sends, at each
     * process when it needs the rail, with the gravest reason since it was open (RESTARTED).  The signaling
     * network works here. */
    int (*reopen)(void *ctx, int why);
} ckpt_rail_ops;

/* The rail is open.  ops is copied.  CKPT_E_ARG: a callback is missing; CHECKPOINTABLE rails alone may have
 * neither close nor reopen, and those without ON_DEMAND no connect.  Calls ranks of ckpt_runtime_ops. */
int ckpt_rail_register(ckpt_job *job, const ckpt_rail_ops *ops, void *ctx, ckpt_rail **rail,
                       ckpt_error *error);
/* No message may be on its way to an election meanwhile.  CKPT_E_STATE: a checkpoint is under way. */
int ckpt_rail_unregister(ckpt_job *job, ckpt_rail *rail);

/* Lists an endpoint: a static one, or one that the other side asked for.  CKPT_E_STATE: there is one to this
 * process over this rail already, or the rail is closed or broken.  When two processes connect to each other at once, each rail keeps the
 * endpoint that the lower process asked for. */
int ckpt_endpoint_add(ckpt_job *job, ckpt_endpoint *endpoint);
/* Takes it off the list: between quiesce(1) and quiesce(0), or under a lock that every sender holds. */
void ckpt_endpoint_remove(ckpt_job *job, ckpt_endpoint *endpoint);

/* The open descriptor belongs to the rail, until it is closed: it is neither saved nor in the way of a checkpoint, and
 * stays open when the run continues.  After a restart it reads as closed.  CKPT_E_ARG: it is not open. */
int ckpt_rail_fd(ckpt_rail *rail, int fd);

/* The second pass of an election: rails in order of priority whose gate is open and which connect on demand.
 * Handlers of signals that have come are called first.  0 and *out; CKPT_E_AGAIN; or CKPT_E_PEER with the reason of
 * each rail: "no route to process 7: tcp: gate closed for 12 bytes; ib: broken: no device". */
int ckpt_route(ckpt_job *job, int process, size_t bytes, int kind, ckpt_endpoint **out, ckpt_error *error);

/* What ckpt_elect looks at; libckpt's own. */
struct ckpt_rail_head {
    int (*gate)(void *ctx, size_t bytes, int kind);
    void *ctx;
};
struct ckpt_routes {
    int processes;
    ckpt_endpoint **first; /* of each process, in the order of election */
};
/* The first pass, inline: the first listed endpoint whose gate is open; NULL: ask ckpt_route. */
static inline ckpt_endpoint *ckpt_elect(const ckpt_job *job, int process, size_t bytes, int kind) {
    const struct ckpt_routes *routes = __atomic_load_n(&job->routes, __ATOMIC_ACQUIRE);
    if (__builtin_expect(routes == NULL || (unsigned)process >= (unsigned)routes->processes, 0)) return NULL;
    ckpt_endpoint *e = __atomic_load_n(&routes->first[process], __ATOMIC_ACQUIRE);
    for (; e != NULL; e = __atomic_load_n(&e->next, __ATOMIC_ACQUIRE)) {
        const struct ckpt_rail_head *rail = (const struct ckpt_rail_head *)e->rail;
        if (rail->gate == NULL || rail->gate(rail->ctx, bytes, kind)) return e;
    }
    return NULL;
}

#ifdef __cplusplus
}
#endif
#endif
