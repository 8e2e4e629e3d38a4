// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// told is what relay.c says that a rank was told of a checkpoint.
type told struct{ who, state, opened, text string }

var toldLine = regexp.MustCompile(`(?m)^relay: rank \d+: (\w+): (\w+), opened for (\d+): (.*)$`)

// toldTo lists what a rank was told, in order.
func toldTo(t *testing.T, w *Whole, rank int) []told {
	t.Helper()
	text := mustRead(t, fmt.Sprintf("%s.err.%d", w.Files, rank))
	var list []told
	for _, m := range toldLine.FindAllStringSubmatch(string(text), -1) {
		list = append(list, told{m[1], m[2], m[3], m[4]})
	}
	return list
}

// verifies checks that all epochs are whole.
func verifies(t *testing.T, w *Whole) {
	t.Helper()
	exit, said, err := w.Ckptctl(t.TempDir(), wholeLimit, "verify", w.Run.Checkpoints())
	if err != nil || exit != (Exit{}) {
		t.Errorf("ckptctl verify: %v: %s %v", exit, said, err)
	}
}

// Each callback fails once, on rank 1, in the second of four checkpoints: all ranks are told the same, in the runtime's
// own words, the rails are open again, and the next checkpoint is made. The job ends with the right result, and so
// does one that continues the last epoch.
func TestWholeCallbacks(t *testing.T) {
	const steps, every = 400, 100
	native := relayNatively(t, steps, every)
	for _, c := range []struct{ fault, state, opened, text string }{ // opened: the last reason to open the rail
		{"holds", "ignore", "1", "rank 1: the test holds it back"},
		{"quiesce", "error", "1", "rank 1: keeping the runtime out of its rails (quiesce): the test wants it so"},
		{"drain", "ignore", "1", "rank 1: receiving what is under way: the test wants it so"},
		{"quiet", "ignore", "1", "rank 1: rail tcp: quiet: the test wants it so"},
		{"close", "ignore", "3", "rank 1: rail tcp cannot be closed: the test wants it so"},
		{"reopen", "error", "1", "rank 1: no rail could be opened: tcp: the test wants it so"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			w := newWhole(t, steps, every, c.fault, 2)
			must(t, w.Start("shell", "--keep", "10"))
			must(t, w.MustEnd(wholeLimit))
			if err := w.Same(native); err != nil {
				t.Error(err)
			}
			want := []told{{"called", "checkpoint", "1", ""}, {"called", c.state, c.opened, c.text}, {"called", "checkpoint", "1", ""}, {"called", "checkpoint", "1", ""}}
			if c.state == "error" { // it is called again
				want = append(want, told{"called", "checkpoint", "1", ""})
			}
			first := toldTo(t, w, 0)
			for r := range w.Ranks {
				got := toldTo(t, w, r)
				if fmt.Sprint(got) != fmt.Sprint(first) {
					t.Errorf("rank %d was told\n%q, rank 0\n%q", r, got, first)
				}
				for i := range got {
					if i < len(want) && strings.Contains(got[i].text, want[i].text) {
						got[i].text = want[i].text // others may say that they waited for it
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("rank %d was told\n%q, want\n%q", r, got, want)
				}
			}
			verifies(t, w)
			must(t, w.Restart("shell"))
			must(t, w.MustEnd(wholeLimit))
			if err := w.Same(native); err != nil {
				t.Errorf("continued: %v", err)
			}
		})
	}
}

// Requests whose time ends at any moment of a checkpoint: none makes the ranks disagree, so the job goes on.
func TestWholeDeadlines(t *testing.T) {
	t.Parallel()
	const steps, every = 2000, 100
	native := relayNatively(t, steps, every)
	w := newWhole(t, steps, every)
	must(t, w.Start("shell"))
	if !awaitEpochAfter(t, w, 0) {
		t.Fatalf("it ended before it was saved:\n%s", w.Said())
	}
	made, refused, dir := 0, 0, t.TempDir()
	for n := 0; !w.Ended(); n++ {
		limit := rand.N(200 * time.Millisecond)
		exit, said, err := w.Ckptctl(filepath.Join(dir, fmt.Sprint(n)), wholeLimit, "checkpoint", w.Run.Checkpoints(), "--timeout", limit.String())
		switch {
		case err != nil:
			t.Fatal(err)
		case exit == (Exit{}):
			made++
		case strings.Contains(said, "given up in stage"):
			refused++
		}
	}
	must(t, w.MustEnd(wholeLimit))
	if err := w.Same(native); err != nil {
		t.Errorf("%v\n%s", err, w.Said())
	}
	t.Logf("%d requests were in time, %d were not", made, refused)
	if refused == 0 {
		t.Error("no time was over")
	}
	verifies(t, w)
}

// A runtime that never looks whether somebody asks is named, the request ends, and the job goes on.
func TestWholeMute(t *testing.T) {
	for _, option := range []string{"timeout", "patience"} {
		t.Run(option, func(t *testing.T) {
			t.Parallel()
			w := newWhole(t, 1<<40, 0, "mute")
			w.Env = append(w.Env, "RELAY_TELL=50")
			must(t, w.Start("shell"))
			argv := []string{"checkpoint", w.Run.Checkpoints(), "--timeout", "4s"}
			want := regexp.MustCompile(`no epoch within \d.*rank 1 is not done; the job goes on`)
			if option == "patience" {
				awaitJob(t, w)
				argv, want = argv[:2], regexp.MustCompile("a runtime has not come to the checkpoint in 15s.*rank 1 is not done; the job goes on")
			}
			answer := make(chan string, 1)
			go func() {
				exit, said, err := w.Ckptctl(t.TempDir(), wholeLimit, argv...)
				answer <- fmt.Sprint(exit, " ", said, err)
			}()
			muted := regexp.MustCompile(`(?m)^1 .*the runtime has not looked for [1-9]\d*s`)
			var status string
			if !Poll(wholeLimit, nil, func() bool {
				_, status, _ = w.Ckptctl(t.TempDir(), wholeLimit, "status", w.Run.Checkpoints())
				return muted.MatchString(status) || len(answer) > 0
			}) || !muted.MatchString(status) {
				t.Errorf("the status does not name it:\n%s", status)
			}
			if n := strings.Count(status, "has not looked"); n > 1 {
				t.Errorf("%d ranks have not looked:\n%s", n, status)
			}
			select {
			case said := <-answer:
				if !strings.HasPrefix(said, "exit status 1 ") || !want.MatchString(said) {
					t.Errorf("ckptctl checkpoint: %s, want %q", said, want)
				}
			case <-time.After(wholeLimit):
				t.Fatalf("the request does not end\n%s", w.Said())
			}
			// The others were there, and the relay goes on with all of them.
			before := stepsOf(t, w)
			if !Poll(wholeLimit, nil, func() bool { return w.Ended() || stepsOf(t, w) > before+2 }) || w.Ended() {
				t.Errorf("the job does not go on\n%s", w.Said())
			}
			for r := range w.Ranks {
				if got := toldTo(t, w, r); r != 1 && (len(got) == 0 || got[0].state != "error" && got[0].state != "ignore") {
					t.Errorf("rank %d was told %q", r, got)
				}
			}
			must(t, w.Kill(wholeLimit, true))
		})
	}
}

// stepsOf counts what the ranks have told of their steps.
func stepsOf(t *testing.T, w *Whole) int {
	t.Helper()
	text, err := w.Printed("out")
	must(t, err)
	return strings.Count(text, ": step ")
}

// awaitJob waits until the job answers.
func awaitJob(t *testing.T, w *Whole) {
	t.Helper()
	if !Poll(wholeLimit, nil, func() bool {
		exit, _, err := w.Ckptctl(t.TempDir(), wholeLimit, "status", w.Run.Checkpoints())
		return err == nil && exit == (Exit{})
	}) {
		t.Fatalf("the job does not answer\n%s", w.Said())
	}
}

// A restart in which a process is missing, or there is one too many, ends with words everywhere, and harms nothing.
func TestWholeOtherNumber(t *testing.T) {
	t.Parallel()
	const steps, every = 400, 100
	native := relayNatively(t, steps, every)
	w := newWhole(t, steps, every)
	must(t, w.Start("shell"))
	must(t, w.MustEnd(wholeLimit))
	for _, c := range []struct {
		ranks  int
		absent map[int]bool
		words  string
	}{
		{4, map[int]bool{1: true, 2: true}, "ranks 1 and 2 have not come"},
		{5, nil, "epoch 4 has 4 ranks, but 5 were started"},
	} {
		w.Ranks, w.Absent = c.ranks, c.absent
		must(t, w.Restart("shell"))
		exits, err := w.Wait(wholeLimit)
		must(t, err)
		for i, exit := range exits {
			if exit == (Exit{}) {
				t.Errorf("%q: process %d ends as if all were well", c.words, i)
			}
		}
		if said := w.Said(); !strings.Contains(said, c.words) {
			t.Errorf("nobody says %q:\n%s", c.words, said)
		}
		verifies(t, w)
	}
	w.Ranks, w.Absent = 4, nil
	must(t, w.Restart("shell"))
	must(t, w.MustEnd(wholeLimit))
	must(t, w.Same(native))
}

// A rank dies when all rails are closed, and nobody has been captured yet; or its runtime ends in the program's call.
// There is no epoch of that checkpoint, the others end, with words, and the one before restarts.
func TestWholeKilledRank(t *testing.T) {
	const steps, every = 400, 100
	native := relayNatively(t, steps, every)
	for _, c := range []struct {
		name, launcher string
		arm            func(*Whole)
	}{
		{"closed", "shell", func(w *Whole) { w.RankEnv = map[int][]string{1: {"CKPT_FAULT=ckpt.closed=kill:2"}} }},
		{"closed0", "shell", func(w *Whole) { w.RankEnv = map[int][]string{0: {"CKPT_FAULT=ckpt.closed=kill:2"}} }},
		{"left", "shell", func(w *Whole) { w.Argv = append(w.Argv, "leave", "3") }},
		{"left", "mpich", func(w *Whole) { w.Argv = append(w.Argv, "leave", "3") }},
	} {
		t.Run(c.name+"/"+c.launcher, func(t *testing.T) {
			t.Parallel()
			w := newWhole(t, steps, every)
			w.CkptRun = filepath.Join(built.Root, "build/obj/faults/bin/ckptrun")
			c.arm(w)
			must(t, w.Start(c.launcher))
			exits, err := w.Wait(wholeLimit)
			must(t, err)
			for i, exit := range exits {
				if exit == (Exit{}) {
					t.Errorf("process %d ends as if all were well", i)
				}
			}
			said := w.Said()
			if !strings.Contains(said, "rank 1") && !strings.Contains(said, "rank 0") {
				t.Errorf("nobody says who is lost:\n%s", said)
			}
			// A call waits for the epoch before, so the one before that was committed when a rank left.
			if n := epochOf(t, w); n != 1 && (c.name != "left" || n != 2) {
				t.Errorf("the last epoch is %d, not the first\n%s", n, said)
			}
			verifies(t, w)
			w.RankEnv = nil
			if c.name == "left" { // the image has the fault, so that comes again
				must(t, w.Restart(c.launcher))
				if exits, err = w.Wait(wholeLimit); err != nil || exits[0] == (Exit{}) {
					t.Errorf("%v %v", exits, err)
				}
				return
			}
			must(t, w.Restart(c.launcher))
			must(t, w.MustEnd(wholeLimit))
			if err := w.Same(native); err != nil {
				t.Errorf("%v\n%s", err, w.Said())
			}
		})
	}
}
