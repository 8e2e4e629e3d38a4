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
	"testing"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// Slurm itself: slurmctld on the login node, slurmd on each other one (scripts/nodes-slurm.sh).

type slurm struct {
	*room
	t *testing.T
}

// newSlurm makes nodes with Slurm, or skips the test with the reason.
func newSlurm(t *testing.T, shared string, nodes int, options ...string) *slurm {
	t.Helper()
	needNodes(t)
	for _, tool := range []string{"slurmctld", "slurmd", "munged", "srun", "sbatch"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no Slurm on this machine: %v; make setup with `test` installs it", err)
		}
	}
	s := &slurm{room: newRoom(t, shared, nodes, options...), t: t}
	if out, err := exec.Command(filepath.Join(built.Root, "scripts/nodes-slurm.sh"), s.dir).CombinedOutput(); err != nil {
		t.Fatalf("nodes-slurm.sh: %v: %s", err, out)
	}
	return s
}

// in is the same for a part of the test.
func (s *slurm) in(t *testing.T) *slurm { return &slurm{room: s.room, t: t} }

// command is a command of Slurm, on the login node.
func (s *slurm) command(env []string, argv ...string) []string {
	env = append([]string{"env", "SLURM_CONF=" + filepath.Join(s.dir, "slurm/slurm.conf"), "OMPI_ALLOW_RUN_AS_ROOT=1",
		"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "PATH=" + filepath.Dir(built.CkptRun()) + ":" + os.Getenv("PATH")}, env...)
	return s.on(0, append(env, argv...)...)
}

// says runs a command of Slurm, and returns its output.
func (s *slurm) says(argv ...string) string {
	s.t.Helper()
	whole := s.command(nil, argv...)
	out, err := exec.Command(whole[0], whole[1:]...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%q: %v: %s", argv, err, out)
	}
	return strings.TrimSpace(string(out))
}

// batch submits examples/slurm/job.sh for a job, and returns its number in Slurm. LEASE is short: a job whose node is
// lost need not be waited for.
func (s *slurm) batch(a *awaits, typ string, options ...string) string {
	s.t.Helper()
	return s.batchIn(a, a.run.Checkpoints(), typ, options...)
}

// batchIn is batch in a checkpoint directory, or, where it is empty, in that of the script.
func (s *slurm) batchIn(a *awaits, dir, typ string, options ...string) string {
	s.t.Helper()
	env := []string{"SLURM_MPI_TYPE=" + typ, "CKPT_LEASE=2s", a.mark.Variable()}
	if dir != "" {
		env = append(env, "CKPT_DIR="+dir)
	}
	argv := append([]string{"sbatch", "--parsable", "--chdir=" + a.run.Work(), "--output=" + a.run.Stdout, "--error=" + a.run.Stderr}, options...)
	argv = append(append(argv, filepath.Join(built.Root, "examples/slurm/job.sh")), a.argv...)
	whole := s.command(env, argv...)
	out, err := exec.Command(whole[0], whole[1:]...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%q: %v: %s", argv, err, out)
	}
	return strings.TrimSpace(string(out))
}

// knows tells whether srun can start ranks by this interface: Debian's Slurm 26.05 is compiled without PMIx.
func (s *slurm) knows(typ string) bool {
	s.t.Helper()
	return slices.Contains(strings.Fields(s.says("srun", "--mpi=list")), typ)
}

// needs skips the test, by its name, where srun cannot.
func (s *slurm) needs(typ string) {
	s.t.Helper()
	if !s.knows(typ) {
		needmpi.Skip(s.t, "Slurm without "+typ, "srun of this Slurm knows no --mpi="+typ)
	}
}

// second is the MPI of jobs that need not be above MPICH: Open MPI, where Slurm starts its ranks.
func (s *slurm) second() string {
	if s.knows(slurmTypes["openmpi"]) {
		return "openmpi"
	}
	s.t.Log("above MPICH, as srun knows no --mpi=pmix")
	return "mpich"
}

// job is what Slurm says of a job: its state, how often it was put into the queue again, and its nodes.
func (s *slurm) job(id string) (state string, restarts int, nodes []string) {
	s.t.Helper()
	fields := map[string]string{}
	for f := range strings.FieldsSeq(s.says("scontrol", "--oneliner", "show", "job", id)) {
		name, value, _ := strings.Cut(f, "=")
		fields[name] = value
	}
	restarts, _ = strconv.Atoi(fields["Restarts"])
	if list := fields["NodeList"]; list != "" && list != "(null)" {
		nodes = strings.Fields(s.says("scontrol", "show", "hostnames", list))
	}
	return fields["JobState"], restarts, nodes
}

// until waits for what Slurm says of a job.
func (s *slurm) until(a *awaits, id, what string, f func(state string, restarts int, nodes []string) bool) {
	s.t.Helper()
	if !Poll(mpiLimit, nil, func() bool { return f(s.job(id)) }) {
		s.t.Fatalf("job %s: not %s\n%s\n%s\n%s\n%s", id, what, s.says("scontrol", "show", "job", id), mustRead(s.t, a.run.Stdout), mustRead(s.t, a.run.Stderr), s.logs())
	}
}

// logs are the last lines of those of Slurm.
func (s *slurm) logs() string {
	out, _ := exec.Command("sh", "-c", `tail -n 30 "$0"/slurm/*.log`, s.dir).CombinedOutput()
	return string(out)
}

// runsAgain waits until a job is in the queue again, has it begin soon rather than in the two minutes that Slurm lets
// pass, and waits until it runs. In the second in which its former run was ended, slurmd does not start it: Slurm
// tells runs apart by seconds.
func (s *slurm) runsAgain(a *awaits, id string, restarts int) (nodes []string) {
	s.t.Helper()
	s.until(a, id, "in the queue again", func(state string, n int, _ []string) bool { return n >= restarts && state != "COMPLETING" })
	if state, _, _ := s.job(id); state == "PENDING" {
		s.says("scontrol", "update", "jobid="+id, "StartTime=now+3")
	}
	s.until(a, id, "running again", func(state string, n int, on []string) bool { nodes = on; return n >= restarts && state == "RUNNING" })
	return nodes
}

// completed waits for a good end and the right result.
func (s *slurm) completed(a *awaits, id string, ranks int) {
	s.t.Helper()
	s.until(a, id, "completed", func(state string, _ int, _ []string) bool {
		return state == "COMPLETED" || state == "FAILED" || state == "CANCELLED"
	})
	if state, _, _ := s.job(id); state != "COMPLETED" {
		s.t.Fatalf("job %s: %s\n%s\n%s", id, state, mustRead(s.t, a.run.Stdout), append(mustRead(s.t, a.run.Stderr), s.logs()...))
	}
	a.mustResult(ranks)
}

// standsIn waits until a job of Slurm stands.
func (s *slurm) standsIn(a *awaits, id string) {
	s.t.Helper()
	if !Poll(mpiLimit, nil, func() bool { _, err := os.Stat(a.file("stands")); return err == nil }) {
		s.t.Fatalf("job %s does not come to where it stands: %s\n%s", id, s.says("scontrol", "show", "job", id), mustRead(s.t, a.run.Stderr))
	}
}

// saved asks for a checkpoint from the login node.
func (s *slurm) saved(a *awaits) {
	s.t.Helper()
	before := a.newest(s.t)
	exit, said := a.ckptctl(s.room, "checkpoint", a.run.Checkpoints(), "--timeout", checkpointLimit.String())
	if exit != (Exit{}) || a.newest(s.t) <= before {
		s.t.Fatalf("ckptctl checkpoint: %v: %s\n%s", exit, said, mustRead(s.t, a.run.Stderr))
	}
}

var slurmTypes = map[string]string{"mpich": "pmi2", "openmpi": "pmix"}

// srun starts ranks by Slurm's PMI or PMIx, without a launcher of the MPI, on three nodes; the job continues on two of
// them, also by the other one and so above the other MPI.
func TestSlurmSteps(t *testing.T) {
	shared := t.TempDir()
	s := newSlurm(t, shared, 3)
	for mpi, typ := range slurmTypes {
		t.Run(typ, func(t *testing.T) {
			s := s.in(t)
			s.needs(typ)
			a := newAwaitsIn(t, mpi, shared)
			step := func(typ string, nodes int, argv ...string) *Process {
				p, err := a.run.Start(a.mark, s.command([]string{"CKPT_LEASE=2s"}, append([]string{"srun", "--mpi=" + typ, "-N", strconv.Itoa(nodes), "-n4"}, argv...)...)...)
				must(t, err)
				return p
			}
			p := step(typ, 3, append([]string{built.CkptRun(), "--dir", a.run.Checkpoints(), "--"}, a.argv...)...)
			a.stands(p)
			a.save(s.room, p, "kill")
			if got := a.hosts(s.room); len(got) != 3 {
				t.Errorf("saved on %v", got)
			}
			p = step(typ, 2, built.CkptRun(), "--restart", a.run.Checkpoints())
			a.save(s.room, p, "kill")
			if got := a.hosts(s.room); len(got) != 2 {
				t.Errorf("saved on %v", got)
			}
			other := map[string]string{"pmi2": "pmix", "pmix": "pmi2"}[typ]
			if !s.knows(other) {
				t.Logf("continued by %s, as srun knows no --mpi=%s", typ, other)
				other = typ
			}
			a.letGo()
			a.ends(step(other, 3, built.CkptRun(), "--restart", a.run.Checkpoints()), 4)
		})
	}
}

func newAwaitsIn(t *testing.T, mpi, shared string) *awaits {
	t.Helper()
	a := newAwaits(t, mpi)
	dir, err := os.MkdirTemp(shared, "job-")
	must(t, err)
	a.run, err = NewRun(dir)
	must(t, err)
	a.in(a.run.Work())
	return a
}

// The script of examples/slurm: Slurm signals it before the end of its time, it saves the job and puts it into the
// queue again, and the job continues on other nodes.
func TestSlurmTimeLimit(t *testing.T) {
	shared := t.TempDir()
	s := newSlurm(t, shared, 3)
	for mpi, typ := range slurmTypes {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := s.in(t)
			s.needs(typ)
			a := newAwaitsIn(t, mpi, shared)
			// Time limits are minutes.
			id := s.batch(a, typ, "--nodes=2", "--ntasks=4", "--exclude=node3", "--time=1", "--signal=B:USR2@50")
			s.standsIn(a, id)
			s.until(a, id, "in the queue again", func(state string, n int, _ []string) bool { return n == 1 && state == "PENDING" })
			if a.newest(t) == 0 {
				t.Errorf("nothing was saved\n%s", mustRead(t, a.run.Stderr))
			}
			s.says("scontrol", "update", "jobid="+id, "ExcNodeList=node1", "TimeLimit=30")
			if nodes := s.runsAgain(a, id, 1); !slices.Equal(nodes, []string{"node2", "node3"}) {
				t.Errorf("it runs again on %v", nodes)
			}
			a.letGo()
			s.completed(a, id, 4)
			for _, bad := range []string{"*** STEP", "watched for"} {
				if said := string(mustRead(t, a.run.Stdout)) + string(mustRead(t, a.run.Stderr)); strings.Contains(said, bad) {
					t.Errorf("%q is said:\n%s", bad, said)
				}
			}
		})
	}
}

// What else happens to jobs of a batch system. Each case begins with a job that stands and was saved.
func TestSlurmEvents(t *testing.T) {
	shared := t.TempDir()
	s := newSlurm(t, shared, 3)
	begin := func(s *slurm, mpi string, options ...string) (*awaits, string) {
		a := newAwaitsIn(s.t, mpi, shared)
		id := s.batch(a, slurmTypes[mpi], append([]string{"--nodes=2-3", "--ntasks=3", "--time=30"}, options...)...)
		s.standsIn(a, id)
		return a, id
	}
	// A job of the other partition takes the nodes: Slurm signals the script, which saves the job.
	t.Run("preempted", func(t *testing.T) {
		s := s.in(t)
		a, id := begin(s, "mpich", "--exclusive")
		mpi := s.second()
		urgent := newAwaitsIn(t, mpi, shared)
		other := s.batch(urgent, slurmTypes[mpi], "--partition=urgent", "--nodes=3", "--ntasks=3", "--exclusive", "--time=30")
		s.standsIn(urgent, other)
		if state, n, _ := s.job(id); n != 1 || a.newest(t) == 0 {
			t.Errorf("the preempted job: %s, in the queue again %d times, newest epoch %d", state, n, a.newest(t))
		}
		urgent.letGo()
		s.completed(urgent, other, 3)
		s.runsAgain(a, id, 1)
		a.letGo()
		s.completed(a, id, 3)
	})
	// The operator sets a node down: Slurm kills the job and puts it into the queue again; it continues from the last
	// epoch on the other nodes.
	t.Run("down", func(t *testing.T) {
		s := s.in(t)
		a, id := begin(s, s.second())
		s.saved(a)
		s.says("scontrol", "update", "nodename=node1", "state=down", "reason=test")
		nodes := s.runsAgain(a, id, 1)
		if len(nodes) != 2 || slices.Contains(nodes, "node1") {
			t.Errorf("it runs again on %v", nodes)
		}
		a.letGo()
		s.completed(a, id, 3)
		s.says("scontrol", "update", "nodename=node1", "state=resume")
	})
	// scancel ends the job; what it had saved can be continued by another job.
	t.Run("cancelled", func(t *testing.T) {
		s := s.in(t)
		a, id := begin(s, "mpich")
		s.saved(a)
		s.says("scancel", id)
		s.until(a, id, "cancelled", func(state string, _ int, _ []string) bool { return state == "CANCELLED" })
		a.letGo()
		s.completed(a, s.batch(a, "pmi2", "--nodes=2", "--ntasks=3", "--time=30"), 3)
	})
	// Each task of an array is a job with a directory of its own.
	t.Run("array", func(t *testing.T) {
		s := s.in(t)
		mpi := s.second()
		a := newAwaitsIn(t, mpi, shared)
		tasks := filepath.Join(a.run.Dir, "task.sh")
		must(t, os.WriteFile(tasks, fmt.Appendf(nil, "#!/bin/sh\nexec %s %d %s/task-$SLURM_ARRAY_TASK_ID\n", a.program, awaitsSteps, a.run.Work()), 0o755))
		parts := map[string]*awaits{"1": {nodesJob: a.nodesJob}, "2": {nodesJob: a.nodesJob}}
		for task, part := range parts {
			part.folder = filepath.Join(a.run.Work(), "task-"+task)
			must(t, os.Mkdir(part.folder, 0o755))
		}
		a.argv = []string{tasks}
		array := s.batchIn(a, "", slurmTypes[mpi], "--array=1-2", "--nodes=2", "--ntasks=2", "--time=30")
		for task, part := range parts {
			s.standsIn(part, array+"_"+task)
			s.says("scancel", "--batch", "--signal=USR2", array+"_"+task) // what Slurm does before the end of the time
		}
		for task, part := range parts {
			s.runsAgain(part, array+"_"+task, 1)
			part.letGo()
			s.completed(part, array+"_"+task, 2)
		}
		if dirs, _ := filepath.Glob(filepath.Join(a.run.Work(), "ckpt-*", "epoch-*", "manifest.json")); len(dirs) != 2 {
			t.Errorf("epochs: %v", dirs)
		}
	})
}
