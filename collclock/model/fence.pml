/* SPDX-License-Identifier: Apache-2.0
 *
 * The hot path on a machine with store buffers (x86: a load may overtake an older store).
 * The application counts its call, then looks at the pending word; the helper sets that word, then
 * looks at the count.  At least one of them must see the other.
 *
 * FENCE=0: no fence   1: the helper's own   2: membarrier by the helper   3: both sides
 */
bool call, pend;         /* memory */
bool callbuf, pendbuf;   /* stores that are still in a CPU's buffer */
bool fast, snapped, snap, looked;

active proctype application() {
    callbuf = true;
#if FENCE == 3
    !callbuf;
#endif
    if
    :: !pend -> fast = true /* enters MPI without asking anybody */
    :: else
    fi;
    looked = true
}

active proctype helper() {
    pendbuf = true;
#if FENCE >= 1
    !pendbuf; /* wait until it has drained */
#endif
#if FENCE == 2
    atomic { if :: callbuf -> call = true; callbuf = false :: else fi } /* every CPU drains */
#endif
    snap = call; snapped = true;
    looked && snapped;
    assert(!fast || snap)
}

active proctype drain() {
end:
    do
    :: atomic { callbuf -> call = true; callbuf = false }
    :: atomic { pendbuf -> pend = true; pendbuf = false }
    od
}
