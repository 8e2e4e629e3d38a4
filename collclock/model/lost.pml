/* SPDX-License-Identifier: Apache-2.0
 *
 * Targets are exchanged, and stored when they arrive.  A member that raises its target meanwhile tells
 * the others; what it tells may be stored before the exchanged value.
 *
 * FIX=0: the exchanged value is stored as it is   FIX=1: the larger one stays
 */
byte seqA, seqB, target, update;
bool exchanged;

active proctype a() {
    exchanged;
    seqA = 1; /* a has a debt elsewhere, so it enters, passes its target and tells b */
    update = 1;
    seqB == 1 /* inside, until b comes */
}

active proctype b() {
    byte most;
    most = 0; exchanged = true; /* the largest count at the request was 0 */
    do
    :: update > 0 -> target = (update > target -> update : target); update = 0
    :: most < 255 ->
#if FIX
        target = (most > target -> most : target);
#else
        target = most;
#endif
        most = 255
    :: seqB < target -> seqB = target /* owes: goes on into the collective */
    :: most == 255 && seqB == 1 -> break
    od
}
