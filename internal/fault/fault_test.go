// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

func TestPointActions(t *testing.T) {
	if err := Point("a"); err != nil {
		t.Fatalf("unarmed point: %v", err)
	}
	disarm, err := Arm("a=error:2,b=enospc")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{nil, ErrInjected, nil} {
		if got := Point("a"); !errors.Is(got, want) {
			t.Errorf("visit %d of a: got %v, want %v", i+1, got, want)
		}
	}
	for range 2 {
		if got := Point("b"); !errors.Is(got, syscall.ENOSPC) {
			t.Errorf("b: got %v, want ENOSPC", got)
		}
	}
	if got := Point("c"); got != nil {
		t.Errorf("c is not armed, got %v", got)
	}
	disarm()
	if got := Point("b"); got != nil {
		t.Errorf("after disarm: %v", got)
	}
}

func TestStarCountsAllPoints(t *testing.T) {
	disarm, err := Arm("*=error:3")
	if err != nil {
		t.Fatal(err)
	}
	defer disarm()
	for i, name := range []string{"x", "y", "z", "x"} {
		if failed := Point(name) != nil; failed != (i == 2) {
			t.Errorf("visit %d: failed=%v", i+1, failed)
		}
	}
}

func TestTrace(t *testing.T) {
	var seen []string
	stop := Trace(func(name string) { seen = append(seen, name) })
	_ = Point("one")
	_ = Point("two")
	stop()
	_ = Point("three")
	if len(seen) != 2 || seen[0] != "one" || seen[1] != "two" {
		t.Errorf("seen %v", seen)
	}
}

func TestBadSpecs(t *testing.T) {
	for _, spec := range []string{"", "a", "=error", "a=explode", "a=error:0", "a=error:x", "a=kill,b"} {
		if _, err := Arm(spec); err == nil {
			t.Errorf("Arm(%q) succeeded", spec)
		}
	}
}

// TestEnvironment runs this test binary again, armed through the environment.
func TestEnvironment(t *testing.T) {
	if os.Getenv("FAULT_TEST_CHILD") != "" {
		ArmFromEnvironment()
		Place("place")
		if err := Point("child"); err != nil {
			os.Exit(7)
		}
		os.Exit(0)
	}
	for _, c := range []struct {
		spec   string
		exit   int
		signal syscall.Signal
	}{
		{"other=error", 0, 0},
		{"child=error", 7, 0},
		{"child=kill", -1, syscall.SIGKILL},
		{"place=kill", -1, syscall.SIGKILL},
		{"place=error", 0, 0}, // nothing can fail there
		{"*=error:2", 0, 0},   // and it is not counted: the child visits one point
		{"nonsense", 7, 0},    // a misspelt specification is noticed
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestEnvironment$")
		cmd.Env = append(os.Environ(), "FAULT_TEST_CHILD=1", EnvName+"="+c.spec)
		_ = cmd.Run()
		st := cmd.ProcessState
		if st.ExitCode() != c.exit {
			t.Errorf("%s: exit status %d, want %d", c.spec, st.ExitCode(), c.exit)
		}
		if ws := st.Sys().(syscall.WaitStatus); c.signal != 0 && ws.Signal() != c.signal {
			t.Errorf("%s: ended by %v, want %v", c.spec, ws.Signal(), c.signal)
		}
	}
}

// A process that stops at a point goes on from there.
func TestStop(t *testing.T) {
	for _, spec := range []string{"place=stop", "child=stop"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestEnvironment$")
		cmd.Env = append(os.Environ(), "FAULT_TEST_CHILD=1", EnvName+"="+spec)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatalf("%s: %v, %#x: it has not stopped", spec, err, status)
		}
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v after it went on", spec, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a=error:2,b=enospc")
	f.Fuzz(func(t *testing.T, spec string) {
		p, err := parse(spec)
		if (p == nil) == (err == nil) {
			t.Fatal("neither plan nor error, or both")
		}
	})
}
