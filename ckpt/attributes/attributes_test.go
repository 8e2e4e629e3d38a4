// SPDX-License-Identifier: Apache-2.0

package attributes

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/needmpi"
)

func begin(t *testing.T) Start {
	t.Helper()
	s := Begin(nil)
	if s.Err != nil {
		t.Fatal(s.Err)
	}
	return s
}

// TestThread: of a thread that changes nothing nothing is said; what another one changes is read, and another gets it.
func TestThread(t *testing.T) {
	runtime.LockOSThread() // and the thread ends with the test
	start := begin(t)
	own := []ThreadID{{Virtual: 77, Real: unix.Gettid()}}
	state, err := start.Read(own, 0)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := state.Encode(); err != nil || b != nil {
		t.Errorf("of a process as it began: %s, %v", b, err)
	}
	want := Schedule{Policy: unix.SCHED_BATCH, Nice: start.schedule.Nice + 3}
	if err := want.set(0); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !strings.HasPrefix(list(start.cpus), list(one(cpu))) {
		cpu++
	}
	if err := start.bind(0, one(cpu)); err != nil {
		t.Fatal(err)
	}
	if state, err = start.Read(own, Hidden|Asked(16)); err != nil {
		t.Fatal(err)
	}
	wantState := State{Barriers: 16, Threads: []Thread{{ID: 77, Schedule: &want}}}
	if len(start.cpus) > 1 || start.cpus[0]&(start.cpus[0]-1) != 0 { // else that is all there are
		wantState.Threads[0].CPUs = one(cpu)
	}
	if diff := cmp.Diff(wantState, state); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	text, err := state.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(state, back); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
	done := make(chan []string)
	go func() {
		runtime.LockOSThread()
		lost := start.Apply(back, []ThreadID{{Virtual: 77, Real: unix.Gettid()}})
		got, err := scheduleOf(0)
		if got.Runtime = 0; err != nil || got != want {
			t.Errorf("the other thread has %+v, %v", got, err)
		}
		if got, err := cpusOf(0); err != nil || list(got) != list(one(cpu)) {
			t.Errorf("the other thread may run on %s, %v", list(got), err)
		}
		done <- lost
	}()
	if lost := <-done; len(lost) > 0 {
		t.Errorf("lost: %q", lost)
	}
}

func one(cpu int) []uint64 {
	all := make([]uint64, cpu/64+1)
	all[cpu/64] = 1 << (cpu % 64)
	return all
}

// TestElsewhere: processors that are not the process's are said, and left alone.
func TestElsewhere(t *testing.T) {
	runtime.LockOSThread()
	start := begin(t)
	state := State{Threads: []Thread{{ID: 5, CPUs: one(64*len(start.cpus) + 7)}, {ID: 6, CPUs: one(0)}}}
	lost := start.Apply(state, []ThreadID{{Virtual: 5, Real: unix.Gettid()}})
	if len(lost) != 1 || !strings.HasPrefix(lost[0], "thread 5 was bound to processors ") || !strings.Contains(lost[0], "did not give it") {
		t.Errorf("lost: %q", lost)
	}
	if got, err := cpusOf(0); err != nil || list(got) != list(start.cpus) {
		t.Errorf("it may run on %s, %v", list(got), err)
	}
}

// TestProcess: limits and settings that the program has chosen itself are read; a process has them again; what it may not have
// is said. A process of its own does so: most cannot be taken back.
func TestProcess(t *testing.T) {
	if os.Getenv("LIBCKPT_TEST_PROCESS") == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestProcess$", "-test.count=1")
		cmd.Env = append(os.Environ(), "LIBCKPT_TEST_PROCESS=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	start := begin(t)
	before := start.process
	signals := before.limits[11]
	if signals.Cur < 2 {
		needmpi.Skip(t, "no signals may be pending", "the limit of pending signals cannot be lowered here")
	}
	own := []ThreadID{{Virtual: 1, Real: unix.Getpid()}}
	for _, c := range []Choice{{"subreaper", 1}, {"no huge pages", 1}, {"oom_score_adj", min(before.choices["oom_score_adj"]+5, 1000)}} {
		if err := c.apply(); err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
	}
	if err := start.apply(Limit{11, signals.Cur - 1, signals.Max}); err != nil {
		t.Fatal(err)
	}
	state, err := start.Read(own, 0)
	if err != nil {
		t.Fatal(err)
	}
	state.Threads = nil
	want := State{Limits: []Limit{{11, signals.Cur - 1, signals.Max}},
		Choices: []Choice{{"subreaper", 1}, {"no huge pages", 1}, {"oom_score_adj", min(before.choices["oom_score_adj"]+5, 1000)}}}
	if before.choices["oom_score_adj"] == 1000 {
		want.Choices = want.Choices[:2]
	}
	if d := cmp.Diff(want, state); d != "" {
		t.Errorf("read (-want +got):\n%s", d)
	}
	// As it began, then again as it was.
	for _, c := range []Choice{{"subreaper", 0}, {"no huge pages", 0}} {
		if err := c.apply(); err != nil {
			t.Fatal(err)
		}
	}
	if err := start.apply(Limit{11, signals.Cur, signals.Max}); err != nil {
		t.Fatal(err)
	}
	if lost := start.Apply(state, own); len(lost) > 0 {
		t.Errorf("lost: %q", lost)
	}
	again, err := start.Read(own, 0)
	if again.Threads = nil; err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, again); d != "" {
		t.Errorf("again (-want +got):\n%s", d)
	}
	// Without the privilege: as much as the hard limit allows.
	if err := unix.Setrlimit(11, &unix.Rlimit{Cur: signals.Cur - 1, Max: signals.Cur - 1}); err != nil {
		t.Fatal(err)
	}
	if unix.Geteuid() == 0 {
		dropResources(t)
	}
	lost := start.Apply(State{Limits: []Limit{{11, signals.Cur, signals.Cur}}, Choices: []Choice{{"tea", 1}}}, own)
	if len(lost) != 2 || !strings.Contains(lost[0], "the limit of pending signals was") || !strings.Contains(lost[0], "nobody may have more here") ||
		!strings.Contains(lost[1], "not known") {
		t.Errorf("lost: %q", lost)
	}
}

// dropResources takes from all threads what lets them raise hard limits.
func dropResources(t *testing.T) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	data[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	runtime.LockOSThread()
	if err := unix.Capset(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
}

func TestList(t *testing.T) {
	for want, cpus := range map[string][]uint64{"": nil, "0": {1}, "0-3,8": {0x10f}, "62-65": {3 << 62, 3}, "1,127": {2, 1 << 63}} {
		if got := list(cpus); got != want {
			t.Errorf("%x: %q, want %q", cpus, got, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"limits":[{"resource":3,"soft":1,"hard":2}],"choices":[{"name":"subreaper","value":1}]}`))
	f.Add([]byte(`{"barriers":16,"threads":[{"id":7,"schedule":{"policy":3,"nice":3},"cpus":[2]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(b)
		if err != nil {
			return
		}
		text, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if text == nil {
			return
		}
		if _, err := Decode(text); err != nil {
			t.Errorf("%s becomes %s: %v", b, text, err)
		}
	})
}

// TestOwnLimits: limits that the program sees are asked of and given to who keeps them, not the kernel.
func TestOwnLimits(t *testing.T) {
	kept := map[int]unix.Rlimit{unix.RLIMIT_NOFILE: {Cur: 256, Max: 768}, unix.RLIMIT_AS: {Cur: 1 << 40, Max: 1 << 41}, unix.RLIMIT_DATA: {Cur: 7, Max: 9}}
	start := Begin(func(resource int, set *unix.Rlimit) (unix.Rlimit, error) {
		was := kept[resource]
		if set != nil && set.Max > was.Max {
			return was, unix.EPERM
		}
		if set != nil {
			kept[resource] = *set
		}
		return was, nil
	})
	if start.Err != nil {
		t.Fatal(start.Err)
	}
	own := []ThreadID{{Virtual: 1, Real: unix.Getpid()}}
	kept[unix.RLIMIT_AS] = unix.Rlimit{Cur: 1 << 30, Max: 1 << 31}
	state, err := start.Read(own, 0)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]Limit{{unix.RLIMIT_AS, 1 << 30, 1 << 31}}, state.Limits); d != "" {
		t.Errorf("read (-want +got):\n%s", d)
	}
	lost := start.Apply(State{Limits: []Limit{{unix.RLIMIT_DATA, 3, 4}, {unix.RLIMIT_AS, 1 << 32, 1 << 33}}}, own)
	if len(lost) != 1 || !strings.Contains(lost[0], "the limit of addresses was 4294967296") || !strings.Contains(lost[0], "nobody may have more here") {
		t.Errorf("lost: %q", lost)
	}
	if d := cmp.Diff(unix.Rlimit{Cur: 3, Max: 4}, kept[unix.RLIMIT_DATA]); d != "" {
		t.Errorf("data (-want +got):\n%s", d)
	}
	if d := cmp.Diff(unix.Rlimit{Cur: 1 << 31, Max: 1 << 31}, kept[unix.RLIMIT_AS]); d != "" {
		t.Errorf("addresses (-want +got):\n%s", d)
	}
}
