// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Signals come once, and in the order of their sender, also those that were under way when the job was saved, by
// any launcher; and so without ckptrun.
func TestWholeSignals(t *testing.T) {
	const rounds, every = 800, 100
	native := newWholeOf(t, letters, rounds, every)
	must(t, native.Natively())
	must(t, native.MustEnd(wholeLimit))
	for _, launcher := range []string{"shell", "mpich", "openmpi"} {
		t.Run(launcher, func(t *testing.T) {
			t.Parallel()
			w := newWholeOf(t, letters, rounds, every)
			must(t, w.Start(launcher))
			for range 3 {
				if !awaitEpochAfter(t, w, epochOf(t, w)) {
					t.Fatalf("it ended before it was killed:\n%s", w.Said())
				}
				must(t, w.Kill(wholeLimit, true))
				must(t, w.Restart(launcher))
			}
			must(t, w.MustEnd(wholeLimit))
			if err := w.Same(native); err != nil {
				t.Errorf("%v\n%s", err, w.Said())
			}
		})
	}
}

// Wrong arguments get their code and a sentence, the same with and without ckptrun.
func TestWholeSignalsWrong(t *testing.T) {
	t.Parallel()
	const kinds = "kinds are 0x1000 to 0xfeff, and at most 65536 bytes"
	want := []string{
		`kind below: -1 .*kind 0xfff .*` + kinds, `kind above: -1 .*` + kinds, `kind far above: -1 .*` + kinds,
		`process below: -1 .*process -1 of 4: .*`, `process above: -1 .*process 4 of 4: .*`,
		`too long: -1 .*65537 bytes .*` + kinds, `tag: -1 tag 0x4000000000000000 is not below 2\^62`,
		`handler's kind: -1 .*`, `no room: -1 ckpt_signal_recv was given no job, or no room`,
		`no length: -1 ckpt_signal_recv was given no job, or no room`, `no job: -1 .*`, `none there: 0 `, `longest: 0 `, `longest: 65536`,
		`empty: 0 `, `empty: 0, from itself: 1`, `sizes: -1 process \d gives [48] bytes to an all-gather, this one [48]`, `barrier: 0 `,
	}
	for _, under := range []string{"", "ckptrun"} {
		w := newWholeOf(t, letters, "wrong")
		if under == "" {
			must(t, w.Natively())
		} else {
			must(t, w.Start("shell"))
		}
		must(t, w.MustEnd(wholeLimit))
		for r := range w.Ranks {
			got := strings.Split(strings.TrimSuffix(string(mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, r))), "\n"), "\n")
			for i := range max(len(want), len(got)) {
				if i >= len(want) || i >= len(got) || !regexp.MustCompile("^"+want[i]+"$").MatchString(got[i]) {
					t.Errorf("%q, rank %d, line %d of %q, want %q", under, r, i, got, want)
					break
				}
			}
		}
	}
}

// An epoch of a whole job as operators see it, and what a restart of it refuses.
func TestWholeWords(t *testing.T) {
	t.Parallel()
	const steps, every = 400, 50
	native := relayNatively(t, steps, every)
	w := newWhole(t, steps, every)
	must(t, w.Start("shell", "--keep", "4"))
	must(t, w.MustEnd(wholeLimit))
	last, dir := epochOf(t, w), w.Run.Checkpoints()
	said := func(argv ...string) string {
		t.Helper()
		exit, text, err := w.Ckptctl(t.TempDir(), wholeLimit, argv...)
		if err != nil || exit != (Exit{}) {
			t.Errorf("ckptctl %v: %v: %s %v", argv, exit, text, err)
		}
		return text
	}
	for _, c := range []struct{ argv, want string }{
		{"ls", fmt.Sprintf(`(?m)^%d +committed .* 4 .*relay 1 `, last)},
		{"verify", `.`},
		{"inspect", `(?s)ranks +4 on .*MPI +relay 1 .*whole`},
		{"plan --mtbf 1h", `.`},
	} {
		if text := said(append(strings.Fields(c.argv), dir)...); !regexp.MustCompile(c.want).MatchString(text) {
			t.Errorf("ckptctl %s: %s, want %s", c.argv, text, c.want)
		}
	}
	for r := range w.Ranks { // no descriptor of a closed rail is in an image
		if text := said("inspect", dir, "--rank", fmt.Sprint(r)); strings.Contains(text, "socket") {
			t.Errorf("rank %d: %s", r, text)
		}
	}

	refused := func(name, want string, change func(*Whole), options ...string) {
		t.Helper()
		x := *w
		x.RankEnv, x.Env = nil, nil
		x.Run, _ = NewRun(t.TempDir())
		must(t, os.Symlink(dir, x.Run.Checkpoints()))
		x.Files = RankFiles(filepath.Join(x.Run.Dir, "rank"))
		change(&x)
		must(t, x.Restart("shell", options...))
		exits, err := x.Wait(wholeLimit)
		must(t, err)
		if text := x.Said(); slices.Contains(exits, Exit{}) || !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%s: %v: %s, want %s", name, exits, text, want)
		}
	}
	refused("fewer", `epoch \d+ has 4 ranks, but 3 were started`, func(x *Whole) { x.Ranks = 3 })
	refused("more", `epoch \d+ has 4 ranks, but 5 were started`, func(x *Whole) { x.Ranks = 5 })
	refused("bad rank", `CKPT_RANK is "x", want the number of a rank`, func(x *Whole) { x.Ranks = 1; x.RankEnv = map[int][]string{0: {"CKPT_RANK=x", "CKPT_SIZE=4"}} })
	refused("rank too high", `CKPT_RANK is 4 and CKPT_SIZE is 4: ranks are 0 to 3`, func(x *Whole) { x.Ranks = 1; x.RankEnv = map[int][]string{0: {"CKPT_RANK=4", "CKPT_SIZE=4"}} })
	refused("half", `CKPT_RANK is "0" and CKPT_SIZE is ""`, func(x *Whole) { x.Ranks = 1; x.RankEnv = map[int][]string{0: {"CKPT_SIZE="}} })

	// Nothing of that has hurt it.
	said("gc", dir, "--keep", "1")
	must(t, w.Restart("shell"))
	must(t, w.MustEnd(wholeLimit))
	if err := w.Same(native); err != nil {
		t.Errorf("%v\n%s", err, w.Said())
	}
}

// --signal and --interval ask, and --then ends all ranks as it says.
func TestWholeRequests(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []string
		argv    []string // of ckptctl
		signal  syscall.Signal
		exit    Exit // of each rank
	}{
		{name: "exit", options: []string{"--exit-code", "7"}, argv: []string{"--then", "exit"}, exit: Exit{Code: 7}},
		{name: "kill", argv: []string{"--then", "kill"}, exit: Exit{Signal: syscall.SIGKILL}},
		{name: "signal", options: []string{"--signal", "USR1=exit", "--exit-code", "3"}, signal: syscall.SIGUSR1, exit: Exit{Code: 3}},
		{name: "interval", options: []string{"--interval", "200ms"}, exit: Exit{Signal: syscall.SIGKILL}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWhole(t, 1<<40, 0) // only a request ends it
			must(t, w.Start("shell", c.options...))
			switch {
			case c.argv != nil:
				exit, said, err := w.Ckptctl(t.TempDir(), wholeLimit, append([]string{"checkpoint", w.Run.Checkpoints(), "--timeout", "60s"}, c.argv...)...)
				if err != nil || exit != (Exit{}) {
					t.Fatalf("%v %s %v\n%s", exit, said, err, w.Said())
				}
			case c.signal != 0:
				awaitJob(t, w)
				ranks := w.Mark.Ranks()
				signal(t, ranks[len(ranks)-1], c.signal) // any rank may get it
			}
			if c.name == "interval" {
				for range 3 {
					if !awaitEpochAfter(t, w, epochOf(t, w)) {
						t.Fatalf("it has ended\n%s", w.Said())
					}
				}
				must(t, w.Kill(wholeLimit, true))
			}
			exits, err := w.Wait(wholeLimit)
			must(t, err)
			for r, exit := range exits {
				if exit != c.exit {
					t.Errorf("rank %d: %v, want %v\n%s", r, exit, c.exit, w.Said())
				}
			}
			if epochOf(t, w) == 0 {
				t.Errorf("there is no epoch\n%s", w.Said())
			}
			verifies(t, w)
		})
	}
}

// A runtime that was compiled against the headers of version 1.0 is saved with its program, as one of today is.
func TestWholeOutsidersRuntime(t *testing.T) {
	t.Parallel()
	for name, headers := range outsidersHeaders() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, err := NewWhole(built, t.TempDir(), buildRuntime(t, "runtime", headers), "alone")
			must(t, err)
			t.Cleanup(w.Mark.KillAll)
			w.Ranks = 1
			printed := func(want string) {
				t.Helper()
				if !Poll(wholeLimit, nil, func() bool { text, _ := w.Printed("out"); return text == want }) {
					text, _ := w.Printed("out")
					t.Fatalf("it prints %q, want %q\n%s", text, want, w.Said())
				}
			}
			must(t, w.Start("shell"))
			printed("alone: 0 checkpoint, restarted 0, 4711 \n")
			if !awaitEpochAfter(t, w, 0) {
				t.Fatalf("it has ended\n%s", w.Said())
			}
			must(t, w.Kill(wholeLimit, true))
			must(t, w.Restart("shell"))
			must(t, w.MustEnd(wholeLimit))
			printed("alone: 0 restart, restarted 1, 1 \n") // rebuild has given the handle
		})
	}
}

// What --whole is not for is said: a program that opens no job, and an epoch of a program without its MPI.
func TestWholeOfOthers(t *testing.T) {
	t.Parallel()
	w, err := NewWhole(built, t.TempDir(), "/bin/true")
	must(t, err)
	t.Cleanup(w.Mark.KillAll)
	w.Ranks = 1
	must(t, w.Start("shell"))
	must(t, w.MustEnd(wholeLimit))
	if said := w.Said(); !strings.Contains(said, "/true has ended and has not called ckpt_open, so it could not be saved") {
		t.Errorf("it ends with %q", said)
	}

	w, err = NewWhole(built, t.TempDir(), "/bin/sleep", "1000")
	must(t, err)
	t.Cleanup(w.Mark.KillAll)
	w.Ranks = 1
	p, err := w.Run.Start(w.Mark, built.CkptRun(), "--dir", w.Run.Checkpoints(), "--", "/bin/sleep", "1000")
	must(t, err)
	exit, said, err := w.Ckptctl(t.TempDir(), wholeLimit, "checkpoint", w.Run.Checkpoints(), "--timeout", "60s", "--then", "kill")
	if err != nil || exit != (Exit{}) {
		t.Fatalf("%v %s %v", exit, said, err)
	}
	_, err = p.Wait(wholeLimit)
	must(t, err)
	must(t, w.Restart("shell"))
	exits, err := w.Wait(wholeLimit)
	must(t, err)
	if said := w.Said(); exits[0] == (Exit{}) || !strings.Contains(said, "is of a program whose MPI was not saved with it: leave --whole out") {
		t.Errorf("%v: %q", exits, said)
	}
}
