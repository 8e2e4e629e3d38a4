// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CopyMemory is how much memory a frozen copy takes by itself: pages that the running program has changed or given back
// since, so that the old ones are the copy's alone.
func CopyMemory(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	n, ok := field(string(b), "Private_Dirty")
	if !ok {
		return 0, errors.New("the kernel does not say how much memory the frozen copy takes")
	}
	return n, nil
}

// OwnMemory is how much private memory this process has: what a frozen copy takes at most.
func OwnMemory() (uint64, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	n, ok := field(string(b), "RssAnon")
	if !ok {
		return 0, errors.New("the kernel does not say how much memory this process has")
	}
	return n, nil
}

// Available is how much memory this process may still get, as far as the node and its control groups say.
func Available() (uint64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	n, ok := field(string(b), "MemAvailable")
	if !ok {
		return 0, errors.New("the kernel does not say how much memory is available")
	}
	b, err = os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return n, nil // there are none
	}
	for dir := range groups(string(b)) {
		most, err1 := number(path.Join("/sys/fs/cgroup", dir, "memory.max"))
		used, err2 := number(path.Join("/sys/fs/cgroup", dir, "memory.current"))
		if err1 == nil && err2 == nil {
			// The cache of files is in use, and can be had.
			stat, _ := os.ReadFile(path.Join("/sys/fs/cgroup", dir, "memory.stat"))
			used -= min(used, cached(string(stat)))
			n = min(n, most-min(most, used))
		}
	}
	return n, nil
}

// Addresses fails where this process may not map as many bytes beside what it has mapped.
func Addresses(bytes uint64) error {
	if bytes > ArenaEnd { // more than any process has
		return unix.ENOMEM
	}
	b, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	return unix.Munmap(b)
}

// field reads a line "NAME: N kB", in bytes.
func field(text, name string) (uint64, bool) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err != nil || n > math.MaxUint64>>10 {
			return 0, false
		}
		return n << 10, true
	}
	return 0, false
}

// groups lists the control group of version 2 that a process is in, and those around it.
func groups(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for line := range strings.Lines(text) {
			dir, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
			if !ok {
				continue
			}
			for dir = path.Clean("/" + dir); yield(dir) && dir != "/"; dir = path.Dir(dir) {
			}
			return
		}
	}
}

// cached is the memory of a group that holds files which were not used for a while.
func cached(stat string) uint64 {
	for line := range strings.Lines(stat) {
		if n, ok := strings.CutPrefix(line, "inactive_file "); ok {
			v, err := strconv.ParseUint(strings.TrimSpace(n), 10, 64)
			if err != nil {
				return 0
			}
			return v
		}
	}
	return 0
}

// number reads a file with a number of bytes; "max" is none.
func number(name string) (uint64, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}
