// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// nodes are mount namespaces in which the local directory is that of one node: what another node has cannot be opened
// by a path.
type nodes struct {
	dir     string
	perNode int
}

// needNamespaces skips where none can be made.
func needNamespaces(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("unshare", "-m", "true").CombinedOutput(); err != nil {
		t.Skipf("no mount namespaces here (%v: %s): nodes on one machine are not tested", err, out)
	}
}

func newNodes(t *testing.T, count, perNode int) *nodes {
	t.Helper()
	needNamespaces(t)
	n := &nodes{t.TempDir(), perNode}
	if err := os.MkdirAll(n.local(), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		if err := os.MkdirAll(n.disk(i), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// local is where each node sees its own disk; disk is that of a node, as the test sees it.
func (n *nodes) local() string     { return filepath.Join(n.dir, "local") }
func (n *nodes) disk(i int) string { return filepath.Join(n.dir, "disks", strconv.Itoa(i)) }

// argv runs a command of each rank on its node.
func (n *nodes) argv(argv ...string) []string {
	const script = `rank=${PMI_RANK-$OMPI_COMM_WORLD_RANK}; node=$((rank / $1))
[ ! -e "$0/env-$node" ] || . "$0/env-$node"
mount --bind "$0/disks/$node" "$0/local" && mount -t tmpfs none "$0/disks" && shift && exec "$@"`
	return append([]string{"env", fmt.Sprintf("CKPT_NODE_SIZE=%d", n.perNode), "unshare", "-m", "/bin/sh", "-c", script, n.dir, strconv.Itoa(n.perNode)}, argv...)
}

// env sets variables of the processes of a node; none takes them back.
func (n *nodes) env(t *testing.T, node int, list ...string) {
	t.Helper()
	text := ""
	for _, v := range list {
		text += "export " + v + "\n"
	}
	must(t, os.WriteFile(filepath.Join(n.dir, fmt.Sprint("env-", node)), []byte(text), 0o600))
}

// lose empties the disks of nodes.
func (n *nodes) lose(t *testing.T, list ...int) {
	t.Helper()
	for _, i := range list {
		if err := errors.Join(os.RemoveAll(n.disk(i)), os.Mkdir(n.disk(i), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
}

// levelOf is the highest level of an epoch, by its manifest.
func levelOf(run *Run, epoch int) string { return manifestLevel(run.Checkpoints(), epoch) }

func manifestLevel(dir string, epoch int) string {
	text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("epoch-%06d", epoch), "manifest.json"))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(text), "\n  \"level\": ")
	level, _, _ := strings.Cut(after, ",")
	return level
}

// leveledJob runs the ring under one MPI on 4 nodes of one rank each.
type leveledJob struct {
	run   *Run
	mark  Mark
	nodes *nodes
	mpi   string
	stop  string
}

func newLeveled(t *testing.T, mpi string) *leveledJob {
	t.Helper()
	needCommands(t)
	run, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	j := &leveledJob{run: run, mark: NewMark(), nodes: newNodes(t, 4, 1), mpi: mpi, stop: filepath.Join(run.Dir, "stop")}
	t.Cleanup(j.mark.KillAll)
	return j
}

func (j *leveledJob) launch(t *testing.T, argv ...string) *Process {
	t.Helper()
	all := append(append([]string{}, launchers[j.mpi]...), "-n", "4")
	if j.mpi == "openmpi" {
		all = append(all, "--allow-run-as-root")
	}
	p, err := j.run.Start(j.mark, append(all, j.nodes.argv(argv...)...)...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (j *leveledJob) start(t *testing.T, program, levels string) *Process {
	t.Helper()
	return j.launch(t, built.CkptRun(), "--local", j.nodes.local(), "--levels", levels, "--dir", j.run.Checkpoints(), "--log", "info", "--", program, j.stop)
}

func (j *leveledJob) restart(t *testing.T) *Process {
	t.Helper()
	return j.launch(t, built.CkptRun(), "--local", j.nodes.local(), "--levels", "L1:every", "--restart", j.run.Checkpoints())
}

// save makes an epoch and waits until it has the level.
func (j *leveledJob) save(t *testing.T, p *Process, epoch int, level string) {
	t.Helper()
	chain := Chain{Run: j.run, Built: built}
	if !Poll(patience, p.Done(), func() bool {
		_, err := os.Stat(filepath.Join(j.run.Checkpoints(), "job.json"))
		return err == nil
	}) {
		t.Fatalf("the job does not tell of itself\n%s\n%s", mustRead(t, j.run.Stderr), Dump(j.mark.Processes()))
	}
	if exit, said := checkpoint(t, j.run, j.mark, fmt.Sprint("save-", epoch), "continue"); exit != (Exit{}) {
		t.Fatalf("checkpoint: %v: %s\n%s", exit, said, mustRead(t, j.run.Stderr))
	}
	if n, err := chain.epochs(); n != epoch || err != nil {
		t.Fatalf("epoch %d, %v, want %d", n, err, epoch)
	}
	if !Poll(patience, p.Done(), func() bool { return levelOf(j.run, epoch) == level }) {
		t.Fatalf("epoch %d is at level %q, want %s\n%s", epoch, levelOf(j.run, epoch), level, mustRead(t, j.run.Stderr))
	}
}

// kill is kill -9 for every rank.
func (j *leveledJob) kill(t *testing.T, p *Process) {
	t.Helper()
	for _, pid := range j.mark.Ranks() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have come to its end
	}
	if _, err := p.Wait(patience); err != nil {
		t.Fatal(err)
	}
	if err := noneLeft(j.mark); err != nil {
		t.Fatal(err)
	}
}

// TestLevels saves a job on four nodes at each level, kills it with kill -9, loses what the level survives, and continues
// it to its end. Then it loses one node too many: an older epoch is taken, and the user is told.
func TestLevels(t *testing.T) {
	for _, mpi := range []string{"mpich", "openmpi"} {
		for _, c := range []struct {
			name, levels, level string
			lose                []int
			says                string
		}{
			{"local", "L1:every", "1", nil, ""},
			{"partner", "L1:every,L2:2", "2", []int{0, 2}, "copied from node"},
			{"coded", "L1:every,L3:2", "3", []int{1, 2}, "computed from parities"},
			{"shared", "L1:every,L4:2", "4", []int{0, 1, 2, 3}, ""},
		} {
			t.Run(mpi+"/"+c.name, func(t *testing.T) {
				j := newLeveled(t, mpi)
				p := j.start(t, buildMPI(t, mpi, "ring"), c.levels)
				j.save(t, p, 1, "1")
				j.save(t, p, 2, c.level)
				j.kill(t, p)
				j.nodes.lose(t, c.lose...)
				p = j.restart(t)
				if err := os.WriteFile(j.stop, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				exit, err := p.Wait(patience)
				said := string(mustRead(t, j.run.Stderr))
				if err != nil || exit != (Exit{}) || !strings.Contains(said, c.says) {
					t.Fatalf("%v, %v\n%s", exit, err, said)
				}
				if out := string(mustRead(t, j.run.Stdout)); !strings.Contains(out, "done") {
					t.Errorf("printed %q", out)
				}
				if strings.Contains(said, "is lost") {
					t.Errorf("says %s", said)
				}
			})
		}
	}
}
