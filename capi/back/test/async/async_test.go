// SPDX-License-Identifier: Apache-2.0

package async

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const ranks = "3"

// launchers start ranks with the two MPIs of the distribution.
var launchers = map[string][]string{
	"mpich":   {"mpiexec.mpich"},
	"openmpi": {"mpiexec.openmpi", "--oversubscribe"},
}

// tool finds a program of the build tree.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../../../build/bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make first", err)
	}
	return path
}

func compile(t *testing.T, mpi string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "patterns-"+mpi)
	cmd := exec.Command("mpicc."+mpi, "-O2", "-o", out, filepath.Join("testdata", "patterns.c"))
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, b)
	}
	return out
}

// job is one start of the ranks.
type job struct {
	cmd    *exec.Cmd
	dir    string // of its checkpoints; empty for a native run
	out    bytes.Buffer
	exited chan error
}

func start(t *testing.T, mpi string, args ...string) *job {
	t.Helper()
	l := launchers[mpi]
	args = append(append(append([]string{}, l[1:]...), "-n", ranks), args...)
	j := &job{cmd: exec.Command(l[0], args...), exited: make(chan error, 1)}
	j.cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	if i := slices.Index(args, "--dir"); i >= 0 {
		j.dir = args[i+1]
		j.cmd.Env = append(j.cmd.Env, "CKPT_TEST_JOB="+j.dir)
	}
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.out
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { j.exited <- j.cmd.Wait() }()
	t.Cleanup(func() {
		_ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL)
		j.killRanks() // which the launcher put into groups of their own
	})
	return j
}

// ended tells whether the ranks have ended by themselves, waiting at most so long.
func (j *job) ended(wait time.Duration) bool {
	select {
	case err := <-j.exited:
		j.exited <- err
		return true
	case <-time.After(wait):
		return false
	}
}

// kill ends the ranks as a crash of their nodes would.
func (j *job) kill(t *testing.T) {
	t.Helper()
	j.killRanks()
	<-j.exited
	j.exited <- nil
}

// killRanks finds the ranks by their environment: their command lines are the program's.
func (j *job) killRanks() {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err != nil || j.dir == "" || !bytes.Contains(b, []byte("CKPT_TEST_JOB="+j.dir+"\x00")) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/environ", &pid); err == nil && pid != j.cmd.Process.Pid {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func result(out string) string {
	for line := range strings.Lines(out) {
		if len(strings.Fields(line)) == 2 {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// save asks for a checkpoint; false when the job has ended meanwhile.
func save(t *testing.T, j *job, dir string) bool {
	t.Helper()
	for !j.ended(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "job.json")); err == nil {
			break
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b, err := exec.CommandContext(ctx, tool(t, "ckptctl"), "checkpoint", dir, "--timeout", "50s").CombinedOutput()
	if err == nil {
		return true
	}
	if !j.ended(10 * time.Second) {
		t.Fatalf("no checkpoint: %v\n%s", err, b)
	}
	return false
}

// TestAnyMoment saves, kills and continues each pattern a few times at random moments.
func TestAnyMoment(t *testing.T) {
	programs := map[string]string{"mpich": compile(t, "mpich"), "openmpi": compile(t, "openmpi")}
	patterns := []struct{ name, rounds string }{
		{"ring", "80"}, {"farm", "600"}, {"polling", "250"}, {"colls", "80"}, {"halo", "300"}, {"stuck", "25"},
	}
	// What a program computes does not depend on the MPI.
	want := map[string]string{}
	for _, p := range patterns {
		native := start(t, "mpich", programs["mpich"], p.name, p.rounds)
		if !native.ended(time.Minute) {
			t.Fatalf("%s: the native run does not end", p.name)
		}
		want[p.name] = result(native.out.String())
	}
	for _, pair := range [][2]string{{"mpich", "mpich"}, {"openmpi", "openmpi"}, {"mpich", "openmpi"}} {
		for _, p := range patterns {
			t.Run(pair[0]+"-"+pair[1]+"/"+p.name, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "ckpt")
				seed := rand.Uint64()
				r := rand.New(rand.NewPCG(seed, 1))
				pause := func(most int) time.Duration { return time.Duration(r.IntN(most)) * time.Millisecond }
				run := tool(t, "ckptrun")
				j := start(t, pair[0], run, "--dir", dir, programs[pair[0]], p.name, p.rounds)
				kills := 0
				for ; kills < 2; kills++ {
					if j.ended(pause(300)) || !save(t, j, dir) || j.ended(pause(60)) {
						break
					}
					j.kill(t)
					if err := os.Remove(filepath.Join(dir, "job.json")); err != nil && !os.IsNotExist(err) {
						t.Fatal(err)
					}
					j = start(t, pair[(kills+1)%2], run, "--dir", dir, "--restart", dir)
				}
				if !j.ended(2 * time.Minute) {
					t.Fatalf("seed %d: it does not end after %d restarts", seed, kills)
				}
				if got := result(j.out.String()); got != want[p.name] || got == "" {
					t.Errorf("seed %d, %d restarts: got %q, want %q\n%s", seed, kills, got, want[p.name], j.out.String())
				}
			})
		}
	}
}
