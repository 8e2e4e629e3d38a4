// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// saveNow saves it, waiting for its beginning.
func saveNow(t *testing.T, run *Run, arguments ...string) {
	t.Helper()
	asked, err := NewRun(t.TempDir())
	must(t, err)
	must(t, asked.Once(checkpointLimit, append([]string{built.CkptCtl(), "checkpoint", run.Checkpoints(), "--timeout", "30s"}, arguments...)...))
	if asked.Exit != (Exit{}) {
		t.Fatalf("%v: %s\n%s", asked.Exit, mustRead(t, asked.Stderr), mustRead(t, run.Stderr))
	}
}

// A large file that is mapped to be read is not in the image. A restart maps it again if it is what it was, and else says so.
func TestTable(t *testing.T) {
	needCommands(t)
	run, mark := runOf(t)
	program := []string{filepath.Join(built.Bin, "table"), "5000", run.Dir}
	p, err := run.Start(mark, append([]string{built.CkptRun(), "--dir", run.Checkpoints(), "--"}, program...)...)
	must(t, err)
	path := filepath.Join(run.Dir, "table.dat")
	isMapped := func() bool { // the second one of it is the last thing before it counts
		for _, pid := range mark.Ranks() {
			maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
			if err == nil && strings.Count(string(maps), path) == 2 {
				return true
			}
		}
		return false
	}
	if !Poll(patience, p.Done(), isMapped) {
		t.Fatalf("it does not begin\n%s", mustRead(t, run.Stderr))
	}
	saveNow(t, run, "--then", "kill")
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

// Files that a program makes after the checkpoint are not in its way when it makes them again, however often it is killed meanwhile,
// and whichever epoch is taken.
func TestMadeAfter(t *testing.T) {
	needCommands(t)
	for _, trap := range []string{"seccomp", "sud"} {
		t.Run(trap, func(t *testing.T) {
			run, mark := runOf(t)
			start := func(argv ...string) *Process {
				p, err := run.Start(mark, append([]string{built.CkptRun(), "--trap", trap}, argv...)...)
				must(t, err)
				return p
			}
			kill := func(p *Process) {
				time.Sleep(300 * time.Millisecond) // it makes some
				mark.KillAll()
				_, err := p.Wait(time.Minute)
				must(t, err)
			}
			p := start("--dir", run.Checkpoints(), "--", filepath.Join(built.Bin, "maker"), "500", run.Dir)
			saveNow(t, run)
			time.Sleep(100 * time.Millisecond)
			saveNow(t, run)
			kill(p)
			kill(start("--restart", run.Checkpoints()))
			for _, epoch := range []string{"", "@1"} {
				p = start("--restart", run.Checkpoints()+epoch)
				if exit, err := p.Wait(time.Minute); err != nil || exit != (Exit{}) {
					t.Errorf("epoch %s: %v %v: %s%s", epoch, exit, err, mustRead(t, run.Stdout), mustRead(t, run.Stderr))
				}
			}
			moved, err := filepath.Glob(filepath.Join(run.Dir, "made-*.newer*"))
			must(t, err)
			if len(moved) == 0 {
				t.Error("nothing was moved out of the way: the program made no file after the checkpoint")
			}
		})
	}
}
