// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// What a checkpoint directory has one owner for: programs/owned.c shows whether somebody else touched its
// files. It stands still at two places until the test lets it go on, so that no timing decides anything.

// kind is how the program is started.
type kind struct {
	name     string
	ranks    int
	compile  []string
	launcher []string
}

var kinds = []kind{
	{"alone", 1, []string{"gcc", "-DWITHOUT_MPI"}, nil},
	{"mpich", 2, []string{"mpicc.mpich"}, []string{"mpiexec.mpich", "-n", "2"}},
	{"openmpi", 2, []string{"mpicc.openmpi"}, []string{"mpiexec.openmpi", "--oversubscribe", "-n", "2"}},
}

// ownedJob is one job: its files, its checkpoints, and the commands that want to run it.
type ownedJob struct {
	t       *testing.T
	kind    kind
	program string
	run     *Run // the work folder and the checkpoints; each command has a Run of its own besides
	mark    Mark
	started int
}

// attempt is a command that was started.
type attempt struct {
	*Process
	run *Run
}

func newOwned(t *testing.T, k kind) *ownedJob {
	t.Helper()
	needCommands(t)
	if k.launcher != nil {
		needmpi.Test(t, k.name)
	}
	t.Setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
	t.Setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
	program := filepath.Join(built.Bin, "owned-"+k.name)
	if _, err := os.Stat(program); err != nil {
		argv := append(slices.Clone(k.compile), "-Wall", "-Wextra", "-Werror", "-O1", "-o", program, filepath.Join(built.Src, "owned.c"))
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	run, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	j := &ownedJob{t: t, kind: k, program: program, run: run, mark: NewMark()}
	t.Cleanup(j.mark.KillAll)
	return j
}

// command starts something with output of its own.
func (j *ownedJob) command(argv ...string) *attempt {
	j.t.Helper()
	j.started++
	run, err := NewRun(filepath.Join(j.run.Dir, fmt.Sprintf("command-%d", j.started)))
	if err != nil {
		j.t.Fatal(err)
	}
	p, err := run.Start(j.mark, argv...)
	if err != nil {
		j.t.Fatal(err)
	}
	return &attempt{p, run}
}

// launch starts the job's ranks; before is put in front of the launcher.
func (j *ownedJob) launch(before []string, options ...string) *attempt {
	j.t.Helper()
	return j.command(slices.Concat(before, j.kind.launcher, []string{built.CkptRun()}, options)...)
}

func (j *ownedJob) start(options ...string) *attempt {
	j.t.Helper()
	return j.launch(nil, append(append([]string{"--dir", j.run.Checkpoints()}, options...), "--", j.program, j.run.Work())...)
}

func (j *ownedJob) restart(options ...string) *attempt {
	j.t.Helper()
	return j.launch(nil, append(options, "--restart", j.run.Checkpoints())...)
}

func (j *ownedJob) wait(a *attempt) (Exit, string) {
	j.t.Helper()
	exit, err := a.Wait(mpiLimit)
	if err != nil {
		j.t.Fatalf("%v\n%s", err, mustRead(j.t, a.run.Stderr))
	}
	return exit, string(mustRead(j.t, a.run.Stderr))
}

func (j *ownedJob) ctl(args ...string) (Exit, string) {
	j.t.Helper()
	a := j.command(append([]string{built.CkptCtl()}, args...)...)
	exit, _ := j.wait(a)
	return exit, string(mustRead(j.t, a.run.Stdout)) + string(mustRead(j.t, a.run.Stderr))
}

func (j *ownedJob) mustCtl(args ...string) string {
	j.t.Helper()
	exit, said := j.ctl(args...)
	if exit != (Exit{}) {
		j.t.Fatalf("ckptctl %v: %v: %s", args, exit, said)
	}
	return said
}

func (j *ownedJob) poll(what string, a *attempt, f func() bool) {
	j.t.Helper()
	if !Poll(mpiLimit, a.Done(), f) {
		j.t.Fatalf("%s: never\n%s\n%s", what, mustRead(j.t, a.run.Stderr), Dump(j.mark.Processes()))
	}
}

// letGo has the program go on from one of its places.
func (j *ownedJob) letGo(n int) {
	j.t.Helper()
	if err := os.WriteFile(filepath.Join(j.run.Work(), fmt.Sprint("go.", n)), nil, 0o644); err != nil {
		j.t.Fatal(err)
	}
}

// files are what the ranks have written.
func (j *ownedJob) files() map[string]string {
	j.t.Helper()
	all := map[string]string{}
	for rank := range j.kind.ranks {
		for _, name := range []string{"out", "map"} {
			path := filepath.Join(j.run.Work(), fmt.Sprintf("%s.%d", name, rank))
			if text, err := os.ReadFile(path); err == nil {
				all[filepath.Base(path)] = string(text)
			}
		}
	}
	return all
}

// at waits until all ranks have made so many steps.
func (j *ownedJob) at(a *attempt, steps int) {
	j.t.Helper()
	j.poll(fmt.Sprint(steps, " steps"), a, func() bool {
		files := j.files()
		for rank := range j.kind.ranks {
			if strings.Count(files[fmt.Sprint("out.", rank)], "\n") != steps {
				return false
			}
		}
		return true
	})
}

// pid is that of the rank 0 that job.json tells of, 0 when there is none.
func (j *ownedJob) pid() int {
	var record struct {
		PID int `json:"pid"`
	}
	text, err := os.ReadFile(filepath.Join(j.run.Checkpoints(), "job.json"))
	if err != nil || json.Unmarshal(text, &record) != nil {
		return 0
	}
	return record.PID
}

// running waits until a job other than that of the process before can be asked, and returns rank 0.
func (j *ownedJob) running(a *attempt, before int) int {
	j.t.Helper()
	j.poll("job.json", a, func() bool { return j.pid() != 0 && j.pid() != before })
	return j.pid()
}

// saved starts the job, saves it at its first place, and lets it go to the second.
func (j *ownedJob) saved(options ...string) *attempt {
	j.t.Helper()
	a := j.start(options...)
	j.at(a, 20)
	j.mustCtl("checkpoint", j.run.Checkpoints(), "--timeout", checkpointLimit.String())
	j.letGo(1)
	j.at(a, 40)
	return a
}

// natively is what the program writes when nobody disturbs it.
func (j *ownedJob) natively() (map[string]string, string) {
	j.t.Helper()
	n := newOwned(j.t, j.kind)
	n.letGo(1)
	n.letGo(2)
	a := n.command(append(slices.Clone(j.kind.launcher), n.program, n.run.Work())...)
	if exit, said := n.wait(a); exit != (Exit{}) {
		j.t.Fatalf("natively: %v: %s", exit, said)
	}
	return n.files(), string(mustRead(j.t, a.run.Stdout))
}

// finish lets the job run to its end, which must be that of the native run.
func (j *ownedJob) finish(a *attempt) {
	j.t.Helper()
	j.letGo(1)
	j.letGo(2)
	if exit, said := j.wait(a); exit != (Exit{}) {
		j.t.Fatalf("%v: %s", exit, said)
	}
	files, printed := j.natively()
	if got := string(mustRead(j.t, a.run.Stdout)); got != printed {
		j.t.Errorf("printed %q, natively %q", got, printed)
	}
	sameFiles(j.t, files, j.files())
}

func sameFiles(t *testing.T, want, got map[string]string) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%d files, expected %d", len(got), len(want))
	}
	for name, text := range want {
		if at := firstDifference([]byte(text), []byte(got[name])); at >= 0 {
			t.Errorf("%s differs at byte %d of %d, has %d", name, at, len(text), len(got[name]))
		}
	}
}

// mustBeRefused checks that a command ended with an error that names who owns the directory.
func (j *ownedJob) mustBeRefused(a *attempt, words ...string) {
	j.t.Helper()
	exit, said := j.wait(a)
	if exit == (Exit{}) {
		j.t.Errorf("a second job ran: %s", said)
	}
	for _, w := range append(words, j.run.Checkpoints(), "belongs to a job that", "nothing was touched") {
		if !strings.Contains(said, w) {
			j.t.Errorf("%q is not said:\n%s", w, said)
		}
	}
	if n := strings.Count(said, "nothing was touched"); n != 1 {
		j.t.Errorf("it is said %d times, want once:\n%s", n, said)
	}
}

// Two starts at once, and two restarts: every time exactly one runs, to the result of an undisturbed run, and
// the other ends with an error and has touched nothing. The programs stand still until one of the two has
// ended.
func TestTwoAtOnce(t *testing.T) {
	const rounds = 12
	ones := 0
	for i := range rounds {
		k := kinds[i%len(kinds)]
		t.Run(fmt.Sprint(k.name, " ", i), func(t *testing.T) {
			j := newOwned(t, k)
			again := func() *attempt { return j.start() }
			if i/len(kinds)%2 == 1 {
				a := j.saved()
				j.killAll(a)
				again = func() *attempt { return j.restart() }
			}
			a, b := again(), again()
			if !Poll(mpiLimit, nil, func() bool { return a.Ended() || b.Ended() }) {
				t.Fatalf("both run\n%s", Dump(j.mark.Processes()))
			}
			if b.Ended() {
				a, b = b, a
			}
			j.mustBeRefused(a, "process")
			if b.Ended() {
				t.Fatalf("none runs: %s\n%s", mustRead(t, a.run.Stderr), mustRead(t, b.run.Stderr))
			}
			j.finish(b)
			if !t.Failed() {
				ones++
			}
		})
	}
	t.Logf("exactly one ran: %d of %d", ones, rounds)
}

func (j *ownedJob) killAll(a *attempt) {
	j.t.Helper()
	a.Kill()
	if err := noneLeft(j.mark); err != nil {
		j.t.Fatal(err)
	}
}

// A restart, and a start, beside the job that lives: its files and shared mappings stay as they are.
func TestRestartBesideTheLivingJob(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			j := newOwned(t, k)
			a := j.saved()
			before := j.files()
			j.mustBeRefused(j.restart(), fmt.Sprintf("process %d", j.pid()))
			j.mustBeRefused(j.start(), fmt.Sprintf("process %d", j.pid()))
			// Also from a directory that the job was copied to the epochs of, when it is saved elsewhere.
			j.mustBeRefused(j.restart("--dir", j.run.Checkpoints()+"-2"), fmt.Sprintf("process %d", j.pid()))
			sameFiles(t, before, j.files())
			j.mustCtl("checkpoint", j.run.Checkpoints(), "--timeout", checkpointLimit.String())
			j.finish(a)
		})
	}
}

// Rank 0 is stopped for longer than the lease: nobody takes its directory, and ckptctl says how it is.
func TestStoppedJobKeepsItsDirectory(t *testing.T) {
	const lease = time.Second
	for _, k := range kinds[:2] {
		t.Run(k.name, func(t *testing.T) {
			j := newOwned(t, k)
			a := j.saved("--lease", lease.String())
			before, pid, begun := j.files(), j.pid(), time.Now()
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			for time.Since(begun) < 3*lease {
				j.mustBeRefused(j.restart(), fmt.Sprintf("process %d", pid), "is stopped")
			}
			exit, said := j.ctl("status", j.run.Checkpoints())
			if exit == (Exit{}) || !strings.Contains(said, "is stopped") || strings.Contains(said, "--restart") {
				t.Errorf("%v: %s", exit, said)
			}
			sameFiles(t, before, j.files())
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			j.mustCtl("checkpoint", j.run.Checkpoints(), "--timeout", checkpointLimit.String())
			j.finish(a)
		})
	}
}

// job.json is deleted: the job writes it again, the next request finds it, and nobody advises a second run.
func TestDeletedRecordIsWrittenAgain(t *testing.T) {
	j := newOwned(t, kinds[1])
	a := j.saved()
	pid, record := j.pid(), filepath.Join(j.run.Checkpoints(), "job.json")
	for i, args := range [][]string{{"status"}, {"checkpoint", "--timeout", checkpointLimit.String()}} {
		if err := os.Remove(record); err != nil {
			t.Fatal(err)
		}
		said := j.mustCtl(append([]string{args[0], j.run.Checkpoints()}, args[1:]...)...)
		if strings.Contains(said, "ckptrun") {
			t.Errorf("%d: %s", i, said)
		}
		j.poll("job.json is written again", a, func() bool { return j.pid() == pid })
	}
	// All that libckpt keeps of the running job is gone.
	if err := os.RemoveAll(filepath.Join(j.run.Checkpoints(), "lease")); err != nil {
		t.Fatal(err)
	}
	j.poll("the lease is made again", a, func() bool {
		names, _ := filepath.Glob(filepath.Join(j.run.Checkpoints(), "lease", "*"))
		return len(names) == 1
	})
	j.mustBeRefused(j.restart(), fmt.Sprintf("process %d", pid))
	j.mustCtl("checkpoint", j.run.Checkpoints(), "--timeout", checkpointLimit.String())
	j.finish(a)
}

// After kill -9 a restart has the directory at once, while the launcher of the former one still cleans up.
func TestRestartRightAfterTheKill(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			j := newOwned(t, k)
			j.saved()
			for _, pid := range j.mark.Ranks() {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			a := j.restart()
			j.finish(a)
			if said := string(mustRead(t, a.run.Stderr)); strings.Contains(said, "watched for") {
				t.Errorf("it waited for a dead job: %s", said)
			}
		})
	}
}

// otherNode is a command that plays another node: a mount namespace in which the machine was started
// another time, which is what tells nodes apart.
func otherNode(t *testing.T) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a mount namespace needs root")
	}
	id := filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(id, []byte("01234567-89ab-cdef-0123-456789abcdef\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"unshare", "--mount", "/bin/sh", "-c",
		`mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`, id}
}

func (j *ownedJob) savedElsewhere(options ...string) *attempt {
	j.t.Helper()
	node := otherNode(j.t)
	a := j.launch(node, append(append([]string{"--dir", j.run.Checkpoints(), "--control", "network"}, options...), "--", j.program, j.run.Work())...)
	j.at(a, 20)
	j.mustCtl("checkpoint", j.run.Checkpoints(), "--timeout", checkpointLimit.String())
	j.letGo(1)
	j.at(a, 40)
	return a
}

// A job on another node keeps its directory as long as it renews its lease; when it is dead the directory is
// taken over by itself, after the lease, or at once when the operator says so.
func TestOtherNode(t *testing.T) {
	t.Run("lives", func(t *testing.T) {
		j := newOwned(t, kinds[1])
		a := j.savedElsewhere("--lease", "20s")
		before := j.files()
		j.mustBeRefused(j.restart())
		if exit, said := j.ctl("unlock", j.run.Checkpoints()); exit == (Exit{}) || !strings.Contains(said, "until it ends") {
			t.Errorf("unlock: %v: %s", exit, said)
		}
		sameFiles(t, before, j.files())
		j.finish(a)
	})
	t.Run("dead", func(t *testing.T) {
		j := newOwned(t, kinds[1])
		j.killAll(j.savedElsewhere("--lease", "1s"))
		a := j.restart()
		j.finish(a)
		said := string(mustRead(t, a.run.Stderr))
		for _, w := range []string{"watched for 1s", "ckptctl unlock " + j.run.Checkpoints(), "is taken over from"} {
			if strings.Count(said, w) != 1 {
				t.Errorf("%q is not said once:\n%s", w, said)
			}
		}
	})
	t.Run("unlocked", func(t *testing.T) {
		j := newOwned(t, kinds[0])
		j.killAll(j.savedElsewhere("--lease", "24h"))
		exit, said := j.ctl("status", j.run.Checkpoints())
		if exit == (Exit{}) || !strings.Contains(said, "24h0m0s") || !strings.Contains(said, "ckptctl unlock") {
			t.Errorf("%v: %s", exit, said)
		}
		a := j.restart()
		j.poll("it waits", a, func() bool { return strings.Contains(string(mustRead(t, a.run.Stderr)), "watched for 24h0m0s") })
		j.mustCtl("unlock", j.run.Checkpoints())
		j.finish(a)
	})
	// It gave no sign of life for longer than its lease and goes on: it says once that it has lost the
	// directory, and neither commits nor removes anything there.
	t.Run("wakes up", func(t *testing.T) {
		j := newOwned(t, kinds[0])
		a := j.savedElsewhere("--lease", "1s", "--keep", "1", "--interval", "250ms")
		old := j.pid()
		if err := syscall.Kill(old, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		b := j.restart("--keep", "1000")
		j.running(b, old)
		j.at(b, 40)
		epochs := func() string {
			names, _ := filepath.Glob(filepath.Join(j.run.Checkpoints(), "epoch-*"))
			return strings.Join(names, " ")
		}
		j.mustCtl("checkpoint", j.run.Checkpoints(), "--timeout", checkpointLimit.String())
		j.mustCtl("checkpoint", j.run.Checkpoints(), "--timeout", checkpointLimit.String())
		before := epochs()
		if err := syscall.Kill(old, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		const lost = "this job does not own"
		said := func() string { return string(mustRead(t, a.run.Stderr)) }
		j.poll("the former owner says that it has lost", a, func() bool { return strings.Contains(said(), lost) })
		if after := epochs(); after != before {
			t.Errorf("epochs %s, before %s", after, before)
		}
		j.mustCtl("verify", j.run.Checkpoints())
		if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_, _ = a.Wait(patience) // however it ends
		if n := strings.Count(said(), lost); n != 1 {
			t.Errorf("said %d times that it has lost:\n%s", n, said())
		}
		if j.pid() == old || j.pid() == 0 {
			t.Errorf("job.json tells of process %d", j.pid())
		}
		j.finish(b)
	})
}
