// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// wrapper is a way to start a program through others.
type wrapper struct {
	name string
	argv []string // APP and FILE stand for the program and its argument
	want string   // of what the program prints, what depends on the wrapper
}

var wrappers = []wrapper{
	{"programs that become it", []string{"env", "X=1", "nice", "sh", "-c", `exec "$0" "$1"`, "APP", "FILE"},
		"X 1, descriptor 7 none, preloaded none"},
	{"a script that goes elsewhere and becomes it", []string{"script", `#!/bin/bash
cd / && date >/dev/null
export X="of a script"
exec 7<<<given
exec "$@"`, "APP", "FILE"}, "X of a script, descriptor 7 given, preloaded none"},
	{"a script that waits for it", []string{"timeout", "900", "script", `#!/bin/sh
cd /; date | grep -q :
export X=waiting
"$@" 7<"$0"
status=$?
echo "it ended with $status"
exit $status`, "APP", "FILE"}, "X waiting, descriptor 7 #!/bin/sh"},
	{"a program that starts a shell", []string{"python3", "-c", `import os, subprocess, sys
os.environ["LD_PRELOAD"] = "libm.so.6"
sys.exit(subprocess.run(["sh", "-c", '"$0" "$1"; exit $?'] + sys.argv[1:]).returncode)`, "APP", "FILE"},
		"X none, descriptor 7 none, preloaded libm.so.6"},
}

// A job whose program is started by another one: by exec, or as a child of one that waits. It is saved where
// ckptrun was told to, killed, continued without its wrapper, and ends with the program's own status.
func TestWrapped(t *testing.T) {
	needCommands(t)
	t.Setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
	t.Setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
	bin := t.TempDir()
	launchers := map[string][]string{"mpich": {"mpiexec.mpich"}, "openmpi": {"mpiexec.openmpi", "--oversubscribe"}}
	for _, mpi := range []string{"mpich", "openmpi"} {
		if !needmpi.Has(mpi) {
			t.Run(mpi, func(t *testing.T) { needmpi.Test(t, mpi) })
			continue
		}
		app := filepath.Join(bin, "wrapped."+mpi)
		build := exec.Command("mpicc."+mpi, "-Wall", "-Wextra", "-Werror", "-O1", "-o", app, filepath.Join(built.Src, "wrapped.c"))
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, w := range wrappers {
			t.Run(mpi+"/"+w.name, func(t *testing.T) { w.cycle(t, launchers[mpi], app) })
		}
	}
}

func (w wrapper) cycle(t *testing.T, launcher []string, app string) {
	run, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	release := filepath.Join(run.Dir, "release")
	argv := w.command(t, run.Dir, app, release)
	start := func(mark Mark, more ...string) *Process {
		t.Helper()
		t.Cleanup(mark.KillAll)
		command := append(slices.Clone(launcher), "-n", "2", built.CkptRun())
		p, err := run.Start(mark, append(command, more...)...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}

	mark := NewMark()
	p := start(mark, append([]string{"--dir", "../ckpt"}, argv...)...)
	job := filepath.Join(run.Checkpoints(), "job.json")
	if !Poll(mpiLimit, p.Done(), func() bool { _, err := os.Stat(job); return err == nil }) {
		t.Fatalf("no job in %s\n%s%s\n%s", run.Checkpoints(), mustRead(t, run.Stdout), mustRead(t, run.Stderr), Dump(mark.Processes()))
	}
	if out, err := exec.Command(built.CkptCtl(), "checkpoint", run.Checkpoints(), "--timeout", "3m").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, mustRead(t, run.Stderr))
	}
	mark.KillAll()
	if _, err := p.Wait(mpiLimit); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.ends(t, run, start(NewMark(), "--restart", run.Checkpoints()))
	// Nobody disturbs it: what ends is the wrapper.
	w.ends(t, run, start(NewMark(), append([]string{"--dir", "../ckpt"}, argv...)...))
}

// command is the wrapper's, with a script in a file.
func (w wrapper) command(t *testing.T, dir, app, release string) []string {
	var argv []string
	for i := 0; i < len(w.argv); i++ {
		word := w.argv[i]
		switch word {
		case "script":
			word = filepath.Join(dir, "script")
			i++
			if err := os.WriteFile(word, []byte(w.argv[i]+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		case "APP":
			word = app
		case "FILE":
			word = release
		}
		argv = append(argv, word)
	}
	return argv
}

// ends waits for the end and looks at what the ranks printed.
func (w wrapper) ends(t *testing.T, run *Run, p *Process) {
	t.Helper()
	exit, err := p.Wait(mpiLimit)
	printed := string(mustRead(t, run.Stdout))
	if err != nil || exit != (Exit{Code: 3}) {
		t.Fatalf("%v, %v\n%s%s", exit, err, printed, mustRead(t, run.Stderr))
	}
	for rank := range 2 {
		line := fmt.Sprintf("rank %d of 2: %s", rank, w.want)
		if strings.Count(printed, line) != 1 {
			t.Errorf("%q is not there once:\n%s%s", line, printed, mustRead(t, run.Stderr))
		}
	}
	if strings.Count(printed, ", told none\n") != 2 {
		t.Errorf("the program learns of its wrapper:\n%s", printed)
	}
	if said := string(mustRead(t, run.Stderr)); strings.Contains(said, "MPI_Init") {
		t.Errorf("a wrapper is taken for the program:\n%s", said)
	}
	if err := os.Truncate(run.Stdout, 0); err != nil {
		t.Fatal(err)
	}
}

// A program without MPI under an MPI launcher: it is said once that it was not saved.
func TestLauncherWithoutMPI(t *testing.T) {
	needCommands(t)
	run, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Once(mpiLimit, mpiexec(t), "-n", "2", built.CkptRun(), "--dir", run.Checkpoints(), "true"); err != nil {
		t.Fatal(err)
	}
	said := string(mustRead(t, run.Stderr))
	if run.Exit != (Exit{}) || strings.Count(said, "without a call of MPI_Init") != 1 || !strings.Contains(said, "ckptrun --dir "+run.Checkpoints()) {
		t.Errorf("%v: %q", run.Exit, said)
	}
}
