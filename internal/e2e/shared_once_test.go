// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestSharedMemoryOnce: a restart reads the content of shared memory once, by the kernel's count of what the process has
// read, with private memory eager and lazy.
func TestSharedMemoryOnce(t *testing.T) {
	needCommands(t)
	run, err := NewRun(t.TempDir())
	must(t, err)
	mark := NewMark()
	t.Cleanup(mark.KillAll)
	const mib = 32
	end := filepath.Join(run.Dir, "end")
	p, err := run.Start(mark, append(append([]string{built.CkptRun()}, options()...), "--dir", run.Checkpoints(), "--",
		"/usr/bin/python3", filepath.Join(built.Src, "shares.py"), fmt.Sprint(mib), end)...)
	must(t, err)
	if !Poll(patience, p.Done(), func() bool { return string(mustRead(t, run.Stdout)) == "begun\n" }) {
		t.Fatalf("it has not begun: %s", mustRead(t, run.Stderr))
	}
	if exit, said := checkpoint(t, run, mark, "checkpoint", "kill"); exit != (Exit{}) {
		t.Fatalf("checkpoint: %v: %s", exit, said)
	}
	if _, err := p.Wait(patience); err != nil {
		t.Fatal(err)
	}
	writeFile(t, end, nil)
	for _, mode := range []string{"eager", "lazy"} {
		again, err := NewRun(t.TempDir())
		must(t, err)
		must(t, again.Once(patience, built.CkptRun(), "--restart-mode", mode, "--restart", run.Checkpoints()))
		said := strings.TrimSpace(string(mustRead(t, again.Stdout)))
		read, err := strconv.ParseInt(said, 10, 64)
		if again.Exit != (Exit{}) || err != nil {
			t.Fatalf("%s: %v, printed %q: %s", mode, again.Exit, said, mustRead(t, again.Stderr))
		}
		t.Logf("%s: read %d bytes", mode, read)
		if read < 2*mib<<20 || read > 3*mib<<20 { // the rest is libraries and other memory, some MiB
			t.Errorf("%s: it has read %d bytes, of %d in shared memory", mode, read, 2*mib<<20)
		}
	}
}
