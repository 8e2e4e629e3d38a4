// SPDX-License-Identifier: Apache-2.0

package ckpt

// frozen remembers the child that holds the program's memory: this child does not count as one of the program's.
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

// allFrozen waits, where a running rank may write to the memory of others, until all have a copy of their memory or
// have written it. A lost network is found by the exchange that follows.
func (a *attempt) allFrozen() {
	if a.touched || a.verbs {
		_, _ = step(a, stepFrozen, nil, struct{}{})
	}
}
