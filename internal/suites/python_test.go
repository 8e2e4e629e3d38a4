// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/libckpt/libckpt/internal/e2e"
)

// pythons are modules of Python's own tests that ask much of the system: signals, descriptors, processes, terminals.
var pythons = strings.Fields("eintr epoll fcntl mmap os posix pty select subprocess thread threadsignals")

// verdict is a line of unittest's. What was printed meanwhile may stand between a name and its verdict.
var verdict = regexp.MustCompile(`(?m)^(\w+ \(test\.[\w.]+\)|.*) \.\.\. (ok|FAIL|ERROR|skipped|expected failure)`)

// TestPythonsOwnTests: each test of these modules ends under ckptrun as it does without.
func TestPythonsOwnTests(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	ckptrun, err := filepath.Abs("../../build/bin/ckptrun")
	if err != nil {
		t.Fatal(err)
	}
	const python = "/usr/bin/python3"
	if out, err := exec.Command(python, "-c", "import test.test_select").CombinedOutput(); err != nil {
		t.Fatalf("Python's own tests are not here (make test installs what Debian packages): %v\n%s", err, out)
	}
	for _, module := range pythons {
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			// A program has 256 descriptors under ckptrun.
			limited := []string{"sh", "-c", `ulimit -Sn 256; exec "$@"`, "sh"}
			tests := []string{python, "-m", "unittest", "-v", "test.test_" + module}
			var verdicts [2][]string
			var wait sync.WaitGroup
			for i, before := range [][]string{nil, {ckptrun, "--dir", filepath.Join(t.TempDir(), "ckpt"), "--"}} {
				r, err := e2e.NewRun(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				wait.Go(func() {
					if err := r.Once(5*time.Minute, slices.Concat(limited, before, tests)...); err != nil {
						t.Error(err)
						return
					}
					for _, m := range verdict.FindAllStringSubmatch(string(read(t, r.Stderr)), -1) {
						verdicts[i] = append(verdicts[i], m[1]+": "+m[2])
					}
				})
			}
			wait.Wait()
			if len(verdicts[0]) == 0 {
				t.Fatal("no test ran")
			}
			if diff := cmp.Diff(verdicts[0], verdicts[1]); diff != "" {
				t.Errorf("tests of Python (-without ckptrun +with it):\n%s", diff)
			}
			t.Logf("%d tests", len(verdicts[0]))
		})
	}
}
