// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/libckpt/libckpt/ckpt/store"
)

// notHereError says that a directory has no job, and where there are some. They are looked for when it is
// printed: most often nobody sees it, since the command looks again.
type notHereError struct{ err error }

func (e *notHereError) Error() string { return e.err.Error() + "; " + elsewhere("/proc") }
func (e *notHereError) Unwrap() error { return e.err }

// maxElsewhere bounds how many jobs are told of.
const maxElsewhere = 3

// elsewhere is what to say to somebody who named a directory in which no job runs: what this user runs under
// ckptrun on this host, since the directory may be the wrong one, or the job not so far. proc is /proc.
func elsewhere(proc string) string {
	running := underCkptrun(proc)
	if len(running) == 0 {
		return "nothing of yours runs under ckptrun on this host"
	}
	more := ""
	if len(running) > maxElsewhere {
		more = fmt.Sprintf(", and %d more", len(running)-maxElsewhere)
		running = running[:maxElsewhere]
	}
	return "under ckptrun, here run " + strings.Join(running, ", ") + more +
		"; is this the directory of --dir? Of what an MPI launcher starts, a program opens it in MPI_Init, and one that never calls that is not saved"
}

// underCkptrun describes the jobs of this user that ckptrun runs by one of their processes.
func underCkptrun(proc string) []string {
	exes, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "exe"))
	parents := map[int]int{}
	for _, exe := range exes {
		dir := filepath.Dir(exe)
		pid, err := strconv.Atoi(filepath.Base(dir))
		target, linkErr := os.Readlink(exe) // of another user's process it cannot be read
		if err == nil && linkErr == nil && filepath.Base(target) == "ckptrun" {
			parents[pid] = parentOf(dir)
		}
	}
	var pids []int
	for pid, parent := range parents {
		if _, child := parents[parent]; !child {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	var list []string
	seen := map[string]bool{} // ranks of one job look alike
	for _, pid := range pids {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		program, _, _ := bytes.Cut(command, []byte{0})
		cwd, err := os.Readlink(filepath.Join(dir, "cwd"))
		if err != nil {
			continue // it has ended
		}
		if key := string(program) + "\x00" + cwd; seen[key] {
			continue
		} else {
			seen[key] = true
		}
		what := fmt.Sprintf("%s (process %d, in %s", program, pid, cwd)
		if s, err := store.Open(filepath.Join(cwd, "ckpt")); err == nil {
			if _, err := s.ReadJob(); err == nil {
				what += ", perhaps with --dir " + s.Dir()
			}
		}
		list = append(list, what+")")
	}
	return list
}

func parentOf(dir string) int {
	status, _ := os.ReadFile(filepath.Join(dir, "status"))
	_, after, _ := strings.Cut(string(status), "\nPPid:\t")
	line, _, _ := strings.Cut(after, "\n")
	parent, err := strconv.Atoi(line)
	if err != nil {
		return -1
	}
	return parent
}
