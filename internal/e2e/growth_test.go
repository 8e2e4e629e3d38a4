// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// usage is what one process holds of the machine.
type usage struct{ memory, descriptors, threads, mappings, ticks int }

// usageOf reads it of a live process: memory in KiB, processor time in the kernel's ticks.
func usageOf(pid int) (u usage, err error) {
	proc := fmt.Sprintf("/proc/%d/", pid)
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			u.memory, err = strconv.Atoi(strings.Fields(rest)[0])
		}
	}
	fds, fdErr := os.ReadDir(proc + "fd")
	threads, threadErr := os.ReadDir(proc + "task")
	maps, mapErr := os.ReadFile(proc + "maps")
	stat, statErr := os.ReadFile(proc + "stat")
	for _, e := range []error{err, fdErr, threadErr, mapErr, statErr} {
		if e != nil {
			return u, e
		}
	}
	u.descriptors, u.threads, u.mappings = len(fds), len(threads), strings.Count(string(maps), "\n")
	// The name of the program, in parentheses, may contain spaces.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			return u, err
		}
		u.ticks += n
	}
	return u, nil
}

// What a rank may hold more at the least in the last quarter of the checkpoints than at the most in the first one: the
// heap of Go moves by so much, and its threads come and go, by how busy the machine is. What grows with each checkpoint
// has grown by half of them between the two.
var mayGrow = usage{memory: 12 << 10, descriptors: 2, threads: 6, mappings: 24}

// TestGrowth: checkpoints one after the other leave nothing behind in the ranks. LIBCKPT_GROWTH says how
// many; the processor time that each quarter of them took is printed, and decides nothing.
func TestGrowth(t *testing.T) {
	needCommands(t)
	checkpoints := 60
	if s := os.Getenv("LIBCKPT_GROWTH"); s != "" {
		var err error
		if checkpoints, err = strconv.Atoi(s); err != nil || checkpoints < 4 {
			t.Fatalf("LIBCKPT_GROWTH=%s: give a number of checkpoints, 4 at least", s)
		}
	}
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			program := buildMPI(t, mpi, "ring")
			j := startMPI(t, mpi, 2, func(r *Run) []string {
				return []string{built.CkptRun(), "--dir", r.Checkpoints(), "--", program, filepath.Join(r.Dir, "stop")}
			})
			// Between collections of garbage, and while a thread more is there, it is more: the least of each quarter
			// and the most of it.
			var quarters, mosts [4]map[int]usage
			sample := func(quarter int) {
				if quarters[quarter] == nil {
					quarters[quarter], mosts[quarter] = map[int]usage{}, map[int]usage{}
				}
				least, most := quarters[quarter], mosts[quarter]
				for _, pid := range j.mark.Ranks() {
					now, err := usageOf(pid)
					if err != nil {
						t.Fatal(err)
					}
					top := most[pid]
					most[pid] = usage{
						memory: max(now.memory, top.memory), descriptors: max(now.descriptors, top.descriptors),
						threads: max(now.threads, top.threads), mappings: max(now.mappings, top.mappings),
					}
					if was, ok := least[pid]; ok {
						now.memory, now.descriptors = min(now.memory, was.memory), min(now.descriptors, was.descriptors)
						now.threads, now.mappings = min(now.threads, was.threads), min(now.mappings, was.mappings)
					}
					least[pid] = now
				}
				if len(least) != 2 {
					t.Fatalf("%d ranks, expected 2\n%s", len(least), mustRead(t, j.run.Stderr))
				}
			}
			for i := range checkpoints {
				if exit, said := checkpoint(t, j.run, NewMark(), "ckptctl", "continue"); exit != (Exit{}) {
					t.Fatalf("checkpoint %d: %v: %s\n%s", i+1, exit, said, mustRead(t, j.run.Stderr))
				}
				sample(min(i/(checkpoints/4), 3))
			}
			if err := os.WriteFile(filepath.Join(j.run.Dir, "stop"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			j.mustEnd(t)
			for pid, last := range quarters[3] {
				was := mosts[0][pid]
				t.Logf("process %d in each quarter of %d checkpoints, the least:", pid, checkpoints)
				for _, q := range quarters {
					u := q[pid]
					t.Logf("  %6d KiB, %d descriptors, %d threads, %d mappings, %d ticks", u.memory, u.descriptors,
						u.threads, u.mappings, u.ticks)
				}
				for _, g := range []struct {
					what          string
					was, now, may int
				}{
					{"KiB of memory", was.memory, last.memory, mayGrow.memory},
					{"descriptors", was.descriptors, last.descriptors, mayGrow.descriptors},
					{"threads", was.threads, last.threads, mayGrow.threads},
					{"mappings", was.mappings, last.mappings, mayGrow.mappings},
				} {
					if g.now > g.was+g.may {
						t.Errorf("process %d has %d %s at the least in the last quarter, %d at the most in the first", pid, g.now, g.what, g.was)
					}
				}
			}
		})
	}
}
