/* SPDX-License-Identifier: Apache-2.0
 *
 * The published collective clock, with a request and a detection better than any implementation can
 * have: both take no time and see all ranks at once.  What fails here fails in any implementation.
 *
 * -DINFLIGHT: raised targets travel as messages (detection still sees all ranks at once).
 * -DRESET: a clock is set to 0 when a communicator over its group is made.
 * -DDROP: targets of groups that a rank has no communicator of are dropped.
 * -DPARKAFTER: a rank that owes nothing is parked on its way out of a collective, too.
 * -DFORGET: the clock is forgotten when the communicator is freed.
 */
#include "program.h"

#define I(r, g) ((r) * G + (g))
#define C(r, g) ((r) * G + GROUP_OF(g)) /* the clock: one per group */
#define MAX(a, b) ((a) > (b) -> (a) : (b))

byte SEQ[N * G], T[N * G], UPD[N * G]; /* by group; UPD: a raised target on its way */
byte real[N * G], inside[N];
bool made[N * G], gone[N * G];
bool pend, requested;
byte sent[N * N], taken[N * N];

#define OWES1(r, g) || (SEQ[C(r, g)] < T[C(r, g)])
#define OWES(r) (false EACH_CLOCK_OF(r, OWES1))
#define STARTED(r, g, k) (real[I(r, g)] >= (k))

#ifdef INFLIGHT
#define TELL(r, g) UPD[C(r, g)] = MAX(UPD[C(r, g)], top);
#define ARRIVE(r, g) :: atomic { UPD[C(r, g)] > T[C(r, g)] -> T[C(r, g)] = UPD[C(r, g)] }
#else
#define TELL(r, g) T[C(r, g)] = MAX(T[C(r, g)], top);
#define ARRIVE(r, g)
#endif
hidden byte top;

#ifdef PARKAFTER
#define PARK(r) (!pend || OWES(r))
#else
#define PARK(r) skip
#endif
#ifdef RESET
#define ON_CREATE(r, x) SEQ[C(r, x)] = 0; T[C(r, x)] = 0
#else
#define ON_CREATE(r, x) skip
#endif
#ifdef FORGET
#define ON_FREE(r, g) SEQ[C(r, g)] = 0; T[C(r, g)] = 0
#else
#define ON_FREE(r, g) skip
#endif

#define tick(r, g) \
    atomic { \
        (!pend || OWES(r)) -> SEQ[C(r, g)]++; real[I(r, g)]++; \
        if \
        :: pend && SEQ[C(r, g)] > T[C(r, g)] -> top = SEQ[C(r, g)]; MEMBERS(g, TELL) T[C(r, g)] = top \
        :: else \
        fi \
    }

#define enter(r, g) \
    atomic { \
        (!pend || OWES(r)) -> inside[r]++; SEQ[C(r, g)]++; real[I(r, g)]++; \
        if \
        :: pend && SEQ[C(r, g)] > T[C(r, g)] -> top = SEQ[C(r, g)]; MEMBERS(g, TELL) T[C(r, g)] = top \
        :: else \
        fi \
    }

#define COLL(r, g, k) enter(r, g); atomic { ALL(g, STARTED, k) -> inside[r]-- }; PARK(r)
#define BCAST(r, g, k, root) enter(r, g); atomic { (r == root || real[I(root, g)] >= k) -> inside[r]-- }; PARK(r)
#define ICOLL(r, g, k) tick(r, g)
#define WAITR(r, g, k) ALL(g, STARTED, k)

#define create(r, x) \
    made[I(r, x)] = true; ON_CREATE(r, x)
#define MAKE(r, g, k, x, member) \
    enter(r, g); ALL(g, STARTED, k); \
    atomic { if :: member -> create(r, x) :: else fi; inside[r]-- }
#define OBJECT(r, g, k, x) enter(r, g); atomic { create(r, x); inside[r]-- }
/* create_group counts on the parent, though only the members of the new communicator call it. */
#define GROUP(r, g, k, x) \
    atomic { (!pend || OWES(r)) -> inside[r]++; SEQ[C(r, g)]++; real[I(r, x)]++; \
        if :: pend && SEQ[C(r, g)] > T[C(r, g)] -> top = SEQ[C(r, g)]; MEMBERS(g, TELL) T[C(r, g)] = top :: else fi } \
    ALL(x, STARTED, k); atomic { create(r, x); inside[r]-- }
#define FREE(r, g, k) \
    enter(r, g); \
    atomic { inside[r]--; gone[I(r, g)] = true; ON_FREE(r, g) }
#define SEND(r, to) sent[(r) * N + to]++
#define RECV(r, from) atomic { sent[(from) * N + r] > taken[(from) * N + r] -> taken[(from) * N + r]++ }
#define SSEND(r, to, n) sent[(r) * N + to]++; taken[(r) * N + to] >= n
#define ANYFROM(r, from) :: atomic { sent[(from) * N + r] > taken[(from) * N + r] -> taken[(from) * N + r]++ }

#define LARGEST(r, g) top = MAX(top, SEQ[C(r, g)]);
#ifdef DROP
#define SETT(r, g) if :: made[I(r, g)] -> T[C(r, g)] = MAX(T[C(r, g)], top) :: else fi;
#else
#define SETT(r, g) T[C(r, g)] = MAX(T[C(r, g)], top);
#endif
#ifdef FORGET
#undef SETT
#define SETT(r, g) if :: gone[I(r, g)] :: else -> T[C(r, g)] = MAX(T[C(r, g)], top) fi;
#endif
#define TARGET(g) top = 0; MEMBERS(g, LARGEST) MEMBERS(g, SETT)

#define REACHED(r) && inside[r] == 0 && !OWES(r)
#define EQUAL(r, g, k) (real[I(r, g)] == real[(k)*G + (g)] && made[I(r, g)] == made[(k)*G + (g)])
#define SAME(g) assert(ALL(g, EQUAL, FIRST(g)));

proctype control() {
    do
    :: atomic { !requested -> requested = true; EACH_CLOCK(TARGET) pend = true }
    EACH_PAIR(ARRIVE)
    :: atomic { pend && (true EACH_RANK(REACHED)) -> EACH_CLOCK(SAME) pend = false }
    :: atomic { requested && !pend && THREADS_DONE -> break }
    od
}

#include "threads.h"
