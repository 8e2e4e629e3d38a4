/* SPDX-License-Identifier: Apache-2.0
 *
 * The refined protocol (collclock), one epoch, with or without giving it up.
 *
 * program.h and threads.h come from a scenario's program (model.go): N ranks, G clocks, who is a
 * member of what, and a process per thread.  These use macros, not inlines: lists of members are macros
 * too, and cpp must see all arguments.
 *
 * What is modelled: calls, gates, deferred starts, snapshots at different times, INIT and ANN
 * messages with any delay and in any order, the home's decisions, READY, FREEZE, CLEAN, STOP, RESUME.
 * Messages downwards (LIM, RIPE, FIN, FREEZE) say facts that stay true; that they arrive late is the
 * same as that the receiver acts late, so they are variables.  Trees are flat.  Not modelled, but
 * covered by exploring the code itself: second epochs, tombstones, always-gated calls, tree depth.
 *
 * No process loops while it waits.  So a run that cannot go on is an invalid end state, and none means
 * that in every schedule the checkpoint is taken (or given up) and the program ends.
 */
#include "program.h"

#define I(r, g) ((r) * G + (g))
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define LIMIT(g) MAX(T0[g], GO[g])

byte CALL[N * G], RET[N * G], ENT[N * G]; /* made, returned, permitted */
byte SNAP[N * G], DQ[N * G];              /* at the snapshot; deferred starts */
bool made[N * G], ph0[N * G];             /* the clock exists; existed at the snapshot */
bool has[N * G];                          /* the application has the handle */
bool initsent[N * G], initgot[N * G];     /* INIT was sent; has reached the home */
byte ann[N * G], heard[N * G];            /* announced; announced as the home knows */
byte T0[G], GO[G], LIM[G];
bool allinit[G], isripe[G], frozen[G];
bool pend[N], rdy[N], frz[N], cln[N], left[N]; /* by rank: snapshot taken; READY; has seen FREEZE;
                                                  CLEAN; resumed */
bool requested, freeze, safe, over, aborted;
byte sent[N * N], taken[N * N];

/* A step that a trace tells of, which is either all steps or the next of a recorded one. */
#include "trace.h"
#define STEP(e, r, g, v) NEXT(e, r, g, v) -> ADV(e, r, g, v)

/* ---- the application ---- */

#define call(r, g, k) \
    atomic { STEP(EV_CALL, r, g, k); CALL[I(r, g)] = k }

/* Hot path, or the gate. */
#define gate(r, g, k) \
    atomic { \
        if \
        :: pend[r] && k > SNAP[I(r, g)] -> ann[I(r, g)] = k \
        :: else \
        fi \
    } \
    atomic { \
        (!pend[r] || k <= SNAP[I(r, g)] || k <= LIM[g]) && RET[I(r, g)] == k - 1 && DQ[I(r, g)] == 0 && \
        STEP(EV_ENTER, r, g, k); ENT[I(r, g)] = MAX(ENT[I(r, g)], k) \
    } \
    atomic { CLEAR(r, g) -> in_mpi(r, g); busy[r]++ }

/* Who is inside of MPI starts no deferred calls: with some left, a rank enters only what nobody owes any
 * more (-DHASTY: at once). */
#ifdef HASTY
#define CLEAR(r, g) true
#else
#define CLEAR(r, g) ((true EACH_CLOCK_OF(r, STARTS)) || pend[r] && isripe[g])
#endif
#define STARTS(r, g) && DQ[I(r, g)] == 0

#define back(r, g, k) \
    atomic { STEP(EV_RETURN, r, g, k); out_mpi(r, g); busy[r]--; RET[I(r, g)] = k }

#define COLL(r, g, k) \
    call(r, g, k); gate(r, g, k); \
    ALL(g, STARTED, k) -> back(r, g, k)

#define BCAST(r, g, k, root) \
    call(r, g, k); gate(r, g, k); \
    (r == root || real[I(root, g)] >= k) -> back(r, g, k)

#define ICOLL(r, g, k) \
    call(r, g, k); \
    atomic { \
        if \
        :: (!pend[r] || k <= SNAP[I(r, g)]) && DQ[I(r, g)] == 0 -> \
            STEP(EV_ENTER, r, g, k); ENT[I(r, g)] = MAX(ENT[I(r, g)], k); in_mpi(r, g); \
            STEP(EV_RETURN, r, g, k); out_mpi(r, g); RET[I(r, g)] = k \
        :: else -> DQ[I(r, g)]++; ann[I(r, g)] = k \
        fi \
    }

#define WAITR(r, g, k) (RET[I(r, g)] >= k && ALL(g, STARTED, k))

/* Where real calls begin and end, apart from what the protocol thinks. */
byte real[N * G], inside[N], busy[N]; /* busy: in blocking calls */
#define STARTED(r, g, k) (real[I(r, g)] >= (k))
#define in_mpi(r, g) atomic { assert(!safe || over); real[I(r, g)]++; inside[r]++ }
#define out_mpi(r, g) inside[r]--

/* A clock that is created after FREEZE gets no INIT.  Otherwise its home, which FREEZE may not have
 * reached yet, could let in a rank that has told already that it is clean (-DEAGER shows it). */
#ifdef EAGER
#define IN_TIME(r) true
#else
#define IN_TIME(r) !frz[r]
#endif

#define create(r, x) \
    atomic { \
        STEP(EV_CREATE, r, x, 0); made[I(r, x)] = true; \
        if \
        :: pend[r] && IN_TIME(r) -> initsent[I(r, x)] = true; ann[I(r, x)] = CALL[I(r, x)] \
        :: else \
        fi \
    }

#define MAKE(r, g, k, x, member) \
    call(r, g, k); gate(r, g, k); \
    ALL(g, STARTED, k); \
    if :: member -> has[I(r, x)] = true; create(r, x) :: else fi; \
    back(r, g, k)

#define OBJECT(r, g, k, x) call(r, g, k); gate(r, g, k); has[I(r, x)] = true; create(r, x); back(r, g, k)

#define GROUP(r, g, k, x) \
    create(r, x); call(r, x, k); gate(r, x, k); \
    ALL(x, STARTED, k); has[I(r, x)] = true; back(r, x, k)

/* The leaders a and b tell each other, and their sides, who comes; a rank comes with nothing of its local
 * communicator g left to start. */
bool here[N * G];
#define BRIDGE(r, g, k, x, a, b) \
    atomic { DQ[I(r, g)] == 0 -> here[I(r, x)] = true } \
    (here[I(a, x)] && here[I(b, x)]); \
    GROUP(r, g, k, x)

#define FREE(r, g, k) call(r, g, k); gate(r, g, k); back(r, g, k)

#define SEND(r, to) sent[(r) * N + to]++
#define RECV(r, from) atomic { sent[(from) * N + r] > taken[(from) * N + r] -> taken[(from) * N + r]++ }
#define SSEND(r, to, n) sent[(r) * N + to]++; taken[(r) * N + to] >= n
#define ANYFROM(r, from) :: atomic { sent[(from) * N + r] > taken[(from) * N + r] -> taken[(from) * N + r]++ }

/* ---- the protocol ---- */

#define INIT1(r, g) \
    if :: made[I(r, g)] -> \
        SNAP[I(r, g)] = CALL[I(r, g)]; ENT[I(r, g)] = CALL[I(r, g)]; ph0[I(r, g)] = true; \
        initsent[I(r, g)] = true; ann[I(r, g)] = CALL[I(r, g)] \
    :: else fi;

#define SNAPSHOT(r) \
    :: atomic { requested && !over && !pend[r] && !left[r] && (true EACH_CLOCK_OF(r, COUNTED)) && \
        STEP(EV_SNAPSHOT, r, 0, 0); \
        EACH_CLOCK_OF(r, INIT1) pend[r] = true }

#define DEFERRED(r, g) \
    :: atomic { DQ[I(r, g)] > 0 && (busy[r] == 0 || busy[r] < THREADS_OF(r)) && ENT[I(r, g)] == RET[I(r, g)] && RET[I(r, g)] < CALL[I(r, g)] && \
        (!pend[r] || ENT[I(r, g)] + 1 <= LIM[g] || ENT[I(r, g)] + 1 <= SNAP[I(r, g)]) && \
        STEP(EV_ENTER, r, g, ENT[I(r, g)] + 1); ENT[I(r, g)]++; in_mpi(r, g) } \
    :: atomic { DQ[I(r, g)] > 0 && ENT[I(r, g)] > RET[I(r, g)] && STEP(EV_RETURN, r, g, RET[I(r, g)] + 1); out_mpi(r, g); RET[I(r, g)]++; DQ[I(r, g)]-- }

#define MESSAGES(r, g) \
    :: atomic { initsent[I(r, g)] && !initgot[I(r, g)] && !over -> \
        initgot[I(r, g)] = true; heard[I(r, g)] = ann[I(r, g)] } \
    :: atomic { initgot[I(r, g)] && heard[I(r, g)] < ann[I(r, g)] && !over && !frozen[g] -> \
        heard[I(r, g)] = ann[I(r, g)] }

#define GOTINIT(r, g, k) initgot[I(r, g)]
#define HEARD(r, g, k) (heard[I(r, g)] >= (k))
#define LARGEST(r, g) T0[g] = MAX(T0[g], SNAP[I(r, g)]);
#define NOTLESS(r, g, k) (SNAP[I(r, g)] >= (k))

#define HOME(g) \
    :: atomic { !allinit[g] && !over && ALL(g, GOTINIT, 0) -> allinit[g] = true; MEMBERS(g, LARGEST) \
        if :: !ALL(g, NOTLESS, T0[g]) -> STEP(EV_GO, 0, g, T0[g]); LIM[g] = T0[g] \
        :: else fi } \
    :: atomic { allinit[g] && !frozen[g] && !over && LEAST(g) > LIMIT(g) && \
        STEP(EV_GO, 0, g, LEAST(g)); GO[g] = LEAST(g); LIM[g] = GO[g] } \
    :: atomic { allinit[g] && !isripe[g] && !over && ALL(g, HEARD, T0[g]) && STEP(EV_RIPE, 0, g, T0[g]); isripe[g] = true } \
    :: atomic { freeze && !frozen[g] && STEP(EV_FREEZE, 0, g, LIMIT(g)); frozen[g] = true; LIM[g] = LIMIT(g); assert(ALL(g, CALLED, LIMIT(g))) }
#define CALLED(r, g, k) (CALL[I(r, g)] >= (k))

#define RIPE1(r, g) && (!ph0[I(r, g)] || isripe[g])
#define COMPLETE(r, g, k) (real[I(r, g)] >= (k))
#define SETTLED1(r, g) && (!made[I(r, g)] || !initsent[I(r, g)] || frozen[g] && ENT[I(r, g)] == LIMIT(g) && \
    RET[I(r, g)] == ENT[I(r, g)] && ALL(g, COMPLETE, ENT[I(r, g)]))

#define RANK(r) \
    :: atomic { pend[r] && !rdy[r] && !over && (true EACH_CLOCK_OF(r, RIPE1)) && STEP(EV_READY, r, 0, 0); rdy[r] = true } \
    :: atomic { freeze && !frz[r] && !over -> frz[r] = true } \
    :: atomic { frz[r] && !cln[r] && !over && (true EACH_CLOCK_OF(r, SETTLED1)) && STEP(EV_CLEAN, r, 0, 0); cln[r] = true } \
    :: atomic { over && !left[r] && STEP(EV_RESUME, r, 0, 0); left[r] = true; pend[r] = false }

#define IS_RDY(r) && rdy[r]
#define IS_CLN(r) && cln[r]
#define IS_LEFT(r) && left[r]
#define OUTSIDE(r) assert(inside[r] == 0);
#define EQUAL(r, g, k) (real[I(r, g)] == real[(k)*G + (g)] && has[I(r, g)] == has[(k)*G + (g)])
#define SAME(g) assert(ALL(g, EQUAL, FIRST(g)));
#define NODQ(r, g) && DQ[I(r, g)] == 0

proctype control() {
    /* One step at a time of any rank's helper, of any home, or of rank 0. */
    do
    EACH_RANK(SNAPSHOT)
    EACH_PAIR(DEFERRED)
    EACH_PAIR(MESSAGES)
    EACH_CLOCK(HOME)
    EACH_RANK(RANK)
    :: atomic { !requested -> requested = true }
#ifdef ABORT
    :: atomic { requested && !freeze && !over -> over = true; aborted = true }
#endif
    :: atomic { !freeze && !over && (true EACH_RANK(IS_RDY)) -> freeze = true }
    :: atomic { !safe && !over && (true EACH_RANK(IS_CLN)) && STEP(EV_STOP, 0, 0, 0); safe = true;
        EACH_RANK(OUTSIDE) EACH_CLOCK(SAME) }
    :: atomic { safe && !over -> over = true }
    :: atomic { over && (true EACH_RANK(IS_LEFT)) EACH_PAIR(NODQ) && THREADS_DONE -> break }
    od
}

#include "threads.h"
