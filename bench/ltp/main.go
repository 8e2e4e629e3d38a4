// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/libckpt/libckpt/bench/known"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "ltp:", err)
		os.Exit(1)
	}
}

func run() error {
	root := flag.String("root", "", "folder of an installed suite (runtest, testcases/bin)")
	build := flag.String("build", "build", "the tree of make")
	lists := flag.String("lists", "syscalls", "files of runtest, with commas")
	only := flag.String("only", ".", "programs whose names match this regular expression")
	skip := flag.String("skip", "^$", "but not these")
	limit := flag.Duration("each", 20*time.Second, "what a program may take natively; under ckptrun three times as much")
	again := flag.Bool("differing", false, "only programs of the results that end otherwise")
	save := flag.Bool("saved", false, "run what ends alike twice more: saved again and again; saved and killed in the middle, and continued")
	report := flag.String("report", "", "name of a table (.md) and of results (.json), which are written; results of programs that are not run are kept")
	reasonFile := flag.String("reasons", "bench/ltp/reasons.txt", "why programs end otherwise, one a line")
	title := flag.String("title", "The Linux Test Project's programs under ckptrun", "heading of the table")
	script := flag.String("script", "bench/ltp.sh", "what writes the table, for its head")
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
	r := &runner{root: *root, limit: *limit, save: *save}
	if r.ckptrun, err = filepath.Abs(filepath.Join(*build, "bin/ckptrun")); err != nil {
		return err
	}
	if r.ckptctl, err = filepath.Abs(filepath.Join(*build, "bin/ckptctl")); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "ltp-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	if err := os.Chmod(r.work, 0o755); err != nil {
		return err
	}
	all, err := known.Load[result](*report)
	if err != nil {
		return err
	}
	// What programs say names files by paths of this machine.
	suite, err := filepath.Abs(*root)
	if err != nil {
		return err
	}
	tree := filepath.Dir(filepath.Dir(r.ckptrun))
	here := strings.NewReplacer(tree+"/", "build/", suite+"/", "", filepath.Dir(suite)+"/", "")
	unbuilt, ran := 0, 0
	for name := range strings.SplitSeq(*lists, ",") {
		programs, err := list(*root, name)
		if err != nil {
			return err
		}
		for _, p := range programs {
			if !want.MatchString(p.name) || not.MatchString(p.name) || *again && !all[p.name].differs() && !all[p.name].Saved.otherwise(all[p.name].Native) {
				continue
			}
			res, built, err := r.run(p)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if !built {
				unbuilt++
				continue
			}
			ran++
			res.List = name
			res.Said, res.Saved.Said = here.Replace(res.Said), here.Replace(res.Saved.Said)
			all[p.name] = res
			fmt.Printf("%s: %s: %s", p.name, res.verdict(), res.Native)
			if res.differs() {
				fmt.Printf(" | %s | %s", res.Ours, res.Said)
			}
			if *save {
				fmt.Printf(" | saved: %s | restarted: %s | %s", res.Saved.Continued, res.Saved.Restarted, res.Saved.Said)
			}
			fmt.Println()
		}
	}
	fmt.Printf("%d programs are not built\n", unbuilt)
	if unbuilt > 0 && ran == 0 {
		return fmt.Errorf("no program is in %s/testcases/bin: nothing was compared, and no table is written", *root)
	}
	if *report == "" {
		return nil
	}
	head := fmt.Sprintf("# %s\n\nWritten by `%s` on %s, last with commit %s.", *title, *script, time.Now().UTC().Format(time.DateOnly), *revision)
	return known.Save(*report, all, table(all, reasons, head))
}
