/* SPDX-License-Identifier: Apache-2.0
 *
 * Check, then act: the wrapper looks whether a checkpoint is pending, and counts its call later.  In
 * between the helper may find that all is well and declare the state safe.
 *
 * FIX=0: look, then count (published)   FIX=1: count, then look
 */
bool pend, safe;
byte call, ret, snap;

active proctype application() {
    bool seen;
#if FIX
    call++;
    if
    :: !pend
    :: pend && call <= snap
    :: pend && call > snap -> !pend /* the gate */
    fi;
#else
    seen = pend;
    if :: seen -> !pend :: else fi;
    call++;
#endif
    assert(!safe); /* in MPI */
    ret++
}

active proctype helper() {
    atomic { pend = true; snap = call }
    /* The calls of the snapshot have returned; one made later waits at the gate. */
    atomic { ret == (call < snap -> call : snap) -> safe = true }
    atomic { safe = false; pend = false }
}
