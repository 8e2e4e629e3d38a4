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

const caller = `#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
void MPI_Quick(void); void MPI_Slow(int);
static void *brief(void *p) { getppid(); getppid(); MPI_Quick(); return p; }
int main(void) {
	int quick, slow, threads;
	printf("ready\n"); fflush(stdout);
	while (scanf("%d %d %d", &quick, &slow, &threads) == 3) {
		for (int i = 0; i < threads; i++) {
			pthread_t t;
			pthread_create(&t, 0, brief, 0);
			pthread_join(t, 0);
		}
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

func (c *child) do(t *testing.T, quick, slow, threads int) {
	t.Helper()
	if _, err := fmt.Fprintf(c.in, "%d %d %d\n", quick, slow, threads); err != nil {
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
		{"-O0", "-pthread", "-o", filepath.Join(dir, "c"), filepath.Join(dir, "c.c"), lib, "-Wl,-rpath," + dir}} {
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

// sums adds up what was read.
type sums map[string]Sum

func (all sums) read(t *testing.T, c *Calls) {
	t.Helper()
	list, err := c.Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		key := fmt.Sprint(s.PID, " ", s.Name)
		s.Calls, s.Nanoseconds = s.Calls+all[key].Calls, s.Nanoseconds+all[key].Nanoseconds
		all[key] = s
	}
}

func (all sums) of(pid int, name string) Sum { return all[fmt.Sprint(pid, " ", name)] }

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
	c, err := WatchCalls([]Target{{p.Process.Pid, path, functions}}, true)
	if err != nil {
		t.Fatal(err)
	}
	other.do(t, 50, 0, 0) // nobody watches it
	p.do(t, 1000, 3, 0)
	pid, all := p.Process.Pid, sums{}
	all.read(t, c)
	quick, slow, parent := all.of(pid, "the MPI_Quick"), all.of(pid, "the MPI_Slow"), all.of(pid, "getppid")
	if quick.Calls != 1000 || quick.System || quick.Nanoseconds == 0 || quick.Nanoseconds > 1e9 {
		t.Errorf("%+v", quick)
	}
	if slow.Calls != 3 || slow.Nanoseconds < 60e6 || slow.Nanoseconds > 20e9 {
		t.Errorf("%+v", slow)
	}
	if parent.Calls != 5 || !parent.System {
		t.Errorf("%+v", parent)
	}
	if s := all.of(pid, "clock_nanosleep"); s.Calls != 3 || s.Nanoseconds < 60e6 || s.Nanoseconds > slow.Nanoseconds {
		t.Errorf("%+v", s)
	}
	for _, s := range all {
		if s.PID != pid || s.Thread != pid {
			t.Errorf("somebody else: %+v", s)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	p.do(t, 10, 1, 0) // it runs on as before
}

// TestCallsOfBriefThreads: each call of a thread that ended before anybody looked is told once, under its own number, and
// nothing of it stays where there is no room for all that come.
func TestCallsOfBriefThreads(t *testing.T) {
	needPrivilege(t)
	p := startChild(t)
	pid := p.Process.Pid
	c, err := WatchCalls([]Target{{pid, p.path, map[string]string{"MPI_Quick": "MPI_Quick"}}}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	all := sums{}
	for round := 1; round <= 3; round++ {
		const threads = 200
		p.do(t, 10, 0, threads)
		all.read(t, c)
		if quick, parent := all.of(pid, "MPI_Quick").Calls, all.of(pid, "getppid").Calls; quick != uint64(round*(10+threads)) || parent != uint64(round*(5+2*threads)) {
			t.Errorf("round %d: %d calls of the library, %d of the kernel", round, quick, parent)
		}
	}
	all.read(t, c)
	var key sumKey
	var value sumValue
	for left := c.sums.Iterate(); left.Next(&key, &value); {
		if int(key.Thread) != pid {
			t.Errorf("still known of a thread that has ended: %+v", key)
		}
	}
	var thread, number uint64
	for left := c.numbers.Iterate(); left.Next(&thread, &number); {
		if int(uint32(thread)) != pid {
			t.Errorf("a system call of a thread that has ended is under way: %x in %d", thread, number)
		}
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
		if w, err := WatchCalls([]Target{c.target}, false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.target, err)
			if w != nil {
				_ = w.Close()
			}
		}
	}
	if _, err := WatchCalls(nil, true); err == nil {
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
