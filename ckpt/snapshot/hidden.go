// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

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

// HiddenMemory reads what of this process's upper half is hidden.
func HiddenMemory() (Hidden, error) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all Hidden
	var at HiddenRange
	for sc := bufio.NewScanner(f); ; {
		if !sc.Scan() {
			return all, sc.Err()
		}
		line := sc.Text()
		if flags, is := strings.CutPrefix(line, "VmFlags:"); is {
			for _, flag := range strings.Fields(flags) {
				at.Gone = at.Gone || flag == "dc"
				at.Wiped = at.Wiped || flag == "wf"
			}
			if (at.Gone || at.Wiped) && upper(at.Start, at.End) {
				all = append(all, at)
			}
			continue
		}
		if r, err := parseLine(line); err == nil {
			at = HiddenRange{Start: r.Start, End: r.End}
		}
	}
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
