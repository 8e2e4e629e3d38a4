// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A large file that is mapped to be read is not in the image. A restart maps it again if it is what it was, and else says so.
func TestTable(t *testing.T) {
	needCommands(t)
	run, mark := runOf(t)
	program := []string{filepath.Join(built.Bin, "table"), "5000", run.Dir}
	p, err := run.Start(mark, append([]string{built.CkptRun(), "--dir", run.Checkpoints(), "--"}, program...)...)
	must(t, err)
	path := filepath.Join(run.Dir, "table.dat")
	written := func() bool { st, err := os.Stat(path); return err == nil && st.Size() == 80<<20-100 }
	if !Poll(patience, p.Done(), written) {
		t.Fatalf("it does not begin\n%s", mustRead(t, run.Stderr))
	}
	time.Sleep(200 * time.Millisecond) // it maps it
	asked, err := NewRun(t.TempDir())
	must(t, err)
	must(t, asked.Once(checkpointLimit, built.CkptCtl(), "checkpoint", run.Checkpoints(), "--then", "kill"))
	if asked.Exit != (Exit{}) {
		t.Fatalf("%v: %s", asked.Exit, mustRead(t, asked.Stderr))
	}
	_, err = p.Wait(time.Minute)
	must(t, err)
	st, err := os.Stat(filepath.Join(run.Checkpoints(), "epoch-000001", "rank-00000.ckpt"))
	must(t, err)
	if st.Size() > 32<<20 {
		t.Errorf("the image has %d bytes", st.Size())
	}
	was, err := os.Stat(path)
	must(t, err)
	write := func(b []byte) (before []byte) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		before = make([]byte, len(b))
		_, err = f.ReadAt(before, 50<<20)
		must(t, err)
		_, err = f.WriteAt(b, 50<<20)
		must(t, err)
		must(t, f.Close())
		return before
	}
	before := write([]byte{0})
	again := func(want Exit, said string) {
		t.Helper()
		again, err := NewRun(t.TempDir())
		must(t, err)
		must(t, again.Once(time.Minute, built.CkptRun(), "--restart", run.Checkpoints()))
		if text := string(mustRead(t, again.Stderr)); again.Exit != want || !strings.Contains(text, said) {
			t.Errorf("%v: %s%s", again.Exit, mustRead(t, again.Stdout), text)
		}
	}
	again(Exit{Code: 1}, path)
	must(t, os.Truncate(path, was.Size()+5))
	again(Exit{Code: 1}, path)
	must(t, os.Rename(path, path+"-"))
	again(Exit{Code: 1}, path)
	must(t, os.Rename(path+"-", path))
	must(t, os.Truncate(path, was.Size()))
	write(before)
	must(t, os.Chtimes(path, time.Time{}, was.ModTime()))
	again(Exit{}, "")
}
