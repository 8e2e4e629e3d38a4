// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
)

// Advice lists what the program has advised of memory that the kernel keeps with a mapping: it says how the memory is used, and
// changes no byte.
type Advice []AdvisedRange

// AdvisedRange is one mapping.
type AdvisedRange struct {
	Start uint64 `json:"start"`
	End   uint64 `json:"end"`
	// As /proc/self/smaps writes it: letters of "advices", and "lo", locked, "lf", locked as it is touched.
	Flags []string `json:"flags"`
}

// advices are advice by the letters that smaps has for it.
var advices = map[string]int{"sr": unix.MADV_SEQUENTIAL, "rr": unix.MADV_RANDOM, "dd": unix.MADV_DONTDUMP, "hg": unix.MADV_HUGEPAGE,
	"nh": unix.MADV_NOHUGEPAGE, "mg": unix.MADV_MERGEABLE}

const (
	lockedFlag  = "lo"
	onFaultFlag = "lf"
)

// Advised reads of this process's upper half what is hidden from forks, and other advice.
func Advised() (Hidden, Advice, error) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	var hidden Hidden
	var advice Advice
	var at image.Region
	for sc := bufio.NewScanner(f); ; {
		if !sc.Scan() {
			return hidden, advice, sc.Err()
		}
		line := sc.Text()
		letters, is := strings.CutPrefix(line, "VmFlags:")
		if !is {
			if r, err := parseLine(line); err == nil {
				at = r
			}
			continue
		}
		if !upper(at.Start, at.End) {
			continue
		}
		flags := strings.Fields(letters)
		if gone, wiped := slices.Contains(flags, "dc"), slices.Contains(flags, "wf"); gone || wiped {
			hidden = append(hidden, HiddenRange{Start: at.Start, End: at.End, Gone: gone, Wiped: wiped})
		}
		flags = slices.DeleteFunc(flags, func(f string) bool { return advices[f] == 0 && f != lockedFlag && f != onFaultFlag })
		if len(flags) > 0 {
			advice = append(advice, AdvisedRange{Start: at.Start, End: at.End, Flags: slices.Clone(flags)})
		}
	}
}

// Check refuses ranges that no program of this layout has, and advice that is not known.
func (a Advice) Check() error {
	for _, r := range a {
		if r.Start >= r.End || r.Start == 0 || !upper(r.Start, r.End) {
			return fmt.Errorf("memory 0x%x-0x%x is no program's", r.Start, r.End)
		}
		for _, flag := range r.Flags {
			if advices[flag] == 0 && flag != lockedFlag && flag != onFaultFlag {
				return fmt.Errorf("memory 0x%x-0x%x with the flag %q", r.Start, r.End, flag)
			}
		}
	}
	return nil
}

// Give advises the kernel again. With later set, memory is locked as it comes, which it does when it is touched. Errors are
// of what the kernel does not do here, a limit among them; everything else is done.
func (a Advice) Give(later bool) error {
	var all []error
	for _, r := range a {
		for _, flag := range r.Flags {
			if advice, is := advices[flag]; is {
				if err := advise(r.Start, r.End-r.Start, advice); err != nil {
					all = append(all, fmt.Errorf("advice %d on memory 0x%x-0x%x: %w", advice, r.Start, r.End, err))
				}
			}
		}
		if !slices.Contains(r.Flags, lockedFlag) {
			continue
		}
		how := uintptr(0)
		if later || slices.Contains(r.Flags, onFaultFlag) {
			how = unix.MLOCK_ONFAULT
		}
		if _, _, e := unix.Syscall(unix.SYS_MLOCK2, uintptr(r.Start), uintptr(r.End-r.Start), how); e != 0 {
			all = append(all, fmt.Errorf("memory 0x%x-0x%x, which the program had locked, cannot be (ulimit -l): %w", r.Start, r.End, e))
		}
	}
	return errors.Join(all...)
}
