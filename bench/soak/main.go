// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/libckpt/libckpt/internal/soak"
)

type options struct {
	tree     *soak.Tree
	cycles   int
	seed     uint64
	life     uint64
	only     string
	keep     string
	failures int
}

func main() {
	var o options
	build := flag.String("build", "build", "the build `tree`")
	flag.IntVar(&o.cycles, "cycles", 500, "go on until there were so many `cycles`")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64(), "the lives are drawn from this `number`")
	flag.Uint64Var(&o.life, "life", 0, "lead only the life of this `number`")
	flag.StringVar(&o.only, "only", "", "only these `programs`, separated by semicolons")
	flag.StringVar(&o.keep, "keep", "", "failed lives leave what they wrote in this `folder`")
	flag.IntVar(&o.failures, "failures", 5, "stop after so many failures")
	log := flag.String("log", "", "write the report to this `file`, too")
	flag.Parse()
	if err := run(o, *build, *log); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func run(o options, build, log string) error {
	programs, err := choose(o.only)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "soak-programs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	if o.tree, err = soak.Open(build, scratch); err != nil {
		return err
	}
	var w io.Writer = os.Stdout
	if log != "" {
		f, err := os.Create(log)
		if err != nil {
			return err
		}
		defer f.Close()
		w = io.MultiWriter(os.Stdout, f)
	}
	totals, err := o.lead(w, programs)
	if err != nil {
		return err
	}
	if totals.Failures > 0 {
		return fmt.Errorf("%d of %d lives failed", totals.Failures, totals.Lives)
	}
	return nil
}

func choose(only string) ([]soak.Program, error) {
	if only == "" {
		return soak.Programs, nil
	}
	var programs []soak.Program
	for _, name := range strings.Split(only, ";") {
		p, err := soak.Find(name)
		if err != nil {
			return nil, err
		}
		programs = append(programs, *p)
	}
	return programs, nil
}

func (o *options) lead(w io.Writer, programs []soak.Program) (*soak.Totals, error) {
	var totals soak.Totals
	seeds := rand.New(rand.NewPCG(o.seed, 0))
	began := time.Now()
	if o.life == 0 {
		fmt.Fprintf(w, "seed %#x\n", o.seed)
	}
	for totals.Cycles < o.cycles && totals.Failures < o.failures {
		// Each program has a life; the others are drawn.
		seed, from := seeds.Uint64(), programs
		switch {
		case o.life != 0:
			seed = o.life
		case totals.Lives < len(programs):
			from = programs[totals.Lives:][:1]
		default:
			from = []soak.Program{*soak.Draw(seeds, programs)}
		}
		if err := o.one(w, seed, from, &totals); err != nil {
			return nil, err
		}
		if o.life != 0 {
			break
		}
	}
	report(w, &totals, time.Since(began))
	return &totals, nil
}

// one leads a life and prints a line, or the whole story if it failed.
func (o *options) one(w io.Writer, seed uint64, programs []soak.Program, totals *soak.Totals) error {
	dir, err := os.MkdirTemp(o.keep, "soak-")
	if err == nil {
		dir, err = filepath.Abs(dir) // ranks run elsewhere
	}
	if err != nil {
		return err
	}
	l := soak.NewLife(seed, o.tree, programs, dir)
	began := time.Now()
	err = l.Go()
	totals.Add(l)
	fmt.Fprintf(w, "%s: %d cycles, %.1f s\n", l, l.Cycles, time.Since(began).Seconds())
	if err != nil {
		fmt.Fprintf(w, "%s\nagain: -life %#x -only %q\n", l.Story(), seed, l.Program.Name)
		if o.keep != "" {
			fmt.Fprintf(w, "left in %s\n", dir)
			return nil
		}
	} else if o.life != 0 {
		fmt.Fprintf(w, "%s\n", l.Story())
	}
	return os.RemoveAll(dir)
}

func report(w io.Writer, t *soak.Totals, took time.Duration) {
	fmt.Fprintf(w, "\n%d cycles in %d lives, %v\n", t.Cycles, t.Lives, took.Round(time.Second))
	for _, name := range slices.Sorted(maps.Keys(t.Events)) {
		fmt.Fprintf(w, "  %5d  %s\n", t.Events[name], name)
	}
	fmt.Fprintf(w, "\n%-18s lives cycles failures  time to the safe state; time to the commit\n", "program")
	for _, name := range slices.Sorted(maps.Keys(t.Programs)) {
		p := t.Programs[name]
		fmt.Fprintf(w, "%-18s %5d %6d %8d  %s; %s\n", name, p.Lives, p.Cycles, p.Failures, p.Safe, p.Commit)
	}
	fmt.Fprintf(w, "\nsafe state: %s\ncommit:     %s\nfailures:   %d\n", t.Safe, t.Commit, t.Failures)
}
