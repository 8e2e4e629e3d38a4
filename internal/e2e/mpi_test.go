// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// ranks poll: where the processor is emulated, more than there are processors leave none to those who wait for an answer.
var ranks = few(4, 2)

// mpiLimit is what one run of the MPI example may take; ranks poll, and may be more than processors.
var mpiLimit = slowly(4 * time.Minute)

// heat is the MPI example: a plate that saves itself every few steps.
type heat struct {
	run  *Run
	mark Mark
	argv []string // with mpiexec, without ckptrun
}

func mpiexec(t *testing.T) string {
	t.Helper()
	needmpi.Test(t, "mpich")
	path, err := exec.LookPath("mpiexec.mpich")
	if err != nil {
		t.Fatalf("%v: make setup installs it", err)
	}
	return path
}

func newHeat(t *testing.T, steps, every int) *heat {
	t.Helper()
	needCommands(t)
	run, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := &heat{run: run, mark: NewMark(), argv: []string{
		filepath.Join(built.Root, "build/examples/heat.mpich"), filepath.Join(built.Root, "examples/heat/small.par"),
		fmt.Sprintf("steps=%d", steps), fmt.Sprintf("checkpoint_every=%d", every)}}
	t.Cleanup(h.mark.KillAll)
	return h
}

func (h *heat) mpiexec(t *testing.T, argv ...string) *Process {
	t.Helper()
	p, err := h.run.Start(h.mark, append([]string{mpiexec(t), "-n", strconv.Itoa(ranks)}, argv...)...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (h *heat) start(t *testing.T) *Process {
	t.Helper()
	return h.mpiexec(t, append([]string{built.CkptRun(), "--dir", h.run.Checkpoints(), "--"}, h.argv...)...)
}

func (h *heat) restart(t *testing.T, from string) *Process {
	t.Helper()
	return h.mpiexec(t, built.CkptRun(), "--restart", from)
}

func (h *heat) newest(t *testing.T) int {
	t.Helper()
	n, err := (&Chain{Run: h.run}).epochs()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// awaitEpoch waits until an epoch after the given one is committed.
func (h *heat) awaitEpoch(t *testing.T, p *Process, after int) {
	t.Helper()
	if !Poll(mpiLimit, p.Done(), func() bool { return h.newest(t) > after }) {
		t.Fatalf("no epoch after %d\n%s\n%s", after, mustRead(t, h.run.Stderr), Dump(h.mark.Processes()))
	}
}

// kill ends every rank as kill -9 does, and waits for mpiexec to give up.
func (h *heat) kill(t *testing.T, p *Process) {
	t.Helper()
	pids := h.mark.Ranks()
	if len(pids) != ranks && !p.Ended() {
		t.Errorf("%d ranks, expected %d", len(pids), ranks)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have come to its end
	}
	if _, err := p.Wait(mpiLimit); err != nil {
		t.Fatal(err)
	}
	if err := noneLeft(h.mark); err != nil {
		t.Fatalf("after kill -9: %v", err)
	}
}

func (h *heat) wait(t *testing.T, p *Process) Exit {
	t.Helper()
	exit, err := p.Wait(mpiLimit)
	if err != nil {
		t.Fatalf("%v\nstderr: %s", err, mustRead(t, h.run.Stderr))
	}
	if err := noneLeft(h.mark); err != nil {
		t.Error(err)
	}
	return exit
}

var digestLine = regexp.MustCompile(`(?m)^.*FNV-1a ([0-9a-f]{16})$`)

// result is the digest of the whole field, which the program prints last, and its file.
func (h *heat) result(t *testing.T) (digest string, field, log []byte) {
	t.Helper()
	found := digestLine.FindAllStringSubmatch(string(mustRead(t, h.run.Stdout)), -1)
	if len(found) != 1 {
		t.Fatalf("%d results in the output, expected 1:\n%s\nstderr: %s", len(found), mustRead(t, h.run.Stdout), mustRead(t, h.run.Stderr))
	}
	return found[0][1], mustRead(t, filepath.Join(h.run.Work(), "small.raw")), mustRead(t, filepath.Join(h.run.Work(), "small.log"))
}

func (h *heat) mustEqual(t *testing.T, want *heat) {
	t.Helper()
	digest, field, log := h.result(t)
	wantDigest, wantField, wantLog := want.result(t)
	if digest != wantDigest || firstDifference(wantField, field) >= 0 {
		t.Errorf("digest %s, natively %s; field differs at byte %d of %d", digest, wantDigest, firstDifference(wantField, field), len(wantField))
	}
	if at := firstDifference(wantLog, log); at >= 0 {
		t.Errorf("log differs at byte %d:\n   natively: %q\n   here:     %q", at, around(wantLog, at), around(log, at))
	}
}

// natively runs the same job without ckptrun.
func (h *heat) natively(t *testing.T) *heat {
	t.Helper()
	run, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n := &heat{run: run, mark: NewMark(), argv: h.argv}
	t.Cleanup(n.mark.KillAll)
	if exit := n.wait(t, n.mpiexec(t, n.argv...)); exit != (Exit{}) {
		t.Fatalf("natively: %v: %s", exit, mustRead(t, run.Stderr))
	}
	return n
}

// At least 10 generations, each killed with kill -9 once it has committed an epoch of its own.
func TestMPIChain(t *testing.T) {
	h := newHeat(t, 1000, 20)
	want := h.natively(t)
	p := h.start(t)
	done := 0
	for done < few(10, 4) {
		before := h.newest(t)
		h.awaitEpoch(t, p, before)
		if p.Ended() {
			t.Fatalf("the job ended in generation %d, before it could be killed", done+1)
		}
		h.kill(t, p)
		done++
		p = h.restart(t, h.run.Checkpoints())
	}
	if exit := h.wait(t, p); exit != (Exit{}) {
		t.Fatalf("%v: %s", exit, mustRead(t, h.run.Stderr))
	}
	h.mustEqual(t, want)
	t.Logf("generations: %d", done)
}

// One rank is killed, at any moment; the job ends, nothing hangs, and the last epoch restarts.
func TestMPIKilledRank(t *testing.T) {
	h := newHeat(t, 600, 20)
	want := h.natively(t)
	p := h.start(t)
	for victim := range ranks {
		h.awaitEpoch(t, p, h.newest(t))
		pids := h.mark.Ranks()
		if len(pids) != ranks {
			t.Fatalf("%d ranks, expected %d", len(pids), ranks)
		}
		if err := syscall.Kill(pids[victim], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if exit := h.wait(t, p); exit == (Exit{}) {
			t.Fatalf("mpiexec reports success though rank process %d was killed", pids[victim])
		}
		p = h.restart(t, h.run.Checkpoints())
	}
	if exit := h.wait(t, p); exit != (Exit{}) {
		t.Fatalf("%v: %s", exit, mustRead(t, h.run.Stderr))
	}
	h.mustEqual(t, want)
}

// The disk fills up in the middle: epochs are given up, the job goes on to the right result, and the
// last epoch that was committed before restarts.
func TestMPIFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	h := newHeat(t, 600, 50)
	want := h.natively(t)
	smallDisk(t, h.run.Checkpoints(), 256<<20)
	p := h.start(t)
	h.awaitEpoch(t, p, 0)
	fillDisk(t, h.run.Checkpoints())
	if exit := h.wait(t, p); exit != (Exit{}) {
		t.Fatalf("%v: %s", exit, mustRead(t, h.run.Stderr))
	}
	h.mustEqual(t, want)
	said := string(mustRead(t, h.run.Stdout)) + string(mustRead(t, h.run.Stderr))
	if !strings.Contains(said, "no space left") {
		t.Errorf("nobody said that the disk is full:\n%s", said)
	}
	kept := h.newest(t)
	if kept == 0 {
		t.Fatal("the epoch from before is gone")
	}
	if err := os.Truncate(h.run.Stdout, 0); err != nil {
		t.Fatal(err)
	}
	if exit := h.wait(t, h.restart(t, fmt.Sprintf("%s@%d", h.run.Checkpoints(), kept))); exit != (Exit{}) {
		t.Fatalf("restart: %v: %s", exit, mustRead(t, h.run.Stderr))
	}
	h.mustEqual(t, want)
}

// One rank's image is damaged: the restart says whose, and the epoch before restarts.
func TestMPIDamagedImage(t *testing.T) {
	h := newHeat(t, 600, 20)
	want := h.natively(t)
	p := h.start(t)
	h.awaitEpoch(t, p, 1)
	h.kill(t, p)
	newest := h.newest(t)
	image := filepath.Join(h.run.Checkpoints(), fmt.Sprintf("epoch-%06d", newest), "rank-00002.ckpt")
	b := mustRead(t, image)
	b[len(b)/2] ^= 1
	if err := os.WriteFile(image, b, 0o600); err != nil {
		t.Fatal(err)
	}
	exit := h.wait(t, h.restart(t, fmt.Sprintf("%s@%d", h.run.Checkpoints(), newest)))
	said := string(mustRead(t, h.run.Stderr))
	if exit == (Exit{}) || !strings.Contains(said, "rank-00002.ckpt") || !strings.Contains(said, fmt.Sprintf("@%d", newest-1)) {
		t.Errorf("%v: %q", exit, said)
	}
	if exit := h.wait(t, h.restart(t, h.run.Checkpoints())); exit != (Exit{}) {
		t.Fatalf("%v: %s", exit, mustRead(t, h.run.Stderr))
	}
	h.mustEqual(t, want)
}

// Another number of ranks than the epoch has is refused, with the number that is needed.
func TestMPIOtherNumberOfRanks(t *testing.T) {
	h := newHeat(t, 400, 20)
	p := h.start(t)
	h.awaitEpoch(t, p, 0)
	h.kill(t, p)
	out := h.run.Stderr
	if err := os.Truncate(out, 0); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"2", "5"} {
		p, err := h.run.Start(h.mark, mpiexec(t), "-n", n, built.CkptRun(), "--restart", h.run.Checkpoints())
		if err != nil {
			t.Fatal(err)
		}
		exit := h.wait(t, p)
		if said := string(mustRead(t, out)); exit == (Exit{}) || !strings.Contains(said, "4 ranks") || !strings.Contains(said, n+" were started") {
			t.Errorf("restart of 4 ranks with %s: %v: %q", n, exit, said)
		}
	}
}
