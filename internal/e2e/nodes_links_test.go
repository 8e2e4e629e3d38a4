// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A node's links are cut in the middle of a checkpoint, while its rank stands in a phase, and come back: nobody was told of
// either. The rank goes on while the node is cut off; the epoch is committed when the links are there again, and the job
// goes on, to the right result. Files are shared by other means, so they can be reached all the time.
func TestNodesCut(t *testing.T) {
	needNodes(t)
	for i, c := range []struct {
		node  int // rank 0 is on the first one
		fault string
	}{
		{3, "stage.agree"},
		{1, "stage.drain"},
		{3, "stage.drain"},
		{3, "stage.snapshot"},
		{1, "stage.write"},
		{3, "image.write.rename"},
	} {
		mpi := mpis[i%len(mpis)]
		t.Run(fmt.Sprintf("node%d %s %s", c.node, c.fault, mpi), func(t *testing.T) {
			// UCX takes a peer for dead that does not answer for some seconds.
			t.Setenv("UCX_TCP_KEEPIDLE", "inf")
			t.Setenv("UCX_KEEPALIVE_INTERVAL", "inf")
			a := newAwaits(t, mpi)
			r := newRoom(t, a.run.Dir, 3)
			ckptrun := filepath.Join(built.Root, "build/obj/faults/bin/ckptrun")
			p := a.launch(r, map[int]int{1: 1, 2: 1, 3: 1}, faulty(c.node-1, c.fault+"=stop:1",
				append([]string{ckptrun, "--dir", a.run.Checkpoints(), "--"}, a.argv...)...)...)
			a.stands(p)
			asked, err := NewRun(t.TempDir())
			must(t, err)
			mark := NewMark()
			t.Cleanup(mark.KillAll)
			ctl, err := asked.Start(mark, r.on(0, built.CkptCtl(), "checkpoint", a.run.Checkpoints(), "--timeout", checkpointLimit.String())...)
			must(t, err)
			if !Poll(mpiLimit, p.Done(), a.stopped) {
				t.Fatalf("it has not come to %s\n%s", c.fault, mustRead(t, a.run.Stderr))
			}
			r.do("cut", c.node)
			for _, pid := range a.mark.Processes() {
				_ = syscall.Kill(pid, syscall.SIGCONT) // those that stand
			}
			time.Sleep(2 * time.Second) // there is nothing to see while packets are lost
			if ctl.Ended() {
				t.Errorf("ckptctl was answered through a link that is cut: %s", mustRead(t, asked.Stderr))
			}
			r.do("join", c.node)
			exit, err := ctl.Wait(checkpointLimit)
			if err != nil {
				t.Fatalf("%v\n%s", err, mustRead(t, a.run.Stderr))
			}
			if exit != (Exit{}) || a.newest(t) != 1 {
				t.Errorf("ckptctl checkpoint: %v, newest epoch %d: %s\n%s", exit, a.newest(t), mustRead(t, asked.Stderr), mustRead(t, a.run.Stderr))
			}
			// It runs on, is saved once more, and goes on from there.
			a.save(r, p, "kill")
			a.letGo()
			a.ends(a.restart(r, map[int]int{1: 1, 2: 1, 3: 1}, "--lease", "2s"), 3)
		})
	}
}

// Between the nodes there is nothing but IPv6: a job of srun over three nodes is saved and continues on two. What an MPI
// cannot do there without libckpt is skipped with what it says.
func TestNodesIPv6(t *testing.T) {
	shared := t.TempDir()
	s := newSlurm(t, shared, 3, "--ipv6")
	t.Setenv("OMPI_MCA_btl_tcp_disable_family", "4")
	for mpi, typ := range slurmTypes {
		t.Run(mpi, func(t *testing.T) {
			s := s.in(t)
			s.needs(typ)
			step := func(a *awaits, nodes int, argv ...string) *Process {
				p, err := a.run.Start(a.mark, s.command([]string{"CKPT_LEASE=2s"}, append([]string{"srun", "--mpi=" + typ, "-N", fmt.Sprint(nodes), "-n4"}, argv...)...)...)
				must(t, err)
				return p
			}
			native := newAwaitsIn(t, mpi, shared)
			native.letGo()
			p := step(native, 3, native.argv...)
			// MPICH 4.0 computes, and then may never end by itself; above it ckptrun sees to that.
			computed := Poll(patience, p.Done(), func() bool { _, err := os.Stat(native.file("result")); return err == nil })
			// Slurm ends it: a srun that is killed leaves its job, and the job the processors.
			s.says("scancel", "--user=root")
			if !Poll(patience, nil, func() bool { return s.says("squeue", "--noheader") == "" }) {
				t.Fatalf("the native job does not end: %s\n%s", s.says("squeue"), s.logs())
			}
			native.mark.KillAll()
			if _, err := p.Wait(patience); err != nil {
				t.Fatal(err)
			}
			if !computed {
				t.Skipf("%s itself does not run with IPv6 alone: %.600s", mpi, mustRead(t, native.run.Stderr))
			}
			a := newAwaitsIn(t, mpi, shared)
			p = step(a, 3, append([]string{built.CkptRun(), "--dir", a.run.Checkpoints(), "--"}, a.argv...)...)
			a.stands(p)
			a.save(s.room, p, "kill")
			if got := a.hosts(s.room); len(got) != 3 {
				t.Errorf("saved on %v", got)
			}
			a.letGo()
			a.ends(step(a, 2, built.CkptRun(), "--restart", a.run.Checkpoints()), 4)
		})
	}
}

// Clocks that count from the start differ by days between nodes, and jump when a job continues on another one.
func TestNodesUptime(t *testing.T) {
	needNodes(t)
	for _, mpi := range mpis {
		t.Run(mpi, func(t *testing.T) {
			a := newAwaits(t, mpi)
			r := newRoom(t, a.run.Dir, 4, "--uptime", "1=864000", "--uptime", "3=40")
			uptime := func(node int) string {
				argv := r.on(node, "cat", "/proc/uptime")
				out, err := exec.Command(argv[0], argv[1:]...).Output()
				must(t, err)
				return strings.Fields(string(out))[0]
			}
			if ahead, behind := uptime(1), uptime(2); len(ahead) <= len(behind) {
				t.Fatalf("node 1 is up for %s s, node 2 for %s s", ahead, behind)
			}
			p := a.start(r, map[int]int{1: 1, 2: 1, 3: 1}, "--interval", "2s")
			a.stands(p)
			if !Poll(mpiLimit, p.Done(), func() bool { return a.newest(t) >= 2 }) {
				t.Fatalf("--interval makes no epochs: %s", mustRead(t, a.run.Stderr))
			}
			a.save(r, p, "kill")
			// From the node that is ahead to one that is behind, and back.
			p = a.restart(r, map[int]int{2: 2, 4: 1}, "--lease", "2s", "--interval", "2s")
			before := a.newest(t)
			if !Poll(mpiLimit, p.Done(), func() bool { return a.newest(t) > before }) {
				t.Fatalf("--interval makes no epochs after the restart: %s", mustRead(t, a.run.Stderr))
			}
			a.save(r, p, "kill")
			a.letGo()
			a.ends(a.restart(r, map[int]int{1: 2, 3: 1}, "--lease", "2s"), 3)
		})
	}
}

// A job of Slurm leaves no ranks behind, whatever of it is killed: a rank, or srun. What it had saved continues.
func TestSlurmOrphans(t *testing.T) {
	shared := t.TempDir()
	s := newSlurm(t, shared, 3)
	for mpi, typ := range slurmTypes {
		for _, what := range []string{"rank", "srun"} {
			t.Run(mpi+" "+what, func(t *testing.T) {
				s := s.in(t)
				s.needs(typ)
				a := newAwaitsIn(t, mpi, shared)
				id := s.batch(a, typ, "--nodes=3", "--ntasks=3", "--time=30")
				s.standsIn(a, id)
				s.saved(a)
				ranks := a.mark.Ranks()
				if len(ranks) != 3 {
					t.Fatalf("%d ranks", len(ranks))
				}
				switch what {
				case "rank":
					must(t, syscall.Kill(ranks[1], syscall.SIGKILL))
				case "srun":
					killed := 0
					for _, pid := range a.mark.Processes() {
						if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && filepath.Base(exe) == "srun" {
							must(t, syscall.Kill(pid, syscall.SIGKILL))
							killed++
						}
					}
					if killed == 0 {
						t.Fatalf("no srun: %s", Dump(a.mark.Processes()))
					}
				}
				s.until(a, id, "ended", func(state string, _ int, _ []string) bool {
					return state == "FAILED" || state == "COMPLETED" || state == "CANCELLED" || state == "NODE_FAIL"
				})
				if !Poll(mpiLimit, nil, func() bool { return len(a.mark.Ranks()) == 0 }) {
					t.Fatalf("ranks are left: %s", Dump(a.mark.Ranks()))
				}
				a.letGo()
				s.completed(a, s.batch(a, typ, "--nodes=2", "--ntasks=3", "--time=30"), 3)
			})
		}
	}
}
