// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/libckpt/libckpt/internal/written"
)

// drift is a job of programs/drift.c.
type drift struct {
	t       *testing.T
	mpi     string
	program string
	want    string // what it prints in the end
	job     *mpiJob
	within  []string // a command that runs it where less is allowed; nil: none
}

// What drift does in these tests: with --full every 4, epochs 1 and 5 are full, and the job is killed after epoch 6.
const (
	driftRanks = 2
	driftMiB   = 24
	driftSteps = 8
	driftKill  = 6
)

func newDrift(t *testing.T, mpi string) *drift {
	t.Helper()
	needCommands(t)
	d := &drift{t: t, mpi: mpi, program: buildMPI(t, mpi, "drift")}
	native := startMPI(t, mpi, driftRanks, func(*Run) []string {
		return []string{d.program, strconv.Itoa(driftSteps), strconv.Itoa(driftMiB)}
	})
	native.mustEnd(t)
	d.want = string(mustRead(t, native.run.Stdout))
	return d
}

func (d *drift) dir() string { return d.job.run.Checkpoints() }

// killed runs the job until that many epochs are committed and kills it.
func (d *drift) killed(options ...string) {
	d.t.Helper()
	hold := filepath.Join(d.t.TempDir(), "hold")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.job = startMPI(d.t, d.mpi, driftRanks, func(r *Run) []string {
		argv := append(append(slices.Clone(d.within), built.CkptRun(), "--dir", r.Checkpoints()), options...)
		return append(argv, "--", d.program, strconv.Itoa(driftSteps), strconv.Itoa(driftMiB), strconv.Itoa(driftKill-1), hold)
	})
	last := filepath.Join(d.dir(), fmt.Sprintf("epoch-%06d", driftKill), "manifest.json")
	if !Poll(mpiLimit, d.job.Done(), func() bool { _, err := os.Stat(last); return err == nil }) {
		d.t.Fatalf("there is no %s\n%s", last, mustRead(d.t, d.job.run.Stderr))
	}
	for _, pid := range d.job.mark.Ranks() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if _, err := d.job.Wait(mpiLimit); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Remove(hold); err != nil {
		d.t.Fatal(err)
	}
}

// restart continues the job to its end, compares what it prints, and returns what ckptrun said.
func (d *drift) restart(from string, options ...string) string {
	d.t.Helper()
	again := startMPI(d.t, d.mpi, driftRanks, func(*Run) []string {
		return append(append(append(slices.Clone(d.within), built.CkptRun()), options...), "--restart", from)
	})
	again.mustEnd(d.t)
	if got := string(mustRead(d.t, again.run.Stdout)); got != d.want {
		d.t.Errorf("restarted from %s: it printed %q, natively %q", from, got, d.want)
	}
	return string(mustRead(d.t, again.run.Stderr))
}

// epochLine is what ckptctl ls --json says of an epoch.
type epochLine struct {
	Epoch  int
	State  string
	Bytes  int64
	Parent int
	Needs  []int
	Shared uint64
	Unread uint64
}

func (d *drift) epochs() map[int]epochLine {
	d.t.Helper()
	out, err := exec.Command(built.CkptCtl(), "ls", d.dir(), "--json").Output()
	if err != nil {
		d.t.Fatal(err)
	}
	var list struct{ Epochs []epochLine }
	if err := json.Unmarshal(out, &list); err != nil {
		d.t.Fatal(err)
	}
	m := map[int]epochLine{}
	for _, e := range list.Epochs {
		m[e.Epoch] = e
	}
	return m
}

// ctl runs ckptctl and wants that exit status and those words.
func (d *drift) ctl(status int, args []string, words ...string) {
	d.t.Helper()
	cmd := exec.Command(built.CkptCtl(), args...)
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != status {
		d.t.Errorf("ckptctl %q: exit status %d: %s", args, got, out)
	}
	for _, w := range words {
		if !strings.Contains(string(out), w) {
			d.t.Errorf("ckptctl %q said %q, which does not contain %q", args, out, w)
		}
	}
}

func (d *drift) at(epoch int) string { return fmt.Sprintf("%s@%d", d.dir(), epoch) }

func (d *drift) folder(epoch int) string {
	return filepath.Join(d.dir(), fmt.Sprintf("epoch-%06d", epoch))
}

// A program that changes a twentieth of its memory between epochs writes about that much, and each epoch continues it as
// it was, also those that a restarted job has written upon the one that it came from.
func TestIncrements(t *testing.T) {
	tracker, err := written.Open()
	follows := err == nil
	if follows {
		_ = tracker.Close()
	} else {
		t.Logf("how much is read is not judged here: %v", err)
	}
	for mpi := range launchers {
		for _, compress := range []string{"none", "snappy", "auto"} {
			t.Run(mpi+"/"+compress, func(t *testing.T) {
				d := newDrift(t, mpi)
				changes := "auto"
				if compress == "snappy" {
					changes = "digest"
				}
				options := []string{"--full", "every", "4", "--keep", "100", "--compress", compress, "--changes", changes}
				d.killed(options...)
				d.restart(d.dir(), options...)
				list := d.epochs()
				for n := 1; n <= driftSteps; n++ {
					e := list[n]
					full := n%4 == 1
					if full != (e.Parent == 0) || full != (len(e.Needs) == 0) || !full && e.Parent != n-1 {
						t.Errorf("epoch %d is built upon %d and needs %v", n, e.Parent, e.Needs)
					}
					if !full && e.Bytes > list[1].Bytes*3/10 {
						t.Errorf("epoch %d has %d bytes, a full one %d", n, e.Bytes, list[1].Bytes)
					}
					d.ctl(0, []string{"verify", d.at(n)}, "all sound")
				}
				const never = driftRanks * driftMiB << 20 / 2 // bytes that are not written after the beginning
				for _, n := range []int{4, 7} {               // 7 is the first one after the restart
					unread := list[n].Unread
					if changes == "digest" && unread > 0 || changes == "auto" && follows && unread < never {
						t.Errorf("epoch %d: %d bytes were not read, of %d that are never written", n, unread, never)
					}
				}
				for n := 1; n < driftSteps; n++ {
					d.restart(d.at(n), "--full", "every", "3", "--keep", "100")
				}
				d.ctl(0, []string{"gc", d.dir(), "--keep", "1"})
				for n := range d.epochs() {
					d.ctl(0, []string{"verify", d.at(n)}, "all sound")
				}
			})
		}
	}
}

// Where userfaultfd is forbidden, as in a container, epochs with what changed read all memory: they are as small and as right,
// and it is said once, with what to do.
func TestIncrementsForbidden(t *testing.T) {
	confine := confinement(t)
	for _, c := range []struct{ mpi, profile, says string }{
		{"mpich", "docker", "userfaultfd is not allowed: a container must allow the system call; or choose --changes digest"},
		{"openmpi", "podman", "the kernel does not note writes"},
	} {
		t.Run(c.mpi+"/"+c.profile, func(t *testing.T) {
			d := newDrift(t, c.mpi)
			d.within = []string{confine, c.profile}
			options := []string{"--full", "every", "4", "--keep", "100", "--log", "info"}
			d.killed(options...)
			said := string(mustRead(t, d.job.run.Stderr))
			const what = "epochs with what changed read all memory"
			if times := strings.Count(said, what); times != 1 || !strings.Contains(said, c.says) {
				t.Errorf("want %q once: %s", c.says, said)
			}
			list := d.epochs()
			for n := 1; n <= driftKill; n++ {
				e := list[n]
				if full := n%4 == 1; full != (e.Parent == 0) || e.Unread != 0 || !full && e.Bytes > list[1].Bytes*3/10 {
					t.Errorf("epoch %d is built upon %d, has %d bytes, a full one %d; %d were not read", n, e.Parent, e.Bytes, list[1].Bytes, e.Unread)
				}
			}
			d.ctl(0, []string{"verify", d.at(driftKill)}, "all sound")
			d.restart(d.dir(), options...)
		})
	}
}

// When an epoch that others need is lost, restart and verify name it and the file, and the newest epoch that is whole is
// continued; one that is asked for by its number is refused. So is one whose parent has a rotten page, before that is used.
func TestIncrementsLost(t *testing.T) {
	d := newDrift(t, "mpich")
	d.killed("--full", "every", "4", "--keep", "100", "--compress", "none", "--restart-mode", "eager")
	refused := func(from string, words ...string) {
		t.Helper()
		again := startMPI(t, d.mpi, driftRanks, func(*Run) []string { return []string{built.CkptRun(), "--restart-mode", "eager", "--restart", from} })
		exit, err := again.Wait(mpiLimit)
		said := string(mustRead(t, again.run.Stderr))
		if err != nil || exit == (Exit{}) {
			t.Errorf("restart from %s: %v %v", from, exit, err)
		}
		for _, w := range words {
			if !strings.Contains(said, w) {
				t.Errorf("restart from %s said %q, which does not contain %q", from, said, w)
			}
		}
	}
	// A page of epoch 5, which 6 needs. Its content is what one looks for in the file: nothing says where it is but the index.
	rotten := filepath.Join(d.folder(5), "rank-00001.ckpt")
	sound := mustRead(t, rotten)
	bad := append([]byte(nil), sound...)
	for at := len(bad) / 3; at < len(bad)/2; at += 4096 {
		bad[at] ^= 1
	}
	if err := os.WriteFile(rotten, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	d.ctl(1, []string{"verify", d.at(6)}, rotten, "rank-00001.ckpt: DAMAGED", "rank-00000.ckpt: sound")
	refused(d.at(6), rotten, "@4") // 5 and 6 need the page
	if err := os.WriteFile(rotten, sound, 0o600); err != nil {
		t.Fatal(err)
	}
	d.ctl(0, []string{"verify", d.at(6)}, "all sound")
	// All of it.
	if err := os.RemoveAll(d.folder(5)); err != nil {
		t.Fatal(err)
	}
	d.ctl(1, []string{"verify", d.at(6)}, rotten, "which is lost")
	d.ctl(0, []string{"ls", d.dir()}, "epoch 6 cannot be restarted from", "epoch 5")
	refused(d.at(6), filepath.Join(d.folder(5), "rank-0000"), "@4") // the rank that finds it first says so
	if said := d.restart(d.dir(), "--full", "every", "4", "--keep", "2"); !strings.Contains(said, "epoch 5") || !strings.Contains(said, "instead: epoch 4") {
		t.Errorf("it said %q", said)
	}
	// The restarted job has written 7 to 10 upon 4 and then full ones; nothing that is left needs what is gone.
	for n, e := range d.epochs() {
		if e.State == "committed" {
			d.ctl(0, []string{"verify", d.at(n)}, "all sound")
		}
	}
	d.restart(d.dir())
}

// An epoch that fails is no parent: what changed for it is in the next one.
func TestIncrementsAfterFailure(t *testing.T) {
	for _, fault := range []string{"image.write.sync=enospc:3", "image.write.rename=error:4", "store.commit.rename=error:2"} {
		t.Run(fault, func(t *testing.T) {
			d := newDrift(t, "mpich")
			faults := filepath.Join(built.Root, "build/obj/faults/bin/ckptrun")
			t.Setenv("CKPT_FAULT", fault)
			d.job = startMPI(t, d.mpi, driftRanks, func(r *Run) []string {
				return []string{faults, "--dir", r.Checkpoints(), "--full", "every", "20", "--keep", "100", "--", d.program,
					strconv.Itoa(driftSteps), strconv.Itoa(driftMiB)}
			})
			d.job.mustEnd(t)
			t.Setenv("CKPT_FAULT", "")
			list := d.epochs()
			if len(list) != driftSteps-1 {
				t.Errorf("%d epochs of %d", len(list), driftSteps)
			}
			for n, e := range list {
				d.ctl(0, []string{"verify", d.at(n)}, "all sound")
				if n > 1 && e.Parent == 0 {
					t.Errorf("epoch %d is a full one", n)
				}
				d.restart(d.at(n), "--full", "every", "1", "--dir", filepath.Join(t.TempDir(), "other"))
			}
		})
	}
}
