// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLevelsKilled: the process that raises for its node, or the one that it copies from, dies while it does, and the job
// with it. The epoch is at the level at which it was, on all nodes, and is continued from; what was half copied counts for
// nothing.
func TestLevelsKilled(t *testing.T) {
	for name, c := range map[string]struct {
		mpi, levels, fault string
		node               int
	}{
		"raising":          {"mpich", "L1:every,L2:6", "levels.write=kill:3", 1},
		"raising-rank0":    {"openmpi", "L1:every,L2:6", "levels.write=kill:3", 0},
		"partner":          {"mpich", "L1:every,L2:6", "levels.send=kill:3", 2},
		"parity":           {"openmpi", "L1:every,L3:6", "levels.write=kill:5", 3},
		"shared":           {"mpich", "L1:every,L4:6", "levels.rename=kill:1", 2},
		"before-the-level": {"mpich", "L1:every,L3:6", "levels.raise=kill:1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			d, p := heldDrift(t, c.mpi, func(d *leveledDrift) { d.nodes.env(t, c.node, "CKPT_FAULT="+c.fault) }, "--levels", c.levels)
			exit, err := p.Wait(mpiLimit) // MPICH 4.2's launcher sometimes ends with status 0 when ranks were killed
			if err != nil || strings.Contains(string(mustRead(t, d.run.Stdout)), d.want) || levelOf(d.run, driftKill) != "1" {
				t.Fatalf("%v, %v, level %q: %s", exit, err, levelOf(d.run, driftKill), mustRead(t, d.run.Stderr))
			}
			d.mark.KillAll()
			must(t, os.Remove(d.hold))
			if said := d.ends(t, []string{"--levels", "L1:every"}); strings.Contains(said, "is lost") {
				t.Errorf("says %s", said)
			}
			if left, _ := filepath.Glob(filepath.Join(d.nodes.dir, "disks/*/*/*/*/*.tmp")); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// notRaised waits until the log says that epoch 6 was not raised, and why; the job goes on, with the epoch at its level.
func (d *leveledDrift) notRaised(t *testing.T, p *Process, to, level string, words ...string) {
	t.Helper()
	what := "epoch 6 could not be raised to level " + to + "; it stays as it was"
	if !Poll(2*time.Minute, p.Done(), func() bool { return strings.Contains(string(mustRead(t, d.run.Stderr)), what) }) {
		t.Fatalf("level %q: %s", levelOf(d.run, driftKill), mustRead(t, d.run.Stderr))
	}
	said := string(mustRead(t, d.run.Stderr))
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Fatalf("want %q: %s", w, said)
		}
	}
	if !Poll(patience, p.Done(), func() bool {
		out, _ := exec.Command(built.CkptCtl(), "ls", d.run.Checkpoints()).CombinedOutput()
		return strings.Contains(string(out), words[0])
	}) {
		t.Errorf("ckptctl ls does not say %q", words[0])
	}
	if got := levelOf(d.run, driftKill); got != level {
		t.Errorf("epoch 6 is at level %s, want %s", got, level)
	}
	if p.Ended() {
		t.Fatalf("the job has ended: %s", said)
	}
}

// TestLevelsNotRaised: a disk that is full, a partner that does not answer, an image that has rotten since the commit. The
// epoch stays at its level, with the reason in the log and in ckptctl ls, and the job goes on to its end.
func TestLevelsNotRaised(t *testing.T) {
	stall := filepath.Join(t.TempDir(), "stall")
	for name, c := range map[string]struct {
		levels, to, fault, says string
		node                    int
	}{
		"full":    {"L1:every,L2:6", "2", "levels.write=enospc:4", "no space left on device", 1},
		"silent":  {"L1:every,L2:6", "2", "levels.send=stall", "node node2: ", 1},
		"rotten":  {"L1:every,L4:6", "4", "levels.raise=stall", "damaged image", 3},
		"durable": {"L1:every,L3:6", "3", "levels.sync=error", "levels.sync: injected fault", 0},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, os.WriteFile(stall, nil, 0o600))
			d, p := heldDrift(t, "mpich", func(d *leveledDrift) {
				d.nodes.env(t, c.node, "CKPT_FAULT="+c.fault, "CKPT_FAULT_STALL="+stall)
			}, "--levels", c.levels)
			if name == "rotten" {
				if !Poll(mpiLimit, p.Done(), func() bool { return levelOf(d.run, driftKill) == "1" }) {
					t.Fatalf("%s", mustRead(t, d.run.Stderr))
				}
				rot(t, d.local(t, driftKill, c.node))
				must(t, os.Remove(stall))
			}
			d.notRaised(t, p, c.to, "1", c.says)
			must(t, os.RemoveAll(stall))
			must(t, os.Remove(d.hold))
			exit, err := p.Wait(mpiLimit)
			if out := string(mustRead(t, d.run.Stdout)); err != nil || exit != (Exit{}) || out != d.want {
				t.Errorf("%v, %v: %q: %s", exit, err, out, mustRead(t, d.run.Stderr))
			}
		})
	}
}

// TestLevelsDisk: the disk of a node has room for its images and for copies, and becomes full while parities are written.
// The epoch stays at level 2, which is enough for the nodes that are lost then.
func TestLevelsDisk(t *testing.T) {
	d, p := heldDrift(t, "mpich", func(d *leveledDrift) { smallDisk(t, d.nodes.disk(1), 34<<20) }, "--levels", "L1:every,L2:6,L3:6", "--keep", "2")
	d.notRaised(t, p, "3", "2", "no space left on device")
	d.killed(t, p)
	d.nodes.lose(t, 0, 2)
	d.ends(t, []string{"--levels", "L1:every"}, "rank-00000.ckpt copied from node node1")
}

// TestLevelsTooManyLost: more nodes of a group are lost than parities bear: an older epoch in the checkpoint directory is
// taken, and the user is told of both.
func TestLevelsTooManyLost(t *testing.T) {
	j := killedDrift(t, "mpich", "3", "--keep", "6", "--levels", "L1:every,L3:6,L4:4")
	j.nodes.lose(t, 0, 1, 3)
	j.ends(t, []string{"--levels", "L1:every"}, "epoch 6 is lost: rank-00000.ckpt, rank-00001.ckpt, rank-00003.ckpt (of node node0, node1, node3) on no node of the job, and 2 of the 4 shards that are needed to compute what is missing are left (level 3)",
		"epoch 5 is lost: ", "; taken instead: epoch 4 (level 4), whose images are all there")
}

// TestLevelsWhole: a runtime that is saved with its program, on nodes of one rank each.
func TestLevelsWhole(t *testing.T) {
	const steps, every = 1000, 50
	native := relayNatively(t, steps, every)
	for _, launcher := range []string{"shell", "mpich", "openmpi"} {
		t.Run(launcher, func(t *testing.T) {
			w, local := newWhole(t, steps, every), t.TempDir()
			w.Env = []string{"CKPT_NODE_SIZE=1"}
			must(t, w.Start(launcher, "--local", local, "--levels", "L1:every,L3:2"))
			if !Poll(wholeLimit, nil, func() bool {
				e, err := w.Epoch()
				return err == nil && e > 1 && manifestLevel(w.Run.Checkpoints(), e&^1) == "3" || w.Ended()
			}) || w.Ended() {
				t.Fatalf("no epoch is at level 3\n%s", w.Said())
			}
			must(t, w.Kill(wholeLimit, true))
			for _, node := range []string{"node0", "node3"} {
				must(t, os.RemoveAll(filepath.Join(local, node)))
			}
			must(t, w.Restart(launcher, "--local", local, "--levels", "L1:every,L3:2"))
			must(t, w.MustEnd(wholeLimit))
			must(t, w.Same(native)) // without the disks of two nodes of the group
		})
	}
}
