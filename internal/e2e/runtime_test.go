// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// buildRuntime compiles programs/runtime.c, an outsider's runtime, against the headers in a folder.
func buildRuntime(t *testing.T, name, headers string) string {
	t.Helper()
	out, err := compileRuntime(t.TempDir(), name, headers)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// compileRuntime compiles a program of that name, which is linked with libckpt and no MPI.
func compileRuntime(dir, name, headers string) (string, error) {
	out, lib := filepath.Join(dir, name), filepath.Join(built.Root, "build", "lib")
	cmd := exec.Command("gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wconversion", "-I", headers, "-o", out,
		filepath.Join(built.Src, name+".c"), "-L", lib, "-lckpt", "-Wl,-rpath,"+lib, "-pthread")
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd.Args, err, b)
	}
	return out, nil
}

func outputOf(t *testing.T, argv ...string) string {
	t.Helper()
	r, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mark := NewMark()
	t.Cleanup(mark.KillAll)
	p, err := r.Start(mark, argv...)
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait(2 * time.Minute)
	out := string(mustRead(t, r.Stdout))
	if err != nil || exit != (Exit{}) {
		t.Errorf("%v: %v, %v\n%s%s", argv, exit, err, out, mustRead(t, r.Stderr))
	}
	return out
}

// outsidersHeaders are the headers against which a runtime may have been compiled.
func outsidersHeaders() map[string]string {
	return map[string]string{
		"today": filepath.Join(built.Root, "build", "include"),
		"1.0":   filepath.Join(built.Root, "internal", "e2e", "testdata", "ckpt-1.0"),
	}
}

// TestOutsidersRuntime runs a runtime that nobody here compiled into libckpt, with today's headers and with those of
// version 1.0, which stay as they were: what each function answers without ckptrun, on which thread callbacks come,
// that a forked child is told so instead of hanging, and which versions are refused in which words.
func TestOutsidersRuntime(t *testing.T) {
	t.Parallel()
	for name, headers := range outsidersHeaders() {
		t.Run(name, func(t *testing.T) {
			runtime := buildRuntime(t, "runtime", headers)
			for _, what := range []string{"job", "fork", "open"} {
				if out := outputOf(t, runtime, what); !strings.HasSuffix(out, "runtime: good\n") {
					t.Errorf("%s: %s", what, out)
				}
			}
			got := outputOf(t, runtime, "versions")
			for _, want := range []string{
				"newer, unused: 0 \n",
				"newer, used: -7 the runtime uses a part of ckpt_runtime_ops (at byte ",
				"another major: -7 the runtime was compiled against version 2.",
				"another minor: 0 \n",
				"no size: -7 the runtime's ckpt_config has 0 bytes, and version 1.0 of ckpt.h has 40",
				"no all-gather: -1 ckpt_runtime_ops lacks rank, ranks or oob_allgather",
				"no ops: -1 ckpt_open was given no config or no ops",
				"runtime: good\n",
			} {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not said:\n%s", want, got)
				}
			}
		})
	}
}

// TestLinkingCostsNothing runs a program that is linked with libckpt and calls nothing of it.
func TestLinkingCostsNothing(t *testing.T) {
	t.Parallel()
	runtime := buildRuntime(t, "runtime", filepath.Join(built.Root, "build", "include"))
	if got, want := outputOf(t, runtime, "idle"), "idle: 1 threads, 0 handlers\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	maps := outputOf(t, "sh", "-c", "LD_TRACE_LOADED_OBJECTS=1 "+runtime)
	if !strings.Contains(maps, "libckpt.so.1") || strings.Contains(maps, "libckpt-core") {
		t.Errorf("it is loaded with:\n%s", maps)
	}
}

// TestRuntimeUnderCkptrun: a runtime in the program's half is refused in words, not by a missing symbol.
func TestRuntimeUnderCkptrun(t *testing.T) {
	t.Parallel()
	runtime := buildRuntime(t, "runtime", filepath.Join(built.Root, "build", "include"))
	out := outputOf(t, built.CkptRun(), "--dir", filepath.Join(t.TempDir(), "ckpt"), "--", runtime, "open")
	if want := "open: none -6 this program opens libckpt itself, as an MPI does, and was started by ckptrun, which saves a runtime with its program only with --whole: start it as `ckptrun --whole`"; !strings.Contains(out, want) {
		t.Errorf("%q is not said:\n%s", want, out)
	}
}
