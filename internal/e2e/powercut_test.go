// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/forget"
)

// state is what a power cut left.
type state struct {
	after string
	loss  forget.Loss
	disk  *forget.Disk
	// whole is the newest epoch that was reported as committed by then, 0 for none.
	whole int
}

// TestPowerCut saves a program on a disk that forgets what was not synced, and cuts the power after every
// step of a commit and in the time before and behind it, in all the ways in which a disk may forget. From
// what is left the program goes on, from the older or the newer epoch, and ends as if nothing had been;
// an epoch that was reported is there.
func TestPowerCut(t *testing.T) {
	needCommands(t)
	if fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil || os.Geteuid() != 0 {
		t.Skipf("mounting a disk that forgets needs root and /dev/fuse (%v): power cuts are not tested here", err)
	} else {
		_ = fuse.Close()
	}
	// Continuing takes as long as the program; so many states are looked at, chosen at random, of those from
	// before an epoch was reported and of those from after.
	const most = 8
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i, l := range []life{{files: "snapshot"}, {files: "restore", program: []string{"log"}}} {
		t.Run(l.files, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			var states []state
			for l.steps = 1000; states == nil; l.steps *= 2 { // until the second epoch is there in time
				states = l.onDisk(t)
			}
			l.steps /= 2
			want, err := NewRun(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if err := want.Once(checkpointLimit, l.argv(want.Work())...); err != nil {
				t.Fatal(err)
			}
			random.Shuffle(len(states), func(i, j int) { states[i], states[j] = states[j], states[i] })
			looked := map[bool]int{}
			for _, s := range states {
				if looked[s.whole > 0]++; looked[s.whole > 0] <= most {
					goOn(t, s, l.files, string(mustRead(t, want.Stdout)))
				}
			}
			t.Logf("%d states before an epoch was reported, %d after; of each %d were continued", looked[false], looked[true], most)
		})
	}
}

// life is a program that is saved on a disk that forgets.
type life struct {
	files   string // --files
	steps   int
	program []string // arguments
}

func (l *life) argv(folder string) []string {
	return append([]string{filepath.Join(built.Bin, "ledger"), strconv.Itoa(l.steps), folder}, l.program...)
}

// mounted mounts a disk. Disks are mounted at one place, one after the other: a program is continued under the
// names that it had.
func mounted(t *testing.T, d *forget.Disk, folder string) (unmount func()) {
	t.Helper()
	un, err := d.Mount(folder)
	if err != nil {
		t.Fatalf("mount a disk that forgets (needs root and /dev/fuse): %v", err)
	}
	return func() {
		t.Helper()
		if !Poll(patience, nil, func() bool { err = un(); return err == nil }) {
			t.Fatalf("unmount: %v", err)
		}
	}
}

// onDisk runs the program, makes two epochs, and returns the states that a power cut may leave from the
// time between the two to some time after the second. nil: it has ended before.
func (l *life) onDisk(t *testing.T) []state {
	t.Helper()
	folder := powerCutFolder(t)
	disk := forget.NewDisk()
	unmount := mounted(t, disk, folder)
	defer unmount()
	run, err := NewRun(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(folder, "work"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(folder, "job", "ckpt"), run.Checkpoints()); err != nil {
		t.Fatal(err)
	}
	if err := syncFolder(folder); err != nil {
		t.Fatal(err)
	}
	mark := NewMark()
	defer mark.KillAll()
	p, err := run.Start(mark, append([]string{built.CkptRun(), "--files", l.files, "--dir", filepath.Join(folder, "job", "ckpt"), "--"},
		l.argv(filepath.Join(folder, "work"))...)...)
	if err != nil {
		t.Fatal(err)
	}
	Poll(patience, p.Done(), func() bool {
		_, err := os.Stat(filepath.Join(folder, "job", "ckpt", "job.json"))
		return err == nil
	})
	seen := map[[32]byte]int{}
	var states []state
	whole := 0
	record := func() (stop func()) {
		return disk.Record(func(m forget.Moment) {
			for loss := range forget.Losses {
				s := state{m.What, loss, m.After(loss), whole}
				d := s.disk.Digest()
				if at, ok := seen[d]; ok {
					states[at].whole = whole // it can still be so now
					continue
				}
				seen[d] = len(states)
				states = append(states, s)
			}
		})
	}
	stop := record() // the first epoch too
	for whole < 2 {
		exit, said := checkpoint(t, run, mark, fmt.Sprintf("checkpoint-%d", whole+1), "continue")
		if exit != (Exit{}) {
			stop()
			if Poll(patience, p.Done(), p.Ended) {
				return nil
			}
			t.Fatalf("checkpoint: %v: %s\n%s", exit, said, mustRead(t, run.Stderr))
		}
		stop()
		whole++
		stop = record()
	}
	// The program changes its files again before the end of what is looked at.
	log := filepath.Join(folder, "work", "out", "deep", "log")
	begin, err := os.Stat(log)
	Poll(patience, p.Done(), func() bool {
		now, nerr := os.Stat(log)
		return err == nil && nerr == nil && now.Size() > begin.Size()+100*24
	})
	stop()
	if p.Ended() {
		return nil
	}
	p.Kill()
	return states
}

// powerCutFolder is the same in every life of a program.
func powerCutFolder(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(built.Bin, "disk")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// goOn continues the program on what is left.
func goOn(t *testing.T, s state, files, want string) {
	t.Helper()
	folder := powerCutFolder(t)
	unmount := mounted(t, s.disk, folder)
	defer unmount()
	what := fmt.Sprintf("power cut after %q, which leaves %v", s.after, s.loss)
	run, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := run.Once(checkpointLimit, built.CkptRun(), "--files", files, "--restart", filepath.Join(folder, "job", "ckpt")); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	said := string(mustRead(t, run.Stderr))
	switch got := string(mustRead(t, run.Stdout)); {
	case run.Exit == Exit{} && got == want:
	case run.Exit.Code == 3 && s.whole == 0 || run.Exit.Code == 1 && s.whole == 0 && strings.Contains(said, "no such file"):
		// Nothing was promised yet.
	default:
		t.Errorf("%s, epoch %d was reported: %v, printed %q, want %q\n%s", what, s.whole, run.Exit, got, want, said)
	}
	t.Logf("%s: %v in %v", what, run.Exit, time.Since(start).Round(time.Millisecond))
}
