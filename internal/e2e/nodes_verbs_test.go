// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// verbsJob is a job of two processes on InfiniBand verbs, over TCP, each on a node.
type verbsJob struct {
	t    *testing.T
	dir  string
	mark Mark
	env  [2][]string
	run  [2]*Run
	p    [2]*Process
}

// newVerbsJob prepares one, and builds this program of the tests of verbs.
func newVerbsJob(t *testing.T, program string, options ...string) *verbsJob {
	t.Helper()
	j := &verbsJob{t: t, dir: t.TempDir(), mark: NewMark()}
	t.Cleanup(j.mark.KillAll)
	sources, err := filepath.Glob(filepath.Join(built.Root, "internal/e2e/verbs/programs", program, "*.c"))
	must(t, err)
	argv := slices.Concat([]string{"-std=gnu11", "-O2", "-pthread", "-o", filepath.Join(j.dir, program)}, sources, options)
	if out, err := exec.Command("gcc", argv...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v: %s", err, out)
	}
	must(t, os.Mkdir(filepath.Join(j.dir, "meet"), 0o755))
	for r := range j.run {
		j.run[r], err = NewRun(filepath.Join(j.dir, fmt.Sprint("rank-", r)))
		must(t, err)
	}
	return j
}

func (j *verbsJob) checkpoints() string { return filepath.Join(j.dir, "ckpt") }

// begin runs the programs, each on its node.
func (j *verbsJob) begin(room *room, nodes [2]int, programs [2][]string) {
	j.t.Helper()
	j.start(room, nodes, func(rank int) []string {
		return append([]string{"--ranks", "2", "--dir", j.checkpoints(), "--"}, programs[rank]...)
	})
}

// goOn continues them from what has been saved.
func (j *verbsJob) goOn(room *room, nodes [2]int) {
	j.t.Helper()
	j.start(room, nodes, func(int) []string { return []string{"--restart", j.checkpoints()} })
}

func (j *verbsJob) start(room *room, nodes [2]int, ckptrun func(rank int) []string) {
	j.t.Helper()
	for r, run := range j.run {
		env := append([]string{"env", fmt.Sprint("CKPT_RANK=", r), "CKPT_SIZE=2", "CKPT_VERBS=tcp"}, j.env[r]...)
		argv := append(append(env, built.CkptRun()), ckptrun(r)...)
		var err error
		j.p[r], err = run.Start(j.mark, room.on(nodes[r], argv...)...)
		must(j.t, err)
	}
}

func (j *verbsJob) said() string {
	all := ""
	for _, run := range j.run {
		all += string(mustRead(j.t, run.Stdout)) + string(mustRead(j.t, run.Stderr))
	}
	return all
}

// save saves and ends the job, which can be reached on this node.
func (j *verbsJob) save(room *room, node int) {
	j.t.Helper()
	ctl := func(argv ...string) (Exit, string) {
		dir, err := os.MkdirTemp(j.dir, "ctl")
		must(j.t, err)
		run, err := NewRun(dir)
		must(j.t, err)
		must(j.t, run.Once(checkpointLimit, room.on(node, append([]string{built.CkptCtl()}, argv...)...)...))
		return run.Exit, string(mustRead(j.t, run.Stdout)) + string(mustRead(j.t, run.Stderr))
	}
	Poll(patience, nil, func() bool {
		exit, said := ctl("status", j.checkpoints())
		return j.p[0].Ended() || exit == (Exit{}) && strings.Contains(said, "runs")
	})
	if exit, said := ctl("checkpoint", j.checkpoints(), "--then", "kill", "--timeout", "2m"); exit != (Exit{}) {
		j.t.Fatalf("%v: %s\n%s", exit, said, j.said())
	}
	for _, p := range j.p {
		if _, err := p.Wait(mpiLimit); err != nil {
			j.t.Fatalf("%v\n%s", err, j.said())
		}
	}
}

// A job on verbs is saved on two nodes, continued on one of them, and saved and continued on two again. What was under way
// when it was saved first arrives, once, when it may go on.
func TestNodesVerbs(t *testing.T) {
	needNodes(t)
	j := newVerbsJob(t, "edges", "-libverbs")
	here := newRoom(t, j.dir, 3)
	meet := filepath.Join(j.dir, "meet")
	program := []string{filepath.Join(j.dir, "edges"), "late", meet}
	j.begin(here, [2]int{1, 2}, [2][]string{program, program})
	if !Poll(patience, nil, func() bool { return strings.Count(j.said(), ": ready\n") == 2 }) {
		t.Fatalf("it is not ready: %s", j.said())
	}
	at := 1
	for _, nodes := range [][2]int{{2, 2}, {3, 2}} {
		j.save(here, at)
		j.goOn(here, nodes)
		at = nodes[0]
	}
	must(t, os.WriteFile(filepath.Join(meet, "go"), nil, 0o644))
	j.ends()
	if n := strings.Count(j.said(), ": right\n"); n != 2 {
		t.Errorf("%d of 2 ranks say that all was right: %s", n, j.said())
	}
}

// ends waits for an end that is good on both nodes.
func (j *verbsJob) ends() {
	j.t.Helper()
	for r, p := range j.p {
		exit, err := p.Wait(mpiLimit)
		must(j.t, err)
		if exit != (Exit{}) {
			j.t.Errorf("rank %d: %v: %s", r, exit, j.said())
		}
	}
}

// Two nodes are connected by librdmacm. They are saved before they have sent anything, continued on one node, and saved and
// continued on two others: the connection is there, and the program finds the addresses that it began with.
func TestNodesConnections(t *testing.T) {
	needNodes(t)
	if _, err := exec.LookPath("ucmatose"); err != nil {
		needmpi.Skip(t, "no rdmacm-utils", fmt.Sprintf("%v: make setup with `test` installs it", err))
	}
	j := newVerbsJob(t, "late", "-shared", "-fPIC", "-ldl", "-libverbs")
	here := newRoom(t, j.dir, 3)
	listens, held := filepath.Join(j.dir, "listens"), filepath.Join(j.dir, "client")
	j.env[1] = []string{"LD_PRELOAD=" + filepath.Join(j.dir, "late"), "LATE_PORT=7471", "LATE_UNTIL=" + listens, "LATE_HOLD=" + held}
	server := []string{"ucmatose", "-p", "7471", "-c", "3", "-C", "20", "-S", "5000"}
	client := append(slices.Clone(server), "-s", "10.77.3.1")
	j.begin(here, [2]int{1, 2}, [2][]string{server, client})
	if !Poll(patience, nil, func() bool {
		run, err := NewRun(filepath.Join(j.dir, "ports"))
		must(t, err)
		must(t, run.Once(checkpointLimit, here.on(1, "cat", "/proc/net/tcp", "/proc/net/tcp6")...))
		return strings.Contains(string(mustRead(t, run.Stdout)), fmt.Sprintf(":%04X ", 7471))
	}) {
		t.Fatalf("the server does not listen: %s", j.said())
	}
	must(t, os.WriteFile(listens, nil, 0o644))
	if !Poll(patience, nil, func() bool { _, err := os.Stat(held + ".held"); return err == nil }) {
		t.Fatalf("the client is not connected: %s", j.said())
	}
	at := 1
	for _, nodes := range [][2]int{{2, 2}, {3, 1}} {
		j.save(here, at)
		j.goOn(here, nodes)
		at = nodes[0]
	}
	must(t, os.WriteFile(held+".go", nil, 0o644))
	j.ends()
	if n := strings.Count(j.said(), "\nreturn status 0\n"); n != 2 {
		t.Errorf("%d of 2 sides say that all was right: %s", n, j.said())
	}
	for _, when := range []string{"before", "after"} {
		if want := "late: " + when + ": from 10.77.3.2 to 10.77.3.1\n"; !strings.Contains(j.said(), want) {
			t.Errorf("the client does not say %q: %s", want, j.said())
		}
	}
}
