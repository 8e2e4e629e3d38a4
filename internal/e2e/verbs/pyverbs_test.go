// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
	"github.com/libckpt/libckpt/internal/needmpi"
)

const (
	pyverbsLives = "CKPT_PYVERBS_LIVES" // how often it is saved, killed and continued
	pyverbsTable = "CKPT_PYVERBS_TABLE" // where a table of it is written
)

// pyverbsTests unpacks rdma-core's own tests, as Debian has them among its documents.
func pyverbsTests(t *testing.T) string {
	t.Helper()
	const packed = "/usr/share/doc/rdma-core/tests"
	names, err := os.ReadDir(packed)
	if err != nil {
		needmpi.Skip(t, "no tests of rdma-core", fmt.Sprintf("%v: python3-pyverbs has them (make setup with `test`), if documents are installed here", err))
	}
	dir := filepath.Join(t.TempDir(), "tests")
	must(t, os.Mkdir(dir, 0o755))
	for _, name := range names {
		f, err := os.Open(filepath.Join(packed, name.Name()))
		must(t, err)
		var from io.Reader = f
		plain, zipped := strings.CutSuffix(name.Name(), ".gz")
		if zipped {
			from, err = gzip.NewReader(f)
			must(t, err)
		}
		text, err := io.ReadAll(from)
		must(t, err)
		must(t, f.Close())
		must(t, os.WriteFile(filepath.Join(dir, plain), text, 0o644))
	}
	return dir
}

// newPyverbs prepares a job in which each rank runs all tests by itself, in rounds until letGo.
func newPyverbs(t *testing.T, tests string) (w *e2e.Whole, letGo func()) {
	t.Helper()
	dir := t.TempDir()
	argv := []string{"/usr/bin/python3", "-B", filepath.Join(built.Src, "pyverbs/rounds.py"), tests, dir, "--dev", "soft0"}
	if onRxe {
		argv = append(argv[:len(argv)-1], "rxe0", "--gid", "1")
	}
	w, err := e2e.NewWhole(built, dir, argv...)
	must(t, err)
	w.Ranks, w.Together = 2, true
	t.Cleanup(w.Mark.KillAll)
	return w, func() { must(t, os.WriteFile(filepath.Join(dir, "stop"), nil, 0o644)) }
}

// rounds is what became of each test in each round of a rank.
func rounds(t *testing.T, w *e2e.Whole, rank int) []map[string]string {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("%s.out.%d", w.Files, rank))
	if os.IsNotExist(err) {
		return nil // it is about to begin
	}
	must(t, err)
	defer f.Close()
	var all []map[string]string
	for in := bufio.NewReader(f); ; {
		line, err := in.ReadString('\n')
		if err == io.EOF {
			return all // what is not ended is not written yet
		}
		must(t, err)
		var one map[string]string
		must(t, json.Unmarshal([]byte(line), &one))
		all = append(all, one)
	}
}

// counts says how many passed, failed, were skipped.
func counts(of map[string]string) string {
	n := map[string]int{}
	for _, what := range of {
		kind, _, _ := strings.Cut(what, ":")
		n[kind]++
	}
	return fmt.Sprintf("%d passed, %d failed, %d skipped", n["passed"], n["failed"], n["skipped"])
}

// atomicWrite is of a kind of write that rdma-core's provider for rdma_rxe offers and Linux 6.1 does not know. The library
// that stands in for libibverbs does not offer it.
const atomicWrite = "tests.test_qpex.QpExTestCase.test_qp_ex_rc_atomic_write"

// sayFailed logs the last words of what has failed.
func sayFailed(t *testing.T, of map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if why, failed := strings.CutPrefix(of[name], "failed: "); failed {
			lines := strings.Split(strings.TrimSpace(why), "\n")
			t.Logf("%s: %s", name, lines[len(lines)-1])
		}
	}
}

// kernelsFaults is what fails on a kernel's adapter natively: where in the tests, and how, is not the same each time.
func kernelsFaults(of map[string]string) map[string]string {
	if !onRxe {
		return of
	}
	for name, what := range of {
		if strings.HasPrefix(what, "failed: ") {
			of[name] = "failed"
		}
	}
	return of
}

// differ compares a round with a native one.
func differ(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%s: %s: %q, natively %q", what, name, got[name], want[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d tests, natively %d", what, len(got), len(want))
	}
}

// TestPyverbs runs rdma-core's own tests natively, and in a job that is saved at random moments, killed and continued: in
// each round each test ends as natively.
func TestPyverbs(t *testing.T) {
	need(t)
	tests := pyverbsTests(t)
	if _, err := os.Stat("/usr/lib/python3/dist-packages/pyverbs/__init__.py"); err != nil {
		needmpi.Skip(t, "no pyverbs", err.Error())
	}
	lives := few(2, 1)
	if v := os.Getenv(pyverbsLives); v != "" {
		n, err := strconv.Atoi(v)
		must(t, err)
		lives = n
	}
	native, letGo := newPyverbs(t, tests)
	letGo()
	must(t, native.Natively())
	must(t, native.MustEnd(jobLimit))
	want := rounds(t, native, 0)[0]
	if c := counts(want); (!strings.Contains(c, " 0 failed") && !onRxe) || strings.HasPrefix(c, "0 ") {
		t.Fatalf("natively: %s: %v", c, want)
	}
	sayFailed(t, want)
	want = kernelsFaults(want)
	differ(t, "natively, the other process", kernelsFaults(rounds(t, native, 1)[0]), want)
	natively := counts(want)
	if want[atomicWrite] == "failed" {
		t.Logf("%s fails natively, and is skipped under ckptrun", atomicWrite)
		want[atomicWrite] = "skipped: Extended QP is not supported on this device"
	}

	w, letGo := newPyverbs(t, tests)
	random := rand.New(rand.NewPCG(seed(t), 0))
	l := life{t: t, w: w, random: random, within: time.Second}
	must(t, w.Start("shell"))
	for n := range lives {
		// Each life has a whole round at least, of each rank.
		before := [2]int{len(rounds(t, w, 0)), len(rounds(t, w, 1))}
		if !l.begun() || !e2e.Poll(jobLimit, nil, func() bool {
			return w.Ended() || (len(rounds(t, w, 0)) > before[0] && len(rounds(t, w, 1)) > before[1])
		}) {
			t.Fatalf("life %d: no round ends: %s", n, w.Said())
		}
		l.pause()
		then := []string{"kill", "continue"}[n%2]
		if !l.save(then) {
			t.Fatalf("life %d: it has ended: %s", n, w.Said())
		}
		if then == "continue" {
			l.pause()
			must(t, w.Kill(jobLimit, true))
		} else {
			_, err := w.Wait(jobLimit)
			must(t, err)
		}
		anotherDevice(t)
		must(t, w.Restart("shell"))
	}
	if !l.begun() {
		t.Fatalf("the last life has ended: %s", w.Said())
	}
	letGo()
	must(t, w.MustEnd(jobLimit))
	all := 0
	for r := range w.Ranks {
		of := rounds(t, w, r)
		all += len(of)
		for i, got := range of {
			sayFailed(t, got)
			differ(t, fmt.Sprintf("rank %d, round %d", r, i+1), kernelsFaults(got), want)
		}
		if len(of) <= lives {
			t.Errorf("rank %d has done %d rounds in %d lives", r, len(of), lives+1)
		}
	}
	result := fmt.Sprintf("%s natively, and in each of %d rounds of 2 ranks over %d saves, kills and restarts", natively, all, l.saved)
	t.Log(result)
	if path := os.Getenv(pyverbsTable); path != "" && !t.Failed() {
		must(t, os.WriteFile(path, []byte(pyverbsText(result, want)), 0o644))
	}
}

// pyverbsText is the table that is kept of a run.
func pyverbsText(result string, want map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# rdma-core's own tests (pyverbs)\n\n`make test-pyverbs LIVES=n` writes this. Debian's python3-pyverbs 44, on the soft adapter, one job of `ckptrun --ranks 2`:\n%s.\n", result)
	skipped := map[string]int{}
	modules := map[string]map[string]int{}
	for name, what := range want {
		module := strings.Split(name, ".")[1]
		if modules[module] == nil {
			modules[module] = map[string]int{}
		}
		kind, reason, _ := strings.Cut(what, ": ")
		modules[module][kind]++
		if kind == "skipped" {
			skipped[reason]++
		}
	}
	b.WriteString("\n| tests | passed | failed | skipped |\n|---|---|---|---|\n")
	for _, module := range slices.Sorted(maps.Keys(modules)) {
		m := modules[module]
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", module, m["passed"], m["failed"], m["skipped"])
	}
	b.WriteString("\nWhy they are skipped, natively and under ckptrun:\n\n| tests | reason |\n|---|---|\n")
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		fmt.Fprintf(&b, "| %d | %s |\n", skipped[reason], reason)
	}
	return b.String()
}
