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

// leveledDrift is programs/drift.c on four nodes.
type leveledDrift struct {
	*leveledJob
	want string // what it prints in the end
	hold string // the file that holds it
}

// killedDrift runs it until its last epoch before the hold has the level, and kills it.
func killedDrift(t *testing.T, mpi, level string, options ...string) *leveledDrift {
	t.Helper()
	return killedDriftOn(t, mpi, 1, level, options...)
}

// killedDriftOn is killedDrift with so many ranks on a node.
func killedDriftOn(t *testing.T, mpi string, perNode int, level string, options ...string) *leveledDrift {
	t.Helper()
	d, p := heldDriftOn(t, mpi, perNode, nil, options...)
	if !Poll(mpiLimit, p.Done(), func() bool { return levelOf(d.run, driftKill) == level }) {
		t.Fatalf("epoch %d is at level %q\n%s", driftKill, levelOf(d.run, driftKill), mustRead(t, d.run.Stderr))
	}
	d.killed(t, p)
	return d
}

// heldDrift runs it up to the hold. faults prepares a job of the build with faults; nil: the other build is run.
func heldDrift(t *testing.T, mpi string, faults func(d *leveledDrift), options ...string) (*leveledDrift, *Process) {
	t.Helper()
	return heldDriftOn(t, mpi, 1, faults, options...)
}

func heldDriftOn(t *testing.T, mpi string, perNode int, faults func(d *leveledDrift), options ...string) (*leveledDrift, *Process) {
	t.Helper()
	d := &leveledDrift{leveledJob: newLeveled(t, mpi), hold: filepath.Join(t.TempDir(), "hold")}
	d.nodes.perNode = perNode
	program, ckptrun := buildMPI(t, mpi, "drift"), built.CkptRun()
	if faults != nil {
		ckptrun = filepath.Join(built.Root, "build/obj/faults/bin/ckptrun")
		faults(d)
	}
	native := startMPI(t, mpi, 4, func(*Run) []string { return []string{program, strconv.Itoa(driftSteps), "5"} })
	native.mustEnd(t)
	if err := os.WriteFile(d.hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.want = string(mustRead(t, native.run.Stdout))
	argv := append([]string{ckptrun, "--local", d.nodes.local(), "--dir", d.run.Checkpoints()}, options...)
	return d, d.launch(t, append(argv, "--", program, strconv.Itoa(driftSteps), "5", strconv.Itoa(driftKill-1), d.hold)...)
}

// killed is kill -9 for all ranks; what is started next is held no more.
func (d *leveledDrift) killed(t *testing.T, p *Process) {
	t.Helper()
	d.kill(t, p)
	must(t, os.Remove(d.hold))
}

// ends restarts it, wants it to come to its end with the right result, and words in what is said.
func (d *leveledDrift) ends(t *testing.T, options []string, words ...string) string {
	t.Helper()
	argv := append([]string{built.CkptRun(), "--local", d.nodes.local(), "--restart", d.run.Checkpoints()}, options...)
	p := d.launch(t, argv...)
	exit, err := p.Wait(mpiLimit)
	said := string(mustRead(t, d.run.Stderr))
	if out := string(mustRead(t, d.run.Stdout)); err != nil || exit != (Exit{}) || !strings.HasSuffix(out, d.want) { // mpiexec tells of the kill before
		t.Fatalf("%v, %v: printed %q, natively %q\n%s", exit, err, out, d.want, said)
	}
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Errorf("want %q:\n%s", w, said)
		}
	}
	return said
}

// local is the image of a rank on the disk of its node.
func (d *leveledDrift) local(t *testing.T, epoch, rank int) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(d.nodes.disk(rank), fmt.Sprintf("node%d/set-*/epoch-%06d/rank-%05d.ckpt", rank, epoch, rank)))
	if err != nil || len(list) != 1 {
		t.Fatalf("epoch %d of rank %d: %q, %v", epoch, rank, list, err)
	}
	return list[0]
}

// rot changes a byte in the middle of a file.
func rot(t *testing.T, path string) {
	t.Helper()
	b := mustRead(t, path)
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLevelsIncrements: epochs in local directories that have what changed alone. Raising one raises those that it
// needs; a restart after the loss of nodes rebuilds all of them.
func TestLevelsIncrements(t *testing.T) {
	for _, mpi := range []string{"mpich", "openmpi"} {
		for _, c := range []struct {
			name, levels, level, says string
			lose                      []int
		}{
			{"local", "L1:every", "1", "", nil},
			{"partner", "L1:every,L2:6", "2", " of epoch 5 copied from node", []int{0, 2}},
			{"coded", "L1:every,L3:6", "3", " of epoch 5 (of node node1, node2) computed from parities", []int{1, 2}},
			{"shared", "L1:every,L4:6", "4", "", []int{0, 1, 2, 3}},
		} {
			t.Run(mpi+"/"+c.name, func(t *testing.T) {
				j := killedDrift(t, mpi, c.level, "--full", "every", "4", "--levels", c.levels)
				m := string(mustRead(t, filepath.Join(j.run.Checkpoints(), "epoch-000006", "manifest.json")))
				if !strings.Contains(m, `"parent": 5`) || levelOf(j.run, 5) != c.level {
					t.Fatalf("epoch 5 is at level %s; manifest of epoch 6: %s", levelOf(j.run, 5), m)
				}
				j.nodes.lose(t, c.lose...)
				j.ends(t, []string{"--full", "every", "4"}, c.says)
				if m := string(mustRead(t, filepath.Join(j.run.Checkpoints(), "epoch-000007", "manifest.json"))); strings.Contains(m, `"parent"`) {
					t.Errorf("the first epoch of a restart is built upon one of an earlier run: %s", m)
				}
			})
		}
	}
}

// TestLevelsIncrementsLost: what an epoch needs is in the checkpoint directory, and it itself in local ones; then that is
// lost, and with it all that need it.
func TestLevelsIncrementsLost(t *testing.T) {
	j := killedDrift(t, "mpich", "1", "--full", "every", "3", "--keep", "6", "--levels", "L1:every,L4:4")
	for r := range 4 { // epoch 4 is full, and the others need it
		if err := os.Remove(j.local(t, 4, r)); err != nil {
			t.Fatal(err)
		}
	}
	j.ends(t, []string{"--levels", "L1:every"})
	j = killedDrift(t, "mpich", "1", "--full", "every", "3", "--keep", "6", "--levels", "L1:every,L4:3")
	if err := os.Remove(j.local(t, 4, 2)); err != nil {
		t.Fatal(err)
	}
	j.ends(t, []string{"--levels", "L1:every"}, "epoch 6 is lost: rank-00002.ckpt (of node node2) of epoch 4, which it needs, on no node of the job, and there are no copies (level 1)",
		"epoch 5 is lost: ", "epoch 4 is lost: ", "; taken instead: epoch 3 (level 4)")
}

// TestLevelsLazy: images that are on their nodes are not read before the program goes on. A damaged page of one ends the
// job before it is used; the same restart then gets the image from the partner.
func TestLevelsLazy(t *testing.T) {
	lazy := []string{"--restart-mode", "lazy", "--levels", "L1:every"}
	j := killedDrift(t, "mpich", "2", "--levels", "L1:every,L2:6")
	rot(t, j.local(t, 6, 1))
	p := j.launch(t, append([]string{built.CkptRun(), "--local", j.nodes.local(), "--restart", j.run.Checkpoints()}, lazy...)...)
	exit, err := p.Wait(mpiLimit)
	said := string(mustRead(t, j.run.Stderr))
	if err != nil || exit == (Exit{}) || !strings.Contains(said, "epoch-000006/rank-00001.ckpt: ") || !strings.Contains(said, "the damaged image is put aside: the same restart gets it from another level") {
		t.Fatalf("%v, %v: %s", exit, err, said)
	}
	j.ends(t, lazy, "rank-00001.ckpt copied from node node2 to node node1")
}

// TestLevelsRotten: an image that rots on its node counts as missing, as a copy does, and as a parity that does not match. The
// user is told of each; the epoch that is continued is the newest that is whole.
func TestLevelsRotten(t *testing.T) {
	eager := []string{"--restart-mode", "eager", "--levels", "L1:every"}
	for name, c := range map[string]struct {
		levels, level string
		rot           []string // at the nodes' disks
		says          []string
	}{
		"image":  {"L1:every,L2:6", "2", []string{"1/node1/*/epoch-000006/rank-00001.ckpt"}, []string{"not used: node node1: ", "rank-00001.ckpt copied from node node2"}},
		"parity": {"L1:every,L3:6", "3", []string{"1/node1/*/epoch-000006/rank-00001.ckpt", "0/node0/*/epoch-000006/parity-*"}, []string{"rank-00001.ckpt (of node node1) computed from parities", "parity-0-0.rs: digest: expected"}},
		"both": {"L1:every,L2:6", "2", []string{"1/node1/*/epoch-000006/rank-00001.ckpt", "2/node2/*/epoch-000006/rank-00001.ckpt"},
			[]string{"epoch 6 is lost: rank-00001.ckpt (of node node1) on no node of the job, and neither is a copy (level 2)", "; taken instead: epoch 5 (level 1), whose images are all there"}},
	} {
		t.Run(name, func(t *testing.T) {
			j := killedDrift(t, "mpich", c.level, "--keep", "6", "--levels", c.levels)
			for _, pattern := range c.rot {
				list, err := filepath.Glob(filepath.Join(j.nodes.dir, "disks", pattern))
				if err != nil || len(list) != 1 {
					t.Fatalf("%s: %q, %v", pattern, list, err)
				}
				rot(t, list[0])
			}
			j.ends(t, eager, c.says...)
		})
	}
}
