// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// program returns the program of that name.
func program(t *testing.T, name string) Program {
	t.Helper()
	for _, p := range Programs {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no program %q", name)
	return Program{}
}

// checkpoint has the job in the run's folder saved and returns what ckptctl said on stderr.
func checkpoint(t *testing.T, run *Run, mark Mark, name, then string) (Exit, string) {
	t.Helper()
	control, err := NewRun(filepath.Join(run.Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	p, err := control.Start(mark, built.CkptCtl(), "checkpoint", run.Checkpoints(), "--then", then, "--timeout", checkpointLimit.String())
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait(checkpointLimit + patience)
	if err != nil {
		t.Fatal(err)
	}
	said, err := os.ReadFile(control.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return exit, string(said)
}

// restart restarts the run's job into a fresh copy of its output and returns how that ended.
func restart(t *testing.T, run *Run, name, from string) (*Run, string) {
	t.Helper()
	again, err := NewRun(filepath.Join(run.Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Once(3*time.Minute, built.CkptRun(), "--restart", from); err != nil {
		t.Fatal(err)
	}
	said, err := os.ReadFile(again.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return again, string(said)
}

// An image that was cut or in which a bit flipped is refused by name and section wherever the damage
// is; the epoch before it still continues the program to its end.
func TestDamagedImage(t *testing.T) {
	needCommands(t)
	p := program(t, "nonpie")
	want := native(t, p)
	run, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mark := NewMark()
	defer mark.KillAll()
	argv, err := built.Command(p, work(t, p), run.Work())
	if err != nil {
		t.Fatal(err)
	}
	proc, err := run.Start(mark, append([]string{built.CkptRun(), "--dir", run.Checkpoints(), "--compress", "none", "--"}, argv...)...)
	if err != nil {
		t.Fatal(err)
	}
	chain := Chain{Run: run, Built: built}
	if !Poll(patience, proc.Done(), func() bool { return chain.jobOf(proc) }) {
		t.Fatalf("the job does not tell of itself\n%s", Dump(mark.Processes()))
	}
	for i, then := range []string{"continue", "kill"} {
		if exit, said := checkpoint(t, run, mark, fmt.Sprintf("save-%d", i+1), then); exit != (Exit{}) {
			t.Fatalf("checkpoint %d: %v: %s", i+1, exit, said)
		}
	}
	if _, err := proc.Wait(patience); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(run.Checkpoints(), "epoch-000002", "rank-00000.ckpt")
	whole, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(filepath.Dir(image), "manifest.json")
	manifestText, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	flipped := func(at int) []byte {
		b := append([]byte(nil), whole...)
		b[at] ^= 0x10
		return b
	}
	cases := map[string][]byte{
		"flipped in the header":    flipped(9),
		"flipped near the start":   flipped(len(whole) / 50),
		"flipped in the middle":    flipped(len(whole) / 2),
		"flipped near the end":     flipped(len(whole) * 49 / 50),
		"flipped in the last byte": flipped(len(whole) - 1),
		"cut in the middle":        whole[:len(whole)/2],
		"one byte short":           whole[:len(whole)-1],
		"empty":                    nil,
		"one byte more":            append(append([]byte(nil), whole...), 0),
	}
	n := 0
	for name, content := range cases {
		n++
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(image, content, 0o600); err != nil {
				t.Fatal(err)
			}
			again, said := restart(t, run, fmt.Sprintf("damaged-%d", n), run.Checkpoints()+"@2")
			if again.Exit != (Exit{Code: 1}) {
				t.Errorf("%v, expected exit status 1", again.Exit)
			}
			for _, word := range []string{"rank-00000.ckpt", "@1"} { // which file, and what to do instead
				if !strings.Contains(said, word) {
					t.Errorf("it said %q, which does not contain %q", said, word)
				}
			}
			if !damagedPart.MatchString(said) {
				t.Errorf("it said %q, which does not say where", said)
			}
			if out, _ := os.ReadFile(again.Stdout); len(out) > 0 {
				t.Errorf("the program ran and wrote %q", out)
			}
		})
	}
	t.Run("manifest cut", func(t *testing.T) {
		writeFile(t, image, whole)
		writeFile(t, manifest, manifestText[:len(manifestText)/2])
		again, said := restart(t, run, "manifest", run.Checkpoints()+"@2")
		if again.Exit == (Exit{}) || !strings.Contains(said, "manifest") {
			t.Errorf("%v: %q", again.Exit, said)
		}
		writeFile(t, manifest, manifestText)
	})
	t.Run("image lost", func(t *testing.T) {
		if err := os.Remove(image); err != nil {
			t.Fatal(err)
		}
		again, said := restart(t, run, "lost", run.Checkpoints()+"@2")
		if again.Exit != (Exit{Code: 1}) || !strings.Contains(said, "rank-00000.ckpt") {
			t.Errorf("%v: %q", again.Exit, said)
		}
	})
	t.Run("the epoch before", func(t *testing.T) {
		writeFile(t, image, flipped(len(whole)/2))
		log := filepath.Join(t.TempDir(), "said")
		proc, err := run.Start(mark, telling(log, built.CkptRun(), "--restart", run.Checkpoints())...)
		if err != nil {
			t.Fatal(err)
		}
		if run.Exit, err = proc.Wait(3 * time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := want.Same(run); err != nil {
			t.Error(err)
		}
		said := string(mustRead(t, log))
		if !damagedPart.MatchString(said) || strings.Count(said, "taken instead: epoch 1\n") != 1 || !strings.Contains(said, "epoch 2 is lost: "+image) {
			t.Errorf("it said %q", said)
		}
	})
}

// damagedPart is how a message says where an image is damaged.
var damagedPart = regexp.MustCompile(`(section "\w+"|pages 0x[0-9a-f]+-0x[0-9a-f]+|header|index|footer) at offset \d+: `)

// When the disk is full the checkpoint fails with that reason, the program goes on to its end, and the
// epoch before still restarts.
func TestFullDisk(t *testing.T) {
	needCommands(t)
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	p := program(t, "sync")
	want := native(t, p)
	run, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	smallDisk(t, run.Checkpoints(), 16<<20)
	mark := NewMark()
	defer mark.KillAll()
	argv, err := built.Command(p, work(t, p), run.Work())
	if err != nil {
		t.Fatal(err)
	}
	proc, err := run.Start(mark, append([]string{built.CkptRun(), "--dir", run.Checkpoints(), "--"}, argv...)...)
	if err != nil {
		t.Fatal(err)
	}
	chain := Chain{Run: run, Built: built}
	if !Poll(patience, proc.Done(), func() bool { return chain.jobOf(proc) }) {
		t.Fatalf("the job does not tell of itself\n%s", Dump(mark.Processes()))
	}
	if exit, said := checkpoint(t, run, mark, "good", "continue"); exit != (Exit{}) {
		t.Fatalf("the first checkpoint: %v: %s", exit, said)
	}
	saved, err := os.Stat(run.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	fillDisk(t, run.Checkpoints())
	exit, said := checkpoint(t, run, mark, "full", "kill")
	if exit != (Exit{Code: 1}) || !strings.Contains(said, "no space left") {
		t.Errorf("checkpoint on a full disk: %v: %q", exit, said)
	}
	if run.Exit, err = proc.Wait(3 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if run.Exit != want.Exit {
		t.Errorf("the program ended with %v after the failed checkpoint, natively with %v", run.Exit, want.Exit)
	}
	if got, err := os.ReadFile(run.Stdout); err != nil || firstDifference(mustRead(t, want.Stdout), got) >= 0 {
		t.Errorf("the program's output is %q after the failed checkpoint (%v)", got, err)
	}
	if err := os.Truncate(run.Stdout, saved.Size()); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(run.Stderr, 0); err != nil {
		t.Fatal(err)
	}
	proc, err = run.Start(mark, built.CkptRun(), "--restart", run.Checkpoints())
	if err != nil {
		t.Fatal(err)
	}
	if run.Exit, err = proc.Wait(3 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := want.Same(run); err != nil {
		t.Errorf("the epoch from before: %v", err)
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
