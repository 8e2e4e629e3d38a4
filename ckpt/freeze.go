// SPDX-License-Identifier: Apache-2.0

package ckpt

// frozen remembers the child that holds the program's memory: it is none of the program's own.
func (a *attempt) frozen(pid int) {
	a.copy = pid
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	a.j.frozen[pid] = true
}

// thaw ends the copy.
func (a *attempt) thaw() {
	a.j.host.Thaw(a.copy)
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	delete(a.j.frozen, a.copy)
}

// allFrozen waits, where a rank that runs writes to the memory of others, until none of these needs
// its memory any more. A lost network is found by the exchange that follows.
func (a *attempt) allFrozen() {
	if a.touched {
		_, _ = step(a, stepFrozen, nil, struct{}{})
	}
}
