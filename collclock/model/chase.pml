/* SPDX-License-Identifier: Apache-2.0
 *
 * Who owes a collective and waits for a message from anybody must be helped by all possible senders.
 * R0 owes H0 and R1 may come to owe H1; X0, X1 would send what they wait for; Y0, Y1 are possible
 * senders too, but what Y0 does next is to enter H1 and what Y1 does next is to enter H0.
 *
 * POLICY=0: a demand lets Y pass its target, which makes a new debt for the other receiver
 * POLICY=1: debts are fixed; Y waits at the gate until the other member has called
 *
 * The property: every fair run becomes safe.
 */
bool owes[2], message[2], safe;

proctype R(byte i) {
end:
    do
    :: atomic { owes[i] && message[i] -> message[i] = false; owes[i] = false }
    od
}

proctype X(byte i) {
end:
    do
    :: atomic { owes[i] && !message[i] -> message[i] = true }
    od
}

proctype Y(byte i) {
end:
    do
    :: atomic { POLICY == 0 && !safe && owes[i] && !owes[1 - i] -> owes[1 - i] = true }
    od
}

init {
    owes[0] = true;
    atomic { run R(0); run R(1); run X(0); run X(1); run Y(0); run Y(1) }
    atomic { !owes[0] && !owes[1] -> safe = true }
}

never {
accept:
    do
    :: !safe
    od
}
