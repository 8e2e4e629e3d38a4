// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/snapshot"
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

// hides notes which memory the program has hidden from forks.
func (c *capture) hides(j *Job) (err error) {
	if !j.host.Hides(false) {
		return nil
	}
	if c.hidden, err = snapshot.HiddenMemory(); err != nil || len(c.hidden) == 0 {
		return err
	}
	b, err := json.Marshal(c.hidden)
	c.sections = append(c.sections, image.Section{Name: sectionForks, Data: b})
	return err
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

// hideAgain hides from forks what the program had hidden.
func (j *Job) hideAgain(f *image.File) error {
	b, err := f.Section(sectionForks)
	if errors.Is(err, image.ErrNoSection) {
		return nil
	}
	var hidden snapshot.Hidden
	if err == nil {
		err = json.Unmarshal(b, &hidden)
	}
	if err == nil {
		err = hidden.Check()
	}
	if err == nil {
		err = hidden.Hide()
	}
	if err != nil {
		return fmt.Errorf("%s: section %q: %w", f.Name(), sectionForks, err)
	}
	j.host.Hides(true)
	return nil
}
