// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Hidden lists memory that the program has hidden from forks: a child has none of it, or finds zeros there. Libraries
// hide what an adapter writes to.
type Hidden []HiddenRange

// HiddenRange is one mapping.
type HiddenRange struct {
	Start uint64 `json:"start"`
	End   uint64 `json:"end"`
	Gone  bool   `json:"gone,omitempty"`  // MADV_DONTFORK
	Wiped bool   `json:"wiped,omitempty"` // MADV_WIPEONFORK
}

// Check refuses ranges that no program of this layout has.
func (h Hidden) Check() error {
	for _, r := range h {
		if r.Start >= r.End || r.Start == 0 || !upper(r.Start, r.End) {
			return fmt.Errorf("memory 0x%x-0x%x is no program's", r.Start, r.End)
		}
	}
	return nil
}

func (h Hidden) advise(gone, wiped int) error {
	var all []error
	for _, r := range h {
		if r.Gone {
			all = append(all, advise(r.Start, r.End-r.Start, gone))
		}
		if r.Wiped {
			all = append(all, advise(r.Start, r.End-r.Start, wiped))
		}
	}
	return errors.Join(all...)
}

// Show lets forks have it; Hide hides it again.
func (h Hidden) Show() error { return h.advise(unix.MADV_DOFORK, unix.MADV_KEEPONFORK) }

// Hide is the other way round.
func (h Hidden) Hide() error { return h.advise(unix.MADV_DONTFORK, unix.MADV_WIPEONFORK) }
