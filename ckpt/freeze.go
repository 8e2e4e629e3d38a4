// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"go.uber.org/zap"
)

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

// freeze makes the frozen copy. It is a fork, and has all memory of the program but for System V segments. What the
// program has hidden itself is hidden last, segments among it.
func (a *attempt) freeze() (pid int, err error) {
	hidden := a.capture.hidden
	if err := hidden.Show(); err != nil {
		return 0, err
	}
	attached := a.withoutSegments()
	pid, err = a.j.host.Freeze()
	attached()
	if e := hidden.Hide(); e != nil {
		a.j.log.Warn("memory that the program has hidden from its children is no longer", zap.Error(e))
	}
	return pid, err
}
