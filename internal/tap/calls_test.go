// SPDX-License-Identifier: Apache-2.0

package tap

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// needPrivilege skips where this machine does not let us watch; what is said then is tested in any case.
func needPrivilege(t *testing.T) {
	t.Helper()
	err := Allowed()
	if errors.Is(err, ErrPrivilege) || errors.Is(err, ErrKernel) {
		t.Skipf("not tested here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

const libraryText = `#include <time.h>
void MPI_Quick(void) { __asm__ volatile(""); }
void MPI_Slow(int ms) { struct timespec t = {0, ms * 1000000L}; nanosleep(&t, 0); }
void MPI_Never(void) {}
static void MPI_Local(void) {}
void *other(void) { return MPI_Local; }
`

const caller = `#include <stdio.h>
#include <unistd.h>
void MPI_Quick(void); void MPI_Slow(int);
int main(void) {
	int quick, slow;
	printf("ready\n"); fflush(stdout);
	while (scanf("%d %d", &quick, &slow) == 2) {
		for (int i = 0; i < quick; i++) { MPI_Quick(); }
		for (int i = 0; i < slow; i++) { MPI_Slow(20); }
		for (int i = 0; i < 5; i++) { getppid(); }
		printf("done\n"); fflush(stdout);
	}
	return 0;
}
`

// child runs the program above.
type child struct {
	*exec.Cmd
	in   *os.File
	out  *bufio.Reader
	path string // of the library
}

func (c *child) do(t *testing.T, quick, slow int) {
	t.Helper()
	if _, err := fmt.Fprintf(c.in, "%d %d\n", quick, slow); err != nil {
		t.Fatal(err)
	}
	if line, err := c.out.ReadString('\n'); err != nil || line != "done\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

func startChild(t *testing.T) *child {
	t.Helper()
	dir := t.TempDir()
	lib := filepath.Join(dir, "libmpitest.so")
	for _, c := range []struct{ name, text string }{{"l.c", libraryText}, {"c.c", caller}} {
		if err := os.WriteFile(filepath.Join(dir, c.name), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"-O0", "-shared", "-fPIC", "-o", lib, filepath.Join(dir, "l.c")},
		{"-O0", "-o", filepath.Join(dir, "c"), filepath.Join(dir, "c.c"), lib, "-Wl,-rpath," + dir}} {
		if said, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
			t.Fatalf("cc: %v: %s", err, said)
		}
	}
	cmd := exec.Command(filepath.Join(dir, "c"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	c := &child{Cmd: cmd, in: in.(*os.File), out: bufio.NewReader(out), path: lib}
	if line, err := c.out.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return c
}

func sumOf(t *testing.T, c *Calls, pid int, name string) Sum {
	t.Helper()
	list, err := c.Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.PID == pid && s.Name == name {
			return s
		}
	}
	return Sum{}
}

func TestCalls(t *testing.T) {
	needPrivilege(t)
	p, other := startChild(t), startChild(t)
	named := func(symbol string) string {
		if strings.HasPrefix(symbol, "MPI_") {
			return "the " + symbol
		}
		return ""
	}
	path, functions, err := FindLibrary(p.Process.Pid, 0, "libmpi", named)
	if err != nil || path != p.path || len(functions) != 4 || functions["MPI_Slow"] != "the MPI_Slow" {
		t.Fatalf("%s, %v, %v", path, functions, err)
	}
	if _, _, err := FindLibrary(p.Process.Pid, 0, "libmpi", func(string) string { return "" }); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("functions that are nowhere: %v", err)
	}
	if _, _, err := FindLibrary(p.Process.Pid, 1<<63, "libmpi", named); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("above all: %v", err)
	}
	functions["MPI_Absent"] = "absent"
	c, err := WatchCalls([]Target{{p.Process.Pid, path, functions}}, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	other.do(t, 50, 0) // nobody watches it
	p.do(t, 1000, 3)
	quick, slow, parent := sumOf(t, c, p.Process.Pid, "the MPI_Quick"), sumOf(t, c, p.Process.Pid, "the MPI_Slow"), sumOf(t, c, p.Process.Pid, "getppid")
	if quick.Calls != 1000 || quick.System || quick.Nanoseconds == 0 || quick.Nanoseconds > 1e9 {
		t.Errorf("%+v", quick)
	}
	if slow.Calls != 3 || slow.Nanoseconds < 60e6 || slow.Nanoseconds > 20e9 {
		t.Errorf("%+v", slow)
	}
	if parent.Calls != 5 || !parent.System {
		t.Errorf("%+v", parent)
	}
	if s := sumOf(t, c, p.Process.Pid, "clock_nanosleep"); s.Calls != 3 || s.Nanoseconds < 60e6 || s.Nanoseconds > slow.Nanoseconds {
		t.Errorf("%+v", s)
	}
	list, err := c.Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.PID != p.Process.Pid {
			t.Errorf("somebody else: %+v", s)
		}
	}
	for _, ignored := range [][]int{{1 << 20, p.Process.Pid}, {1 << 20}, nil} { // its only thread
		if err := c.Ignore(ignored); err != nil {
			t.Fatal(err)
		}
		was := sumOf(t, c, p.Process.Pid, "getppid").Calls
		p.do(t, 10, 0)
		if n := sumOf(t, c, p.Process.Pid, "getppid").Calls - was; n != 5 && len(ignored) < 2 || n != 0 && len(ignored) == 2 {
			t.Errorf("without threads %v: %d system calls of 5", ignored, n)
		}
	}
	if n := sumOf(t, c, p.Process.Pid, "the MPI_Quick").Calls; n != 1030 {
		t.Errorf("%d calls of the library", n)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	p.do(t, 10, 1) // it runs on as before
}

// TestCallsIgnoredFirst: threads that are ignored from the first are so while the probes are being attached.
func TestCallsIgnoredFirst(t *testing.T) {
	needPrivilege(t)
	p := startChild(t)
	pid := p.Process.Pid
	c, err := WatchCalls([]Target{{pid, p.path, map[string]string{"MPI_Quick": "MPI_Quick"}}}, true, []int{pid})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	p.do(t, 10, 0)
	if n := sumOf(t, c, pid, "MPI_Quick").Calls; n != 10 {
		t.Errorf("%d calls of the library", n)
	}
	if n := sumOf(t, c, pid, "getppid").Calls; n != 0 {
		t.Errorf("%d system calls of a thread that is ignored", n)
	}
}

// A process that is gone, a file that is no library.
func TestCallsRefused(t *testing.T) {
	needPrivilege(t)
	p := startChild(t)
	pid := p.Process.Pid
	quick := map[string]string{"MPI_Quick": "MPI_Quick"}
	for _, c := range []struct {
		target Target
		want   string
	}{
		{Target{1 << 30, "", nil}, "has ended"},
		{Target{pid, "/etc/hostname", quick}, "hostname"},
		{Target{pid, "/none", quick}, "/none"},
		{Target{pid, t.TempDir(), quick}, "directory"},
		{Target{pid, "/lib64/ld-linux-x86-64.so.2", quick}, "none of the functions"},
	} {
		if w, err := WatchCalls([]Target{c.target}, false, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.target, err)
			if w != nil {
				_ = w.Close()
			}
		}
	}
	if _, err := WatchCalls(nil, true, nil); err == nil {
		t.Error("nobody is watched")
	}
}

// Without the privilege it is said what to do. A child without capabilities tries it.
func TestWithoutPrivilege(t *testing.T) {
	if os.Getenv("TAP_UNPRIVILEGED") != "" {
		err := Allowed()
		fmt.Printf("privilege=%v said=%v\n", errors.Is(err, ErrPrivilege), err)
		return
	}
	if os.Geteuid() != 0 {
		if err := Allowed(); err != nil && !errors.Is(err, ErrPrivilege) && !errors.Is(err, ErrKernel) {
			t.Errorf("%v", err)
		}
		return
	}
	binary := filepath.Join("/tmp", fmt.Sprintf("tap-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, b, 0o755); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Remove(binary) }()
	cmd := exec.Command(binary, "-test.run=^TestWithoutPrivilege$", "-test.v")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "TAP_UNPRIVILEGED=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	said, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "privilege=true") || !strings.Contains(string(said), "CAP_BPF") {
		t.Errorf("%v: %s", err, said)
	}
}
