// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFallbackFiles: what is kept of a file of the program beside the image of the newest epoch is gone, cut short or
// rotten, and the file itself is gone. A restart continues the older epoch, as it does when an image is damaged, with the
// file as it was then; while the file itself is sound, nothing is lost.
func TestFallbackFiles(t *testing.T) {
	needCommands(t)
	run, err := NewRun(t.TempDir())
	must(t, err)
	mark := NewMark()
	t.Cleanup(mark.KillAll)
	out, hold := filepath.Join(run.Dir, "out"), filepath.Join(run.Dir, "hold")
	argv := append([]string{built.CkptRun()}, options()...)
	p, err := run.Start(mark, append(argv, "--dir", run.Checkpoints(), "--files-copy", "0", "--", "/usr/bin/python3", filepath.Join(built.Src, "appends.py"), out, hold)...)
	must(t, err)
	const step = 400_000
	for n := 1; n <= 3; n++ {
		if !Poll(patience, p.Done(), func() bool { st, err := os.Stat(out); return err == nil && st.Size() == int64(n*step) }) {
			t.Fatalf("step %d is not there: %s", n, mustRead(t, run.Stderr))
		}
		if n == 3 {
			break
		}
		if exit, said := checkpoint(t, run, mark, fmt.Sprintf("checkpoint-%d", n), "continue"); exit != (Exit{}) {
			t.Fatalf("checkpoint %d: %v: %s", n, exit, said)
		}
		writeFile(t, fmt.Sprintf("%s.%d", hold, n), nil)
	}
	writeFile(t, hold+".3", nil)
	p.Kill()
	var content []byte
	for n := 1; n <= 3; n++ {
		content = append(content, bytes.Repeat([]byte{byte(64 + n)}, step)...)
	}
	want := fmt.Sprintf("appends: %x\n", sha256.Sum256(content))
	good := filepath.Join(run.Dir, "good")
	must(t, os.Rename(run.Checkpoints(), good))
	kept := filepath.Join(run.Checkpoints(), "epoch-000002", "rank-00000-file-000")
	// A copy of the directory has files of its own where the epochs of the job had names of the same.
	fresh := func(t *testing.T, file []byte) {
		t.Helper()
		must(t, os.RemoveAll(run.Checkpoints()))
		if b, err := exec.Command("cp", "-r", "--preserve=mode,timestamps", good, run.Checkpoints()).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		_ = os.Remove(out)
		if file != nil {
			writeFile(t, out, file)
		}
	}
	goOn := func(t *testing.T, options ...string) (*Run, string) {
		t.Helper()
		again, err := NewRun(t.TempDir())
		must(t, err)
		must(t, again.Once(patience, append(append([]string{built.CkptRun()}, options...), "--restart", run.Checkpoints())...))
		return again, string(mustRead(t, again.Stderr))
	}
	ends := func(t *testing.T, words ...string) {
		t.Helper()
		again, said := goOn(t)
		if got := string(mustRead(t, again.Stdout)); again.Exit != (Exit{}) || got != want {
			t.Errorf("%v, printed %q, want %q: %s", again.Exit, got, want, said)
		}
		for _, w := range words {
			if strings.Count(said, w) != 1 {
				t.Errorf("want %q once: %s", w, said)
			}
		}
		if len(words) == 0 && said != "" {
			t.Errorf("said %q", said)
		}
	}
	for _, c := range []struct {
		name string
		hurt func(t *testing.T)
		what string
	}{
		{"gone", func(t *testing.T) { must(t, os.Remove(kept)) }, "no such file"},
		{"cut short", func(t *testing.T) { must(t, os.Truncate(kept, step+1)) }, "has 400001 bytes, fewer than the 800000 it had"},
		{"rotten", func(t *testing.T) { flip(t, kept, 2*step-1) }, "has other bytes than it had from "},
	} {
		t.Run(c.name, func(t *testing.T) {
			fresh(t, nil)
			c.hurt(t)
			verified, err := NewRun(t.TempDir())
			must(t, err)
			must(t, verified.Once(patience, built.CkptCtl(), "verify", run.Checkpoints()))
			if said := string(mustRead(t, verified.Stdout)); verified.Exit.Code != 1 || !strings.Contains(said, kept) {
				t.Errorf("ckptctl verify: %v: %s", verified.Exit, said)
			}
			again, said := goOn(t, "--fallback", "no")
			for _, w := range []string{kept + ", in which " + out + " is kept, is damaged or lost: ", c.what, "--files ignore", run.Checkpoints() + "@1"} {
				if again.Exit.Code != 1 || strings.Count(said, w) != 1 {
					t.Errorf("--fallback no: %v, want %q once: %s", again.Exit, w, said)
				}
			}
			if _, err := os.Lstat(out); err == nil {
				t.Error("a refused restart has put the file back")
			}
			ends(t, "epoch 2 is lost: "+kept+", in which "+out+" is kept, is damaged or lost: ", c.what, "; taken instead: epoch 1")
		})
	}
	t.Run("not needed", func(t *testing.T) {
		fresh(t, content)
		must(t, os.Remove(kept))
		ends(t)
	})
}
