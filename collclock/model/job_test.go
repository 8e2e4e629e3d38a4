// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/libckpt/libckpt/collclock"
	"github.com/libckpt/libckpt/collclock/scenario"
	"github.com/libckpt/libckpt/internal/needmpi"
)

// programText is the program of a scenario file, as real ranks read it.
func programText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../testdata/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("program\n"))
	text, _, _ = bytes.Cut(text, []byte("\n\n"))
	return string(text)
}

func built(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../build/obj/faults/bin/" + name) // which writes a trace
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make faults first", err)
	}
	return path
}

// limit is for whatever a job does; it takes a second or two.
const limit = 3 * time.Minute

// runJob runs a program on the real MPI, saves it once while it runs, and returns what each rank wrote.
func runJob(t *testing.T, p *scenario.Program, text, bin string) []string {
	t.Helper()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(path("program"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "mpiexec.mpich", "-n", strconv.Itoa(p.Ranks), built(t, "ckptrun"), "--dir", path("ckpt"),
		bin, path("program"), "150", path("done"))
	cmd.Env = append(os.Environ(), "CKPT_DEBUG=clocktrace="+path("trace"))
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(path("done-not")); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("the job did not begin in %v\n%s", limit, out.String())
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(rand.N(300 * time.Millisecond)) // any moment will do
	if b, err := exec.CommandContext(ctx, built(t, "ckptctl"), "checkpoint", path("ckpt"), "--timeout", "2m").CombinedOutput(); err != nil {
		t.Errorf("checkpoint: %v\n%s", err, b)
	}
	if err := os.WriteFile(path("done"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the job: %v\n%s", err, out.String())
	}
	var texts []string
	for rank := range p.Ranks {
		b, err := os.ReadFile(fmt.Sprintf("%s.%d", path("trace"), rank))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b))
	}
	return texts
}

// TestJobTraces has the model accept what ranks of a real MPI did, while the job was saved at some
// moment: so what was searched is what runs.
func TestJobTraces(t *testing.T) {
	needTools(t)
	needmpi.Test(t, "mpich")
	bin := filepath.Join(t.TempDir(), "scenario")
	if out, err := exec.Command("mpicc.mpich", "-O2", "-D_GNU_SOURCE", "-o", bin, "testdata/scenario.c").CombinedOutput(); err != nil {
		t.Fatalf("mpicc.mpich: %v\n%s", err, out)
	}
	for _, name := range []string{"F1", "F2", "F2b", "F5"} {
		t.Run(name, func(t *testing.T) {
			p, text := program(t, name), programText(t, name)
			texts := runJob(t, p, text, bin)
			tr, err := ReadTrace(p, texts)
			if err != nil {
				t.Fatalf("%v\n%s", err, strings.Join(texts, "--\n"))
			}
			if !accepted(t, p, tr) {
				t.Fatalf("the model cannot do what the job did:\n%v\ncounted %v, returned %v\n%s", tr.steps, tr.calls, tr.returns, strings.Join(texts, "--\n"))
			}
			stop := tr.Find(collclock.TraceStop)
			tr.Swap(stop-1, stop)
			if accepted(t, p, tr) {
				t.Error("the model accepts that the job stopped before its last rank was clean")
			}
		})
	}
}
