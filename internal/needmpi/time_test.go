// SPDX-License-Identifier: Apache-2.0

package needmpi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) {
	status, err := Run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

// again runs the tests of this binary in a process of its own with so much time, and returns what it said and the tests
// that were skipped.
func again(t *testing.T, left time.Duration) (string, []string) {
	t.Helper()
	skipped := filepath.Join(t.TempDir(), "skipped")
	cmd := exec.Command(os.Args[0], "-test.v", "-test.skip=^TestRun")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", Until, time.Now().Add(left).Unix()), Gather+"="+skipped)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(skipped)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(out), strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

func TestRunInTime(t *testing.T) {
	names, err := list()
	if err != nil {
		t.Fatal(err)
	}
	out, _ := again(t, time.Hour)
	for _, name := range names {
		if ran := strings.Contains(out, "--- PASS: "+name) || strings.Contains(out, "--- SKIP: "+name); ran == strings.HasPrefix(name, "TestRun") {
			t.Errorf("%s ran: %v\n%s", name, ran, out)
		}
	}
	if strings.Contains(out, "no tests to run") {
		t.Errorf("a group has no tests: %s", out)
	}
}

func TestRunTooLate(t *testing.T) {
	names, err := list()
	if err != nil {
		t.Fatal(err)
	}
	out, skipped := again(t, -time.Second)
	if strings.Contains(out, "--- ") {
		t.Errorf("a test ran: %s", out)
	}
	want := make([]string, len(names))
	for i, name := range names {
		want[i] = lackOfTime + ": " + name
	}
	slices.Sort(want)
	slices.Sort(skipped)
	if diff := cmp.Diff(want, skipped); diff != "" {
		t.Error(diff)
	}
}

func TestTime(t *testing.T) {
	t.Setenv(Gather, filepath.Join(t.TempDir(), "skipped"))
	for until, want := range map[string]bool{"": true, "0": false, fmt.Sprint(time.Now().Unix() + 3600): true} {
		ran := false
		t.Run("until "+until, func(t *testing.T) {
			t.Setenv(Until, until)
			Time(t)
			ran = true
		})
		if ran != want {
			t.Errorf("%s=%s: the test ran: %v", Until, until, ran)
		}
	}
}
