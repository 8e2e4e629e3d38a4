// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/disturb"
	"github.com/libckpt/libckpt/internal/needmpi"
)

var (
	cyclesFlag = flag.Int("cycles", 104, "checkpoint, kill and restart cycles over all programs (CKPT_E2E_CYCLES)")
	seedFlag   = flag.Uint64("seed", 0, "seed of the random moments (CKPT_E2E_SEED); 0 takes a new one")
	trapFlag   = flag.String("trap", "", "--trap of ckptrun: seccomp, sud (CKPT_E2E_TRAP)")
	built      *Built
)

func TestMain(m *testing.M) {
	if err := disturb.Enter(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(127)
	}
	if os.Getenv(wireName) != "" {
		if err := wireMain(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if needmpi.Listing() {
		os.Exit(m.Run())
	}
	os.Exit(runTests(m))
}

// programsName names a folder for the programs, which are built there once and stay: where the tests are to run compiling may
// take long (scripts/test-vm.sh).
const programsName = "LIBCKPT_E2E_PROGRAMS"

func runTests(m *testing.M) int {
	dir := os.Getenv(programsName)
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "ckpt-e2e-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
	}
	if err := buildOnce(dir); err != nil {
		fmt.Fprintln(os.Stderr, "build the programs:", err)
		return 1
	}
	status, err := needmpi.Run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return status
}

// buildOnce compiles the programs into dir, unless all of them are there.
func buildOnce(dir string) error {
	there := filepath.Join(dir, "built")
	if _, err := os.Stat(there); err == nil {
		built, err = here(dir)
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var err error
	if built, err = Build(ctx, dir); err != nil {
		return err
	}
	return os.WriteFile(there, nil, 0o644)
}

func fromEnv(t *testing.T, name string, v uint64) uint64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return v
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func options() []string {
	trap := *trapFlag
	if trap == "" {
		trap = os.Getenv("CKPT_E2E_TRAP")
	}
	if trap == "" {
		return nil
	}
	return []string{"--trap", trap}
}

func needCommands(t *testing.T) {
	t.Helper()
	for _, path := range []string{built.CkptRun(), built.CkptCtl()} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%v: run make all faults first", err)
		}
	}
}

// takes is what a program is to take by itself: where the processor is emulated, ckptctl, which runs each of its instructions once,
// takes longer to begin than programs that compute in a loop.
func takes() time.Duration {
	if os.Getenv(slowName) != "" {
		return 15 * time.Second
	}
	return 1500 * time.Millisecond
}

// work is the amount of a program's work: so much that it takes about that long here, between Short and Long.
func work(t *testing.T, p Program) int {
	t.Helper()
	if testing.Short() {
		return p.Short
	}
	if _, ok := amounts[p.Name]; !ok {
		least := onceWith(t, p, p.Short, t.TempDir())
		amounts[p.Name] = min(p.Long, max(p.Short, int(float64(p.Short)*takes().Seconds()/least.Time.Seconds())))
	}
	return amounts[p.Name]
}

var amounts = map[string]int{}

// native runs a program by itself, once for each test binary.
func native(t *testing.T, p Program) *Run {
	t.Helper()
	if r, ok := natives[p.Name]; ok {
		return r
	}
	r := once(t, p, filepath.Join(built.Bin, "native-"+p.Name))
	natives[p.Name] = r
	return r
}

var natives = map[string]*Run{}

func once(t *testing.T, p Program, dir string, before ...string) *Run {
	t.Helper()
	return onceWith(t, p, work(t, p), dir, before...)
}

func onceWith(t *testing.T, p Program, amount int, dir string, before ...string) *Run {
	t.Helper()
	r, err := NewRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	argv, err := built.Command(p, amount, r.Work())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Once(slowly(3*time.Minute), append(before, argv...)...); err != nil {
		text, _ := os.ReadFile(r.Stderr)
		t.Fatalf("%v\nstderr: %s", err, text)
	}
	return r
}

// A program that is not the same twice by itself could not tell anything.
func TestProgramsAreDeterministic(t *testing.T) {
	for _, p := range Programs {
		t.Run(p.Name, func(t *testing.T) {
			needmpi.Time(t)
			if err := native(t, p).Same(once(t, p, t.TempDir())); err != nil {
				t.Error(err)
			}
			text, err := os.ReadFile(native(t, p).Stdout)
			if err != nil || len(text) == 0 {
				t.Errorf("no output (%v)", err)
			}
		})
	}
}

func TestUnderCkptrun(t *testing.T) {
	needCommands(t)
	for _, p := range Programs {
		t.Run(p.Name, func(t *testing.T) {
			needmpi.Time(t)
			want := native(t, p)
			dir := t.TempDir()
			argv := append([]string{built.CkptRun()}, options()...)
			argv = append(argv, "--dir", filepath.Join(dir, "ckpt"), "--")
			got := once(t, p, dir, argv...)
			if err := want.Same(got); err != nil {
				t.Error(err)
			}
		})
	}
}

// tally counts the cycles of one program.
type tally struct {
	name                      string
	want, cycles, equal, late int
}

func TestCycles(t *testing.T) {
	needCommands(t)
	seed := fromEnv(t, "CKPT_E2E_SEED", *seedFlag)
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed: %d (again with CKPT_E2E_SEED=%d)", seed, seed)
	total := int(fromEnv(t, "CKPT_E2E_CYCLES", uint64(*cyclesFlag)))
	wanted := share(total)
	var tallies []tally
	for i, p := range Programs {
		row := tally{name: p.Name, want: wanted[i]}
		t.Run(p.Name, func(t *testing.T) {
			cycle(t, p, &row, rand.New(rand.NewPCG(seed, uint64(i))))
		})
		tallies = append(tallies, row)
	}
	sum := tally{}
	var table strings.Builder
	fmt.Fprintf(&table, "%-16s %7s %7s %7s %9s\n", "program", "wanted", "cycles", "equal", "too late")
	for _, r := range tallies {
		fmt.Fprintf(&table, "%-16s %7d %7d %7d %9d\n", r.name, r.want, r.cycles, r.equal, r.late)
		sum.want, sum.cycles, sum.equal, sum.late = sum.want+r.want, sum.cycles+r.cycles, sum.equal+r.equal, sum.late+r.late
	}
	t.Logf("\n%scycles: %d, equal: %d", table.String(), sum.cycles, sum.equal)
	if sum.equal != sum.cycles {
		t.Errorf("%d of %d cycles ended differently from the native run", sum.cycles-sum.equal, sum.cycles)
	}
}

// share spreads the cycles: first one to each program, then the rest to those without a limit.
func share(total int) []int {
	wanted := make([]int, len(Programs))
	for total > 0 {
		given := false
		for i, p := range Programs {
			if total > 0 && (p.Cycles == 0 || wanted[i] < p.Cycles) {
				wanted[i]++
				total--
				given = true
			}
		}
		if !given {
			break
		}
	}
	return wanted
}

// cycle runs chains of a program until it has had its cycles.
func cycle(t *testing.T, p Program, row *tally, random *rand.Rand) {
	if row.want == 0 {
		t.Skip("asked for fewer cycles than there are programs")
	}
	needmpi.Time(t)
	want := native(t, p)
	for runs := 0; row.cycles < row.want; runs++ {
		if runs > 2*row.want+3 {
			t.Fatalf("%d cycles in %d runs, wanted %d: the program ends before it can be saved", row.cycles, runs, row.want)
		}
		run, err := NewRun(filepath.Join(t.TempDir(), strconv.Itoa(runs)))
		if err != nil {
			t.Fatal(err)
		}
		argv, err := built.Command(p, work(t, p), run.Work())
		if err != nil {
			t.Fatal(err)
		}
		c := Chain{Built: built, Run: run, Argv: argv, Native: want.Time, Random: random, Options: options(),
			Late: row.late, Most: min(1+runs%4, row.want-row.cycles)}
		err = c.Go()
		row.cycles += c.Cycles
		row.late += c.TooLate
		if err == nil {
			err = want.Same(run)
		}
		if err != nil {
			t.Fatalf("run %d, cycle %d: %v", runs+1, c.Cycles, err)
		}
		row.equal += c.Cycles
		if err := os.RemoveAll(run.Dir); err != nil {
			t.Error(err)
		}
	}
}
