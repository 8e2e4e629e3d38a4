// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// verbsJob is a job of two processes on InfiniBand verbs, over TCP, each on a node.
type verbsJob struct {
	t    *testing.T
	dir  string
	mark Mark
	run  [2]*Run
	p    [2]*Process
}

func newVerbsJob(t *testing.T) *verbsJob {
	t.Helper()
	j := &verbsJob{t: t, dir: t.TempDir(), mark: NewMark()}
	t.Cleanup(j.mark.KillAll)
	sources, err := filepath.Glob(filepath.Join(built.Root, "internal/e2e/verbs/programs/edges/*.c"))
	must(t, err)
	argv := append([]string{"-std=gnu11", "-O2", "-pthread", "-o", filepath.Join(j.dir, "edges")}, append(sources, "-libverbs")...)
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

// start runs each process on its node: the program, or what has been saved of it.
func (j *verbsJob) start(room *room, nodes [2]int, ckptrun ...string) {
	j.t.Helper()
	for r, run := range j.run {
		argv := append([]string{"env", fmt.Sprint("CKPT_RANK=", r), "CKPT_SIZE=2", "CKPT_VERBS=tcp", built.CkptRun()}, ckptrun...)
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
	j := newVerbsJob(t)
	here := newRoom(t, j.dir, 3)
	meet := filepath.Join(j.dir, "meet")
	program := []string{filepath.Join(j.dir, "edges"), "late", meet}
	j.start(here, [2]int{1, 2}, append([]string{"--ranks", "2", "--dir", j.checkpoints(), "--"}, program...)...)
	if !Poll(patience, nil, func() bool { return strings.Count(j.said(), ": ready\n") == 2 }) {
		t.Fatalf("it is not ready: %s", j.said())
	}
	at := 1
	for _, nodes := range [][2]int{{2, 2}, {3, 2}} {
		j.save(here, at)
		j.start(here, nodes, "--restart", j.checkpoints())
		at = nodes[0]
	}
	must(t, os.WriteFile(filepath.Join(meet, "go"), nil, 0o644))
	for r, p := range j.p {
		exit, err := p.Wait(mpiLimit)
		must(t, err)
		if exit != (Exit{}) {
			t.Errorf("rank %d: %v", r, exit)
		}
	}
	if n := strings.Count(j.said(), ": right\n"); n != 2 {
		t.Errorf("%d of 2 ranks say that all was right: %s", n, j.said())
	}
}
