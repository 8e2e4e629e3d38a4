// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/libckpt/libckpt/bench/known"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "zdtm:", err)
		os.Exit(1)
	}
}

func keys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }

func run() error {
	static := flag.String("static", "", "folder of the programs, test/zdtm/static of a built checkout")
	build := flag.String("build", "build", "the tree of make")
	only := flag.String("only", ".", "programs whose names match this regular expression")
	skip := flag.String("skip", "^$", "but not these")
	limit := flag.Duration("each", 30*time.Second, "what a step of a program may take")
	report := flag.String("report", "", "name of a table (.md) and of results (.json), which are written; results of programs that are not run are kept")
	reasonFile := flag.String("reasons", "bench/zdtm/reasons.txt", "why programs do not pass, one a line")
	note := flag.String("note", "", "a sentence for the head of the table")
	revision := flag.String("revision", "", "the commit, for the table")
	flag.Parse()
	want, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	not, err := regexp.Compile(*skip)
	if err != nil {
		return err
	}
	reasons, err := known.Read(*reasonFile)
	if err != nil {
		return err
	}
	r := &runner{limit: *limit}
	if r.static, err = filepath.Abs(*static); err != nil {
		return err
	}
	if r.build, err = filepath.Abs(*build); err != nil {
		return err
	}
	if r.options, err = list(r.static); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "zdtm-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	all, err := known.Load[[]result](*report)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(keys(r.options)) {
		if !want.MatchString(name) || not.MatchString(name) {
			continue
		}
		if all[name], err = r.all(name); err != nil {
			return err
		}
		v, res := judge(all[name])
		fmt.Printf("%s: %s (%s %s) %s\n", name, v, res.Way, res.Outcome, res.Said)
	}
	if *report == "" {
		return nil
	}
	head := fmt.Sprintf("Written by `bench/zdtm.sh` on %s, last with commit %s. What of the suite needs namespaces of its own, hardware or daemons "+
		"does not pass natively here.", time.Now().UTC().Format(time.DateOnly), *revision)
	if *note != "" {
		head += " " + *note
	}
	return known.Save(*report, all, table(all, reasons, head))
}

// all runs a program in one way after the other, as far as that tells something.
func (r *runner) all(name string) (all []result, err error) {
	for _, w := range []way{native, restarted, resumed, unsaved} {
		if w == resumed && all[len(all)-1].Outcome == refused {
			continue // it would be once more
		}
		res, err := r.run(name, w)
		if err != nil {
			return nil, err
		}
		all = append(all, res)
		// What does not pass natively tells nothing; what passes when it is killed passes else.
		if (w == native) != (res.Outcome == passes) {
			break
		}
	}
	return all, nil
}
