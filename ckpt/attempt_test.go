// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/internal/fault"
)

func TestCapturedEverywhere(t *testing.T) {
	for _, c := range []struct {
		name    string
		all     []captureReport
		failed  string
		refused []string
	}{
		{"good", []captureReport{{Epoch: 1}, {}}, "", nil},
		{"obstacles", []captureReport{{Obstacles: []string{"a"}}, {}, {Obstacles: []string{"b", "c"}}}, "",
			[]string{"rank 0: a", "rank 2: b", "rank 2: c"}},
		{"alone", []captureReport{{Obstacles: []string{"a"}}}, "", []string{"a"}},
		{"failure", []captureReport{{}, {Failure: "x"}}, "checkpoint failed: rank 1: x", nil},
		{"failure alone", []captureReport{{Failure: "x"}}, "checkpoint failed: x", nil},
		// Trying again would not help.
		{"both", []captureReport{{Obstacles: []string{"a"}}, {Failure: "x"}}, "checkpoint failed: rank 1: x", nil},
	} {
		err := capturedEverywhere(c.all)
		var refused *control.RefusedError
		switch {
		case errors.As(err, &refused):
			equal(t, c.name, c.refused, refused.Reasons)
		case err != nil:
			equal(t, c.name, c.failed, err.Error())
		case c.failed != "" || c.refused != nil:
			t.Errorf("%s: no error", c.name)
		}
	}
}

// TestCommit: what an epoch holds is the program as it was when it was stopped.
func TestCommit(t *testing.T) {
	for _, snapshot := range []string{"cow", "stop"} {
		t.Run(snapshot, func(t *testing.T) {
			private, shared := memory(t, privateAt, unix.MAP_PRIVATE), memory(t, sharedAt, unix.MAP_SHARED)
			fill := func(s string) {
				copy(private, s)
				copy(shared, s)
			}
			fill("when it was stopped")
			h := newTestHost(t)
			h.onRelease = func() { fill("some time afterwards") }
			o := testOptions(filepath.Join(t.TempDir(), "ckpt"))
			o.Snapshot = snapshot
			j := start(t, h, o)
			epoch := checkpoint(t, j)
			h.wantRunning()
			wantEpochs(t, j.store, 1)

			m, err := j.store.Manifest(epoch)
			if err != nil {
				t.Fatal(err)
			}
			if m.Ranks != 1 || m.Program != "/bin/program" || m.MPI.Name != "none" || m.TotalSeconds <= 0 || m.StopSeconds < 0 {
				t.Errorf("manifest %+v", m)
			}
			r, err := OpenRestart(o.Dir, true)
			if err != nil {
				t.Fatal(err)
			}
			f, meta, err := r.open(0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			dir, err := os.Getwd()
			if err != nil {
				t.Fatal(err)
			}
			if meta.Epoch != epoch || meta.Dir != dir || meta.Ranks != 1 || meta.Trap != "seccomp" {
				t.Errorf("meta %+v", meta)
			}
			equal(t, "arguments", []string{"program", "-x"}, meta.Args)
			b, err := f.Section(sectionThreads)
			equal(t, "threads", threads, string(b))
			if err != nil {
				t.Error(err)
			}
			for _, at := range []uint64{privateAt, sharedAt} {
				got := make([]byte, len("when it was stopped"))
				if err := f.ReadAt(got, at); err != nil {
					t.Fatal(err)
				}
				equal(t, "memory", "when it was stopped", string(got))
			}
		})
	}
}

// TestHostFails has the first, second, third, ... call of the host fail until a checkpoint gets
// through: the program goes on, nothing is left, and the epoch before is whole.
func TestHostFails(t *testing.T) {
	for _, snapshot := range []string{"cow", "stop"} {
		t.Run(snapshot, func(t *testing.T) {
			h := newTestHost(t)
			o := testOptions(filepath.Join(t.TempDir(), "ckpt"))
			o.Snapshot = snapshot
			j := start(t, h, o)
			good := []int{checkpoint(t, j)}
			var seen []string
			for n := 1; ; n++ {
				h.arm(n)
				state, err := j.Cooperative()
				out := last(t, j)
				h.wantRunning()
				// Whether there are sockets is asked first; what is wrong with a descriptor is said when it is saved.
				sockets := h.failed == "Descriptors" && !slices.Contains(seen, h.failed)
				if h.failed == "" || h.failed == "Freeze" || sockets { // without a frozen child it is written at once
					if state != StateCheckpoint || err != nil || out.Error != "" {
						t.Fatalf("call %d (%s): state %d, %v; %+v", n, h.failed, state, err, out)
					}
					good = append(good, out.Epoch)
					if len(good) > o.Keep {
						good = good[1:]
					}
				} else {
					want := StateError
					if h.failed == "Park" {
						want = StateIgnore
					}
					if state != want || err == nil || out.Error != err.Error() {
						t.Errorf("call %d (%s): state %d, %v; %+v", n, h.failed, state, err, out)
					}
				}
				wantEpochs(t, j.store, good...)
				if h.failed == "" {
					break
				}
				seen = append(seen, h.failed)
			}
			want := []string{"Park", "Descriptors", "Descriptors", "State", "Freeze"}
			if snapshot == "stop" {
				want = want[:4]
			}
			equal(t, "calls that failed", want, seen)
		})
	}
}

// TestDiskFails has each step on the disk fail in turn.
func TestDiskFails(t *testing.T) {
	for _, how := range []string{"error", "enospc"} {
		t.Run(how, func(t *testing.T) {
			memory(t, privateAt, unix.MAP_PRIVATE)[0] = 1 // a page that an image must hold
			h := newTestHost(t)
			j := start(t, h, testOptions(filepath.Join(t.TempDir(), "ckpt")))
			var points []string
			stop := fault.Trace(func(name string) {
				// The lease is renewed at any time, and no attempt waits for that.
				if name != "lease.write" && !slices.Contains(points, name) {
					points = append(points, name)
				}
			})
			good := checkpoint(t, j)
			stop()
			if len(points) < 8 {
				t.Fatalf("steps: %q", points)
			}
			for i, point := range points {
				disarm, err := fault.Arm(point + "=" + how)
				if err != nil {
					t.Fatal(err)
				}
				_, err = j.Cooperative()
				out := last(t, j)
				disarm()
				if out.Error == "" || (err != nil && err.Error() != out.Error) {
					t.Errorf("step %d, %s: %v, %+v", i, point, err, out)
				}
				names(t, out.Error, point)
				h.wantRunning()
				wantEpochs(t, j.store, good)
			}
			s := (*controlled)(j).Status()
			equal(t, "counters", control.Counters{Committed: 1, Failed: len(points)}, s.Counters)
			// Its number was never in use.
			next := checkpoint(t, j)
			wantEpochs(t, j.store, good, next)
		})
	}
}

// TestNumberTaken: another job in the same directory took the number first. Its epoch stays.
func TestNumberTaken(t *testing.T) {
	h := newTestHost(t)
	j := start(t, h, testOptions(filepath.Join(t.TempDir(), "ckpt")))
	image := j.store.ImagePath(1, 0)
	stop := fault.Trace(func(name string) {
		if name == "store.begin.mkdir" {
			if err := os.Mkdir(j.store.EpochDir(1), 0o700); err != nil {
				t.Error(err)
			}
			if err := os.WriteFile(image, []byte("theirs"), 0o600); err != nil {
				t.Error(err)
			}
		}
	})
	state, err := j.Cooperative()
	stop()
	if state != StateError || err == nil {
		t.Errorf("state %d, %v", state, err)
	} else {
		names(t, err.Error(), store.ErrExists.Error())
	}
	h.wantRunning()
	if b, err := os.ReadFile(image); string(b) != "theirs" {
		t.Errorf("what another job writes: %q, %v", b, err)
	}
}

func ask(j *Job, ctx context.Context, then after.Action, progress func(control.Event)) (control.Result, error) {
	return (*controlled)(j).Checkpoint(ctx, control.Request{Then: then}, progress)
}

// TestThen: a program that is to end does not go on after the commit, but does when there is none.
func TestThen(t *testing.T) {
	for then, status := range map[after.Action]int{after.Exit: 7, after.Kill: -1} {
		t.Run(string(then), func(t *testing.T) {
			h := newTestHost(t)
			j := start(t, h, testOptions(filepath.Join(t.TempDir(), "ckpt")))
			disarm, err := fault.Arm("image.write.sync=enospc")
			if err != nil {
				t.Fatal(err)
			}
			_, err = ask(j, t.Context(), then, func(control.Event) {})
			disarm()
			if err == nil {
				t.Fatal("no error when the disk is full")
			}
			names(t, err.Error(), "rank 0", "no space left")
			h.wantRunning()
			wantEpochs(t, j.store)

			res, err := ask(j, t.Context(), then, func(control.Event) {})
			if err != nil || res.Epoch != 1 {
				t.Fatalf("%+v, %v", res, err)
			}
			if !h.parked {
				t.Error("the program went on after the commit")
			}
			wantEpochs(t, j.store, 1)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				(*controlled)(j).Finish(then)
			}()
			<-ended
			equal(t, "ends", []int{status}, h.ends)
			if _, err := j.store.ReadJob(); !errors.Is(err, store.ErrNoJob) {
				t.Errorf("job.json of a job that has ended: %v", err)
			}
		})
	}
}

// TestChildInTheWay: while a child runs nothing is saved; the request waits until it has ended.
func TestChildInTheWay(t *testing.T) {
	h := newTestHost(t)
	j := start(t, h, testOptions(filepath.Join(t.TempDir(), "ckpt")))
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	inTheWay := func(e control.Event) bool { return strings.Contains(e.Detail, "(cat) is not finished") }

	ctx, cancel := context.WithCancel(t.Context())
	_, err = ask(j, ctx, after.Continue, func(e control.Event) {
		if inTheWay(e) {
			cancel()
		}
	})
	var refused *control.RefusedError
	if !errors.As(err, &refused) {
		t.Errorf("with a child: %v", err)
	}
	h.wantRunning()
	wantEpochs(t, j.store)

	tries := 0
	res, err := ask(j, t.Context(), after.Continue, func(e control.Event) {
		if inTheWay(e) {
			if tries++; tries == 3 {
				in.Close()
				_ = child.Wait()
			}
		}
	})
	if err != nil || res.Epoch != 1 || tries != 3 {
		t.Errorf("%+v, %v after %d tries", res, err, tries)
	}
	h.wantRunning()
	wantEpochs(t, j.store, 1)
}
