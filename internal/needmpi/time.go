// SPDX-License-Identifier: Apache-2.0

package needmpi

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Until names the time, in seconds since 1970, from which on no more tests are begun: `make test` shall end on a slow
// machine as well (scripts/test.sh). Without it there is no such time.
const Until = "LIBCKPT_TEST_UNTIL"

// Over tells whether that time has come.
func Over() bool {
	until, err := strconv.ParseInt(os.Getenv(Until), 10, 64)
	return err == nil && time.Now().Unix() >= until
}

// Time skips a test for which no time is left. Tests of many parts ask before each.
func Time(t testing.TB) {
	t.Helper()
	if Over() {
		Skip(t, lackOfTime, "no time is left ("+Until+"): make test MINUTES=0 runs all")
	}
}

const lackOfTime = "no time left"

// Listing tells whether the test binary shall only name its tests: TestMain then has nothing to prepare.
func Listing() bool {
	if !flag.Parsed() {
		flag.Parse()
	}
	f := flag.Lookup("test.list")
	return f != nil && f.Value.String() != ""
}

// Run runs a package's tests, as m.Run does. Where Until is set they come in a random order, a few at once, and those for
// which there is no time are skipped: on a slow machine each run tests something else. It returns the status of m.Run.
func Run(m *testing.M) (int, error) {
	if os.Getenv(Until) == "" || Listing() || flag.Lookup("test.run").Value.String() != "" {
		return m.Run(), nil
	}
	names, err := list()
	if err != nil {
		return 1, err
	}
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	status := 0
	const some = 6 // of a group, those with t.Parallel run beside each other
	for len(names) > 0 {
		if Over() {
			for _, name := range names {
				note(lackOfTime, name)
			}
			break
		}
		n := min(some, len(names))
		if err := flag.Set("test.run", "^("+strings.Join(names[:n], "|")+")$"); err != nil {
			return 1, err
		}
		if s := m.Run(); s != 0 {
			status = s
		}
		names = names[n:]
	}
	return status, nil
}

// list asks another process of this binary for the names of all tests, which the package testing keeps to itself.
func list() ([]string, error) {
	out, err := exec.Command(os.Args[0], "-test.list=^Test").Output()
	if err != nil {
		return nil, fmt.Errorf("the names of the tests: %w", err)
	}
	return strings.Fields(string(out)), nil
}
