// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// leveledNamed is a program that names its state, on nodes of one rank each.
type leveledNamed struct {
	*namedJob
	nodes *nodes
	dir   string
}

func newLeveledNamed(t *testing.T, mpi string, count int) *leveledNamed {
	t.Helper()
	needCommands(t)
	return &leveledNamed{newNamedJob(t, "plate", mpi), newNodes(t, count, 1), filepath.Join(t.TempDir(), "ckpt")}
}

// run runs it to its end.
func (j *leveledNamed) run(t *testing.T, ranks int, argv ...string) (Exit, string, string) {
	t.Helper()
	all := append(slices.Clone(j.launcher), strconv.Itoa(ranks), "env", "CKPT_LOG=warn", "CKPT_DIR="+j.dir, "CKPT_LOCAL="+j.nodes.local())
	return again(t, append(all, j.nodes.argv(append([]string{j.program}, argv...)...)...)...)
}

// goes is run for what ends well; it wants words in what is printed and said.
func (j *leveledNamed) goes(t *testing.T, ranks int, argv string, words ...string) string {
	t.Helper()
	exit, out, said := j.run(t, ranks, strings.Fields(argv)...)
	if exit != (Exit{}) {
		t.Fatalf("%d ranks, %s: %v\n%s%s", ranks, argv, exit, out, said)
	}
	for _, w := range words {
		if !strings.Contains(out+said, w) {
			t.Errorf("%d ranks, %s: want %q:\n%s%s", ranks, argv, w, out, said)
		}
	}
	return out
}

func (j *leveledNamed) level(epoch int) string { return manifestLevel(j.dir, epoch) }

// TestLevelsNamed: the program says how far each epoch is raised (MPIX_Checkpoint_level), and ends when it is. After
// nodes are lost a plain start goes on, with as many ranks or with fewer. When too many are lost, an older epoch is
// loaded, and the program is told.
func TestLevelsNamed(t *testing.T) {
	for _, mpi := range []string{"mpich", "openmpi"} {
		want := ""
		for _, c := range []struct {
			level, says string
			lose        []int
		}{
			{"1", "", nil},
			{"2", "copied from node", []int{0, 2}},
			{"3", "computed from parities", []int{1, 2}},
			{"4", "", []int{0, 1, 2, 3}},
		} {
			t.Run(mpi+"/"+c.level, func(t *testing.T) {
				j := newLeveledNamed(t, mpi, 4)
				if want == "" {
					want = endOf(j.must(t, 1, t.TempDir()+"/none", "30", "0"))
				}
				words := " 5 spread level" + c.level
				j.goes(t, 4, "10"+words, "fresh at 0\n")
				if got := j.level(2); got != c.level {
					t.Fatalf("epoch 2 is at level %q, want %s", got, c.level)
				}
				j.nodes.lose(t, c.lose...)
				j.goes(t, 4, "20"+words, "restart at 10\n", c.says)
				if c.level == "1" {
					j.goes(t, 4, "30"+words, "restart at 20\n", want)
					return
				}
				j.nodes.lose(t, 1, 3)
				j.goes(t, 3, "30"+words, "restart at 20\n", c.says, want)
			})
		}
	}
}

// TestLevelsNamedLost: two neighbours of a group are lost, and with them an epoch at level 2: the one at level 4 is
// loaded, and the program is told which was lost. The next start says no word of it. Where none is left the program is told that, and nothing
// is taken for a fresh start.
func TestLevelsNamedLost(t *testing.T) {
	j := newLeveledNamed(t, "mpich", 4)
	j.goes(t, 4, "10 10 level4", "fresh at 0\n")
	j.goes(t, 4, "20 10 level2", "restart at 10\n")
	j.nodes.lose(t, 1, 2)
	j.goes(t, 4, "20 0", "lost: epoch 2 cannot be loaded (rank-00001.ckpt (of node node1) on no node of the job, and neither is a copy (level 2))", "epoch 1 was taken\nrestart at 10\n")
	if out := j.goes(t, 4, "20 10 level1", "restart at 10\n"); strings.Contains(out, "lost") {
		t.Errorf("says again: %s", out)
	}
	if err := os.RemoveAll(filepath.Join(j.dir, "epoch-000001")); err != nil {
		t.Fatal(err)
	}
	j.nodes.lose(t, 0)
	exit, out, said := j.run(t, 4, "20", "0")
	if exit == (Exit{}) || !strings.Contains(said, "epoch 3 cannot be loaded (rank-00000.ckpt (of node node0) on no node of the job, and there are no copies (level 1))") || !strings.Contains(said, "there is no other one") {
		t.Errorf("%v: %s%s", exit, out, said)
	}
}

// TestLevelsCommands: what ckptctl says of images in local directories, where it sees them and where it does not.
func TestLevelsCommands(t *testing.T) {
	j := newLeveledNamed(t, "mpich", 2)
	j.goes(t, 2, "10 10 spread level2")
	elsewhere := "rank-00001.ckpt is in the local directory of node node1; there, `CKPT_LOCAL=" + j.nodes.local() + " ckptctl ...` reads it"
	exported, copied := filepath.Join(t.TempDir(), "exported"), filepath.Join(t.TempDir(), "copied")
	for _, c := range []struct {
		local, argv string
		exit        int
		words       []string
	}{
		{"", "verify", 1, []string{"rank-00000.ckpt: NOT HERE: ", "rank-00001.ckpt: NOT HERE: ", elsewhere, "2 of 2 images are not here, and were not checked"}},
		{j.nodes.disk(0), "verify", 0, []string{"rank-00000.ckpt: sound", "rank-00001.ckpt: sound", "all sound"}}, // the partner's copy
		{"", "export --out " + exported + " --rank 1", 1, []string{elsewhere}},
		{j.nodes.disk(1), "export --out " + exported + " --rank 1", 0, []string{"rank-00001-"}},
		{j.nodes.disk(0), "inspect --tree", 0, []string{"rank 0"}},
		{"", "copy", 1, []string{"image of rank 0, rank-00000.ckpt, is missing", "in the local directory of node node0", "image of rank 1, rank-00001.ckpt, is missing", elsewhere}},
		{j.nodes.disk(0), "copy", 0, []string{"epoch 1: 2 files", "goes on from epoch 1"}},
		{j.nodes.disk(0), "copy", 0, []string{"epoch 1: is there already"}},
		{"/nowhere", "du", 0, []string{"LOCAL", "epoch 1: 2 images, ", "are not here: they were written on nodes node0, node1"}},
		{j.nodes.disk(0), "du", 0, []string{"LOCAL", " in local directories here; "}},
		{"", "status", 1, []string{"start the program again as before, with CKPT_DIR=" + j.dir + ": it goes on from epoch 1"}},
	} {
		words := strings.Fields(c.argv)
		argv := append([]string{"env", "CKPT_LOCAL=" + c.local, built.CkptCtl(), words[0], j.dir}, words[1:]...)
		if words[0] == "copy" {
			argv = append(argv, copied)
		}
		exit, out, said := again(t, argv...)
		for _, w := range c.words {
			if exit.Code != c.exit || !strings.Contains(out+said, w) {
				t.Errorf("%v, CKPT_LOCAL=%s: %v: want %q:\n%s%s", words, c.local, exit, w, out, said)
			}
		}
	}
	if exit, out, said := again(t, built.CkptCtl(), "verify", copied); exit != (Exit{}) || !strings.Contains(out, "all sound") {
		t.Errorf("the copy: %v: %s%s", exit, out, said)
	}
	if exit, out, said := again(t, built.CkptCtl(), "ls", copied); exit != (Exit{}) || !strings.Contains(out, "L1+2+4") {
		t.Errorf("the copy: %v: %s%s", exit, out, said)
	}
	// Where it was written is gone; the copy is all there is.
	j.nodes.lose(t, 0, 1)
	j.dir = copied
	if exit, out, said := j.run(t, 2, "10", "0"); exit != (Exit{}) {
		t.Errorf("continued from the copy: %v: %s%s", exit, out, said)
	}
}

// TestLevelsNamedRefused: levels without a local directory, and numbers that are none.
func TestLevelsNamedRefused(t *testing.T) {
	j, dir := newNamedJob(t, "plate", ""), filepath.Join(t.TempDir(), "ckpt")
	for level, want := range map[string]string{
		"1": "level 1 is not there without a local directory of each node: set CKPT_LOCAL",
		"9": "there is no level 9: levels are 1 to 4",
	} {
		exit, out, said := again(t, append([]string{"env", "CKPT_LEVEL=" + level}, j.argv(1, dir, "10", "5")...)...)
		if exit == (Exit{}) || !strings.Contains(said, want) {
			t.Errorf("CKPT_LEVEL=%s: %v: %s%s", level, exit, out, said)
		}
	}
	if exit, out, said := j.once(t, 1, dir, "10", "5", "level2"); exit == (Exit{}) || !strings.Contains(said, "level 2 is not there without") {
		t.Errorf("level2: %v: %s%s", exit, out, said)
	}
	// One node has no partner: what is to survive its loss goes to the directory.
	local := t.TempDir()
	if exit, out, said := again(t, append([]string{"env", "CKPT_LOCAL=" + local}, j.argv(1, dir, "10", "5", "level2")...)...); exit != (Exit{}) || manifestLevel(dir, 2) != "4" {
		t.Errorf("one node, level 2: %v, level %q: %s%s", exit, manifestLevel(dir, 2), out, said)
	}
}
