// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// effort is how much of everything is measured.
type effort struct {
	full    bool
	rounds  int // of calls
	batches int // a question and round
	saves   int // rounds of checkpoints of the smallest size; larger ones take fewer
}

// A machine whose speed changes from second to second hides a few nanoseconds: many short rounds of calls.
var (
	quick    = effort{rounds: 21, batches: 300, saves: 3}
	thorough = effort{full: true, rounds: 61, batches: 1000, saves: 5}
)

// study is what goes to one file of results.
type study struct {
	name    string
	measure func(context.Context, *bench) (*report, error)
}

var studies = []study{
	{"crossing", measureCrossing},
	{"switching", measureSwitching},
	{"query", measureQuery},
	{"blocking", measureBlocking},
	{"triple", measureTriple},
	{"window", measureWindow},
	{"counting", measureCounting},
	{"safestate", measureSafeState},
	{"groups", measureGroups},
	{"syscall", measureSyscall},
	{"checkpoint", measureCheckpoint},
	{"restart", measureRestart},
	{"levels", measureLevels},
	{"fti", measureFTI},
	{"tracking", measureTracking},
	{"samepages", measureSamePages},
	{"embed", measureEmbed},
	{"ranks", measureRanks},
	{"processor", measureProcessor},
	{"when", playWhen},
	{"verbs", measureVerbs},
}

// bench is one run of this program.
type bench struct {
	effort
	build   string // the built tree, absolute
	results string // where the results go
	ranks   int    // the only number of ranks of that study; 0: all of it
	scratch string // working directory of what is run; removed at the end
	machine machine
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		if errors.Is(err, flag.ErrHelp) || errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

var (
	errUsage = errors.New("usage")
	// errLeftOut is of a study that needs what this machine does not have. Whoever asks for it by name has it fail.
	errLeftOut = errors.New("left out, nothing was measured")
)

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	build := flags.String("build", "build", "the built tree")
	results := flags.String("results", filepath.Join("bench", "results"), "where the results go")
	full := flags.Bool("full", false, "every combination, more rounds")
	only := flags.String("only", "", "studies to make, separated by commas")
	ranks := flags.Int("ranks", 0, "of the study of many ranks: this number only, under Open MPI; rows of others are kept as they were")
	if err := flags.Parse(args); err != nil {
		return errUsage
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: %q is no option", errUsage, flags.Arg(0))
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	b := &bench{effort: quick, ranks: *ranks, results: *results}
	if *full {
		b.effort = thorough
	}
	if b.build, err = filepath.Abs(*build); err != nil {
		return err
	}
	if b.scratch, err = os.MkdirTemp(b.build, "bench-run-"); err != nil {
		return fmt.Errorf("no working directory (run `make bench`, which builds first): %w", err)
	}
	defer os.RemoveAll(b.scratch)
	if err := os.MkdirAll(*results, 0o777); err != nil {
		return err
	}
	if b.machine, err = describe(ctx, b.build); err != nil {
		return err
	}
	fmt.Printf("bench: %s\n", b.machine.summary())

	began := time.Now()
	var failed []error
	met, missed, leftOut := 0, []string(nil), []string(nil)
	for _, s := range chosen {
		fmt.Printf("\n== %s\n", s.name)
		r, err := s.measure(ctx, b)
		if err == nil || r != nil && r.Partial && ctx.Err() == nil {
			err = errors.Join(err, r.save(*results, s.name, b))
		}
		if errors.Is(err, errLeftOut) && *only == "" {
			leftOut = append(leftOut, fmt.Sprintf("%s: %v", s.name, err))
			fmt.Printf("%v\n", err)
		} else if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
			fmt.Printf("FAILED: %v\n", err)
		} else {
			m, no := r.goals()
			met, missed = met+m, append(missed, no...)
		}
		if ctx.Err() != nil {
			break
		}
	}
	fmt.Printf("\nbench: %d goals met, %d missed\n", met, len(missed))
	for _, m := range missed {
		fmt.Printf("   missed: %s\n", m)
	}
	for _, l := range leftOut {
		fmt.Printf("   not measured: %s\n", l)
	}
	fmt.Printf("bench: %.0f s; results are in %s\n", time.Since(began).Seconds(), *results)
	return errors.Join(failed...)
}

func choose(names string) ([]study, error) {
	if names == "" {
		return studies, nil
	}
	var chosen []study
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(studies, func(s study) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("%w: no study is called %q", errUsage, name)
		}
		chosen = append(chosen, studies[i])
	}
	return chosen, nil
}
