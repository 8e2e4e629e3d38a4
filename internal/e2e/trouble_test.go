// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// steps is a job of steps.c: it must count, whatever happens to a checkpoint.
type steps struct {
	*mpiJob
	stop, far string // files
}

func startSteps(t *testing.T, mpi string, options ...string) *steps {
	t.Helper()
	needCommands(t)
	program := buildMPI(t, mpi, "steps")
	s := &steps{}
	s.mpiJob = startMPI(t, mpi, ranks, func(r *Run) []string {
		s.stop, s.far = filepath.Join(r.Dir, "stop"), filepath.Join(r.Dir, "far")
		argv := append([]string{built.CkptRun(), "--dir", r.Checkpoints()}, options...)
		return append(argv, "--", program, s.stop, s.far)
	})
	s.goesOn(t)
	return s
}

// counted is how far the job is.
func (s *steps) counted() int {
	text, err := os.ReadFile(s.far)
	if err != nil {
		return -1
	}
	line, _, _ := strings.Cut(string(text), "\n")
	n, err := strconv.Atoi(line)
	if err != nil {
		return -1
	}
	return n
}

// goesOn waits until the job has counted on.
func (s *steps) goesOn(t *testing.T) {
	t.Helper()
	from := s.counted()
	if !Poll(mpiLimit, s.Done(), func() bool { return s.counted() > from+2 }) {
		t.Fatalf("the job stands still at %d: %s\n%s", from, mustRead(t, s.run.Stderr), Dump(s.mark.Processes()))
	}
}

// ckptctl runs the command and returns how it ended and what it said.
func (s *steps) ckptctl(t *testing.T, argv ...string) (Exit, string) {
	t.Helper()
	r, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Once(mpiLimit, append([]string{built.CkptCtl()}, argv...)...); err != nil {
		t.Fatal(err)
	}
	return r.Exit, string(mustRead(t, r.Stdout)) + string(mustRead(t, r.Stderr))
}

// save makes a checkpoint that must be committed.
func (s *steps) save(t *testing.T) {
	t.Helper()
	if exit, said := s.ckptctl(t, "checkpoint", s.run.Checkpoints(), "--timeout", checkpointLimit.String()); exit != (Exit{}) {
		t.Fatalf("ckptctl: %v: %s\n%s", exit, said, mustRead(t, s.run.Stderr))
	}
}

// end lets the job come to its end.
func (s *steps) end(t *testing.T) {
	t.Helper()
	s.goesOn(t)
	if err := os.WriteFile(s.stop, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.mustEnd(t)
	if said := string(mustRead(t, s.run.Stdout)); said != "done\n" {
		t.Errorf("it says %q", said)
	}
}

var mpis = []string{"mpich", "openmpi"}

// Connections between the ranks break, at all sorts of moments: between requests and at any stage of a
// checkpoint. Nobody notices.
func TestMPIResets(t *testing.T) {
	for _, mpi := range mpis {
		for first := range 3 {
			t.Run(fmt.Sprint(mpi, first), func(t *testing.T) {
				var faults []string
				for n, at := 0, 5+first; n < 40; n, at = n+1, at+4+n%5 { // frames that a rank gets; each breaks its connection
					faults = append(faults, fmt.Sprintf("signaling.read=error:%d", at))
				}
				t.Setenv("CKPT_FAULT", strings.Join(faults, ","))
				s := startSteps(t, mpi)
				for range 4 {
					s.save(t)
					s.goesOn(t)
				}
				s.end(t)
				if said := string(mustRead(t, s.run.Stderr)); strings.Contains(said, "reached") || strings.Contains(said, "lost") {
					t.Errorf("it says %s", said)
				}
			})
		}
	}
}

// A rank is paused for longer than it may be silent: it is named, once; a checkpoint that is asked for is
// withdrawn everywhere, so that the others go on; and when it runs again all is as before.
func TestMPIPausedRank(t *testing.T) {
	for _, mpi := range mpis {
		t.Run(mpi, func(t *testing.T) {
			t.Setenv("CKPT_DEBUG", "silence=1500ms")
			s := startSteps(t, mpi)
			s.save(t)
			last := s.sleeper(t)
			signal(t, last, syscall.SIGSTOP)
			exit, said := s.ckptctl(t, "checkpoint", s.run.Checkpoints(), "--timeout", "10s")
			if exit.Code != 1 || !strings.Contains(said, "rank 3 cannot be reached") {
				t.Errorf("ckptctl: %v: %s", exit, said)
			}
			s.goesOn(t)
			signal(t, last, syscall.SIGCONT)
			s.save(t)
			s.end(t)
			if n := strings.Count(string(mustRead(t, s.run.Stderr)), "a rank cannot be reached"); n != 1 {
				t.Errorf("it is said %d times who cannot be reached:\n%s", n, mustRead(t, s.run.Stderr))
			}
		})
	}
}

func signal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// sleeper is the process of the last rank.
func (s *steps) sleeper(t *testing.T) int {
	t.Helper()
	for _, pid := range s.mark.Ranks() {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range strings.Split(string(environ), "\x00") {
			if v == fmt.Sprint("PMI_RANK=", ranks-1) || v == fmt.Sprint("OMPI_COMM_WORLD_RANK=", ranks-1) {
				return pid
			}
		}
	}
	t.Fatal("the last rank is not found")
	return 0
}

// The disk does not answer, at any step of writing and committing: the checkpoint is given up in its time,
// that is said, and the job goes on; also when it was to end. When the disk answers, all is as before.
func TestMPIStalledDisk(t *testing.T) {
	points := []string{"store.begin.mkdir", "image.write.sync", "store.commit.syncimages", "store.commit.rename"}
	for i, point := range points {
		t.Run(point, func(t *testing.T) {
			stall := filepath.Join(t.TempDir(), "stall")
			t.Setenv("CKPT_FAULT", point+"=stall")
			t.Setenv("CKPT_FAULT_STALL", stall)
			s := startSteps(t, mpis[i%2])
			if err := os.WriteFile(stall, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			exit, said := s.ckptctl(t, "checkpoint", s.run.Checkpoints(), "--then", "exit", "--timeout", "3s")
			t.Logf("after %v: %v: %s", time.Since(start), exit, said)
			if exit.Code != 1 || !strings.Contains(said, "no epoch within 3s") || !strings.Contains(said, "disk does not answer") &&
				!strings.Contains(said, "is not done") || !strings.Contains(said, "the job goes on") &&
				!strings.Contains(said, "have not said yet that their program goes on") { // they had no turn on a busy machine
				t.Errorf("ckptctl: %v: %s", exit, said)
			}
			s.goesOn(t)
			start = time.Now()
			exit, said = s.ckptctl(t, "checkpoint", s.run.Checkpoints(), "--timeout", checkpointLimit.String())
			if exit.Code != 1 || !strings.Contains(said, "the disk has not answered since") {
				t.Fatalf("ckptctl: %v: %s", exit, said)
			}
			if waited := time.Since(start); waited > checkpointLimit/2 {
				t.Errorf("the answer came after %v", waited)
			}
			s.goesOn(t)
			if err := os.Remove(stall); err != nil {
				t.Fatal(err)
			}
			s.save(t)
			s.end(t)
		})
	}
}
