// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// awaits is awaits.c on nodes: a job that stands until it may go on.
type awaits struct {
	*nodesJob
	program string
	folder  string // where it looks for GO
}

const awaitsSteps = 60

// awaitsProgram compiles awaits.c for an MPI, once.
func awaitsProgram(t *testing.T, mpi string) string {
	t.Helper()
	awaitsMu.Lock()
	defer awaitsMu.Unlock()
	program := filepath.Join(built.Bin, "awaits-"+mpi)
	if _, err := os.Stat(program); err != nil {
		out, err := exec.Command("mpicc."+mpi, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-o", program, filepath.Join(built.Src, "awaits.c")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return program
}

func newAwaits(t *testing.T, mpi string) *awaits {
	t.Helper()
	j := newNodesJob(t, mpi, 1)
	a := &awaits{nodesJob: j, program: awaitsProgram(t, mpi)}
	a.in(j.run.Work())
	return a
}

func (a *awaits) in(folder string) {
	a.folder = folder
	a.argv = []string{a.program, strconv.Itoa(awaitsSteps), folder}
}

func (a *awaits) file(name string) string { return filepath.Join(a.folder, name) }

func (a *awaits) letGo() { must(a.t, os.WriteFile(a.file("GO"), nil, 0o644)) }

// stands waits until the job does.
func (a *awaits) stands(p *Process) {
	a.t.Helper()
	stop := p.Done()
	if !Poll(mpiLimit, stop, func() bool { _, err := os.Stat(a.file("stands")); return err == nil }) {
		a.t.Fatalf("it does not come to where it stands\n%s\n%s", mustRead(a.t, a.run.Stderr), Dump(a.mark.Processes()))
	}
}

// resultOf is what so many ranks compute when nothing disturbs them, natively and on this machine alone.
func resultOf(t *testing.T, ranks int) string {
	t.Helper()
	program := awaitsProgram(t, "mpich")
	awaitsMu.Lock()
	defer awaitsMu.Unlock()
	if awaitsResults[ranks] == "" {
		a := &awaits{nodesJob: newNodesJob(t, "mpich", 1)}
		a.in(a.run.Work())
		a.letGo()
		p, err := a.run.Start(a.mark, append(slices.Clone(launchers["mpich"]), "-n", strconv.Itoa(ranks), program, strconv.Itoa(awaitsSteps), a.run.Work())...)
		must(t, err)
		if exit := a.wait(t, p); exit != (Exit{}) {
			t.Fatalf("natively: %v: %s", exit, mustRead(t, a.run.Stderr))
		}
		awaitsResults[ranks] = string(mustRead(t, a.file("result")))
	}
	return awaitsResults[ranks]
}

var (
	awaitsMu      sync.Mutex
	awaitsResults = map[int]string{}
)

// ends waits for a good end and the right result.
func (a *awaits) ends(p *Process, ranks int) {
	a.t.Helper()
	if exit := a.wait(a.t, p); exit != (Exit{}) {
		a.t.Fatalf("%v: %s", exit, mustRead(a.t, a.run.Stderr))
	}
	a.mustResult(ranks)
}

func (a *awaits) mustResult(ranks int) {
	a.t.Helper()
	if got, want := string(mustRead(a.t, a.file("result"))), resultOf(a.t, ranks); got != want {
		a.t.Errorf("result %q, expected %q", got, want)
	}
}

// faulty has the program run in the tree for tests, with a fault on one rank.
func faulty(rank int, fault string, argv ...string) []string {
	const script = `if [ "${PMI_RANK-$OMPI_COMM_WORLD_RANK}" = "$0" ]; then CKPT_FAULT=$1; export CKPT_FAULT; fi; shift; exec "$@"`
	return append([]string{"/bin/sh", "-c", script, strconv.Itoa(rank), fault}, argv...)
}

// stopped is whether a process of the job, or a copy that it writes its image from, has stopped.
func (a *awaits) stopped() bool {
	return slices.ContainsFunc(a.mark.Processes(), func(pid int) bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, after, _ := strings.Cut(string(stat), ") ")
		return err == nil && strings.HasPrefix(after, "T")
	})
}

// A node vanishes in each phase of a checkpoint: its links are down, and nothing of it lives. Who asked for the
// checkpoint gets an answer; the epoch before it, or the new one where it was committed, is whole; and the job goes on
// from there on the nodes that are left.
func TestNodesVanish(t *testing.T) {
	needNodes(t)
	atOnce := make(chan bool, 3) // rooms of three nodes each
	for i, c := range []struct {
		node  int // rank 0 is on the first one
		fault string
		// committed: the new epoch exists when the node is gone.
		committed bool
	}{
		{node: 3, fault: "stage.agree"},
		{node: 3, fault: "stage.stop"},
		{node: 1, fault: "stage.drain"},
		{node: 3, fault: "stage.drain"},
		{node: 3, fault: "stage.snapshot"},
		{node: 1, fault: "stage.write"},
		{node: 3, fault: "image.write.data"},
		{node: 3, fault: "image.write.rename"},
		{node: 1, fault: "store.commit.rename"},
		{node: 3, fault: "stage.commit"},                // its image was there, but nobody had heard so
		{node: 3, fault: "stage.told", committed: true}, // it had heard of the commit
	} {
		mpi := []string{"openmpi", "mpich"}[i%2]
		t.Run(fmt.Sprintf("node%d %s %s", c.node, c.fault, mpi), func(t *testing.T) {
			t.Parallel()
			atOnce <- true
			defer func() { <-atOnce }()
			a := newAwaits(t, mpi)
			r := newRoom(t, a.run.Dir, 3)
			ckptrun := filepath.Join(built.Root, "build/obj/faults/bin/ckptrun")
			all := map[int]int{1: 1, 2: 1, 3: 1}
			p := a.launch(r, all, append([]string{ckptrun, "--dir", a.run.Checkpoints(), "--"}, a.argv...)...)
			a.stands(p)
			a.save(r, p, "kill")
			p = a.launch(r, all, faulty(c.node-1, c.fault+"=stop:1", ckptrun, "--restart", a.run.Checkpoints(), "--lease", "2s")...)
			asked, err := NewRun(t.TempDir())
			must(t, err)
			mark := NewMark()
			t.Cleanup(mark.KillAll)
			// On two busy processors an attempt may be over before it comes so far: it is asked for again.
			var ctl *Process
			for end := time.Now().Add(mpiLimit); time.Now().Before(end) && !a.stopped() && !p.Ended(); {
				ctl, err = asked.Start(mark, r.on(0, built.CkptCtl(), "checkpoint", a.run.Checkpoints(), "--timeout", "5s")...)
				must(t, err)
				if Poll(mpiLimit, ctl.Done(), a.stopped) {
					break
				}
			}
			if !a.stopped() {
				t.Fatalf("it has not come to %s\n%s", c.fault, mustRead(t, a.run.Stderr))
			}
			r.do("vanish", c.node)
			begun := time.Now()
			exit, err := ctl.Wait(checkpointLimit)
			if err != nil {
				t.Fatalf("%v\n%s", err, mustRead(t, a.run.Stderr))
			}
			t.Logf("ckptctl after %v: %v: %s", time.Since(begun).Round(time.Second/10), exit, strings.TrimSpace(string(mustRead(t, asked.Stderr))))
			if committed := exit == (Exit{}); committed != c.committed {
				t.Errorf("ckptctl checkpoint: %v: %s", exit, mustRead(t, asked.Stdout))
			}
			a.mark.KillAll() // as a batch system does, on the nodes that are left
			<-p.Done()
			if exit, said := a.ckptctl(r, "verify", a.run.Checkpoints()); exit != (Exit{}) {
				t.Errorf("ckptctl verify: %v: %s", exit, said)
			}
			if n := a.newest(t); (n > 1) != c.committed {
				t.Errorf("the newest epoch is %d, and ckptctl said %v", n, exit)
			}
			a.letGo()
			delete(all, c.node)
			all[2]++
			a.ends(a.restart(r, all, "--lease", "2s"), 3)
		})
	}
}
