// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// TestGivenUp: a program that has given up rights is not saved, as a restart would give them back, nor one that has what the
// kernel keeps by address; it runs on. One that has set what it
// had is saved.
func TestGivenUp(t *testing.T) {
	needCommands(t)
	if os.Geteuid() != 0 {
		needmpi.Skip(t, "no rights to give up", "this takes root")
	}
	filter := `
import ctypes, struct
libc, code = ctypes.CDLL(None), ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000)) # allow all
libc.prctl(38, 1, 0, 0, 0)
assert libc.syscall(317, 1, 0, ctypes.create_string_buffer(struct.pack("HxxxxxxP", 1, ctypes.addressof(code)))) == 0
`
	for _, c := range []struct{ name, does, want string }{
		{"groups", "os.setgroups([1, 2])", "has changed its groups"},
		{"user", "os.setresuid(-1, -1, 1234)", "has changed its user ids"},
		{"filter", filter, "has a filter for its system calls"},
		{"aio", "import ctypes; assert ctypes.CDLL(None).syscall(206, 8, ctypes.byref(ctypes.c_long())) == 0", "has 1 contexts of asynchronous I/O"},
		{"nothing", "os.setgroups(os.getgroups()); os.setuid(os.getuid())", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			letGo := filepath.Join(dir, "go")
			w, err := NewWhole(built, dir, "/usr/bin/python3", "-c", "import os, sys, time\n"+c.does+`
print("ready", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
print("ended")
`, letGo)
			must(t, err)
			w.Ranks, w.Together = 1, true
			t.Cleanup(w.Mark.KillAll)
			must(t, w.Start("shell"))
			if !Poll(mpiLimit, nil, func() bool {
				said, err := w.Printed("out")
				return w.Ended() || err == nil && strings.HasPrefix(said, "ready\n")
			}) || w.Ended() {
				t.Fatalf("it is not ready: %s", w.Said())
			}
			limit := "2m"
			if c.name == "aio" { // the program may end it, so it is tried until then
				limit = "5s"
			}
			exit, said, err := w.Ckptctl(t.TempDir(), mpiLimit, "checkpoint", w.Run.Checkpoints(), "--timeout", limit)
			must(t, err)
			if c.want == "" && exit != (Exit{}) || c.want != "" && (exit == (Exit{}) || !strings.Contains(said, c.want)) {
				t.Errorf("%v: %q, want %q", exit, said, c.want)
			}
			must(t, os.WriteFile(letGo, nil, 0o644))
			must(t, w.MustEnd(mpiLimit))
			if said, err := w.Printed("out"); err != nil || said != "ready\nended\n" {
				t.Errorf("it prints %q, %v", said, err)
			}
		})
	}
}
