// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

type options struct {
	runner
	only, lists []string
	ranks       int
	objects     int
	budget      time.Duration
	all         bool
	again       bool
	ways        []string
	state       string
	report      string
	reasons     string
	notes       string
	merge       string
}

func main() {
	var o options
	var mpich, openmpi, only, lists, chosen string
	flag.StringVar(&o.build, "build", "build", "the build `tree`")
	flag.StringVar(&mpich, "mpich", "", "the `folder` of the suite that was built for MPICH")
	flag.StringVar(&openmpi, "openmpi", "", "the `folder` of the suite that was built for Open MPI")
	flag.StringVar(&only, "only", "", "only these `folders`, with commas between them")
	flag.StringVar(&lists, "lists", "testlist", "the `lists` of programs that are read in each folder")
	flag.IntVar(&o.ranks, "ranks", 4, "leave programs out that want more `ranks`")
	flag.IntVar(&o.objects, "objects", 0, "programs of testlist.dtp make at most so many `datatypes`, not the number in the list; 0: as the list says")
	flag.DurationVar(&o.budget, "limit", 30*time.Minute, "begin no program after this `time`; the next run goes on")
	flag.DurationVar(&o.each, "each", 60*time.Second, "what one job may take")
	flag.DurationVar(&o.natively, "natively", 60*time.Second, "what one native job may take: slower programs are not compared")
	flag.BoolVar(&o.all, "all", false, "restart each program in all ways, not in one of them")
	flag.BoolVar(&o.again, "again", false, "only run again what did not pass although it passes natively")
	flag.StringVar(&chosen, "ways", "", "only these `ways` beside native ones, with commas between them; \"restart\" is the one whose turn it is")
	flag.StringVar(&o.state, "state", "", "the `file` in which results are kept between runs")
	flag.StringVar(&o.report, "report", "", "write the table to this `path`, with .md and .json behind it")
	flag.StringVar(&o.reasons, "reasons", "", "a `file` of known differences and their reasons")
	flag.StringVar(&o.notes, "notes", "", "a `file` whose text the table has below its head")
	flag.StringVar(&o.merge, "merge", "", "a `table` (.json) of a run before: its results of what has none in this one are part of the new table")
	flag.StringVar(&o.revision, "revision", "", "the `commit` that is run, kept with each result")
	flag.Parse()
	o.suite = map[string]string{"mpich": mpich, "openmpi": openmpi}
	o.only, o.lists, o.ways = fields(only), fields(lists), fields(chosen)
	var stop context.CancelFunc
	o.ctx, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := o.run()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mpichsuite:", err)
		os.Exit(1)
	}
}

func fields(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

func (o *options) run() error {
	var err error
	if o.build, err = filepath.Abs(o.build); err != nil {
		return err
	}
	if o.work, err = os.MkdirTemp("", "mpichsuite-"); err != nil {
		return err
	}
	defer os.RemoveAll(o.work)
	results, err := read(o.state)
	if err != nil {
		return err
	}
	var list []*program
	for _, abi := range []string{"mpich", "openmpi"} {
		if o.suite[abi] == "" {
			continue
		}
		found, err := programs(abi, o.suite[abi], o.only, o.lists)
		if err != nil {
			return err
		}
		list = append(list, found...)
	}
	if len(list) == 0 {
		return fmt.Errorf("no program: there is none in the lists %q of the folders of -mpich and -openmpi (of -only, where it is given)", o.lists)
	}
	if o.objects > 0 {
		limitObjects(list, o.objects)
	}
	o.leaveOut(list)
	if o.again {
		if list, results, err = anew(o.state, list, results); err != nil {
			return err
		}
	}
	// A run without time for all programs takes some of each folder.
	slices.SortStableFunc(list, func(a, b *program) int { return cmp.Compare(a.number(), b.number()) })
	if results, err = o.through(list, results); err != nil {
		return err
	}
	if o.again {
		return nil // a table of these programs alone would hide the others
	}
	if results, err = merge(o.merge, results); err != nil {
		return err
	}
	return o.write(list, results)
}

// merge adds the results of a table that is kept for which this run has none. Where a program passed natively
// then and not in this run (on a busy machine, say), what is kept is all that is known of it, and remains.
func merge(table string, results []result) ([]result, error) {
	if table == "" {
		return results, nil
	}
	text, err := os.ReadFile(table)
	if err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	var before []result
	if err := json.Unmarshal(text, &before); err != nil {
		return nil, fmt.Errorf("merge %s: %w", table, err)
	}
	passed := map[string]bool{}
	for i := range before {
		before[i].env = strings.Fields(before[i].Env)
		if before[i].Way == "native" && before[i].Outcome == passes {
			passed[before[i].key()] = true
		}
	}
	failed := map[string]bool{}
	for _, r := range results {
		if r.Way == "native" && r.Outcome != passes && passed[r.key()] {
			failed[r.key()] = true
		}
	}
	results = slices.DeleteFunc(results, func(r result) bool { return failed[r.key()] })
	have := map[string]bool{}
	for _, r := range results {
		have[r.key()+"|"+r.Way] = true
	}
	for _, r := range before {
		if !have[r.key()+"|"+r.Way] {
			results = append(results, r)
		}
	}
	return results, nil
}

// leaveOut marks programs that are not run, with the reason.
func (o *options) leaveOut(list []*program) {
	for _, p := range list {
		path := filepath.Join(o.suite[p.ABI], p.Folder, p.Name)
		if info, err := os.Stat(path); p.left == "" && (err != nil || info.Mode()&0o111 == 0) {
			p.left = "was not built"
		}
		if p.left == "" && p.Ranks > o.ranks {
			p.left = fmt.Sprintf("wants more than %d ranks", o.ranks)
		}
	}
}

// anew forgets the results that did not pass under ckptrun, also in the file of results. It returns the programs
// of these results, and the remaining results.
func anew(state string, list []*program, results []result) ([]*program, []result, error) {
	concerned := map[string]bool{}
	for _, r := range results {
		if r.differs() {
			concerned[r.key()] = true
		}
	}
	results = slices.DeleteFunc(results, result.differs)
	list = slices.DeleteFunc(list, func(p *program) bool { return !concerned[p.key()] })
	if err := os.Rename(state, state+".before"); err != nil {
		return nil, nil, fmt.Errorf("run again what did not pass: %w", err)
	}
	for _, r := range results {
		if err := add(state, r); err != nil {
			return nil, nil, err
		}
	}
	return list, results, nil
}

// through runs the programs that have no result yet, as long as there is time.
func (o *options) through(list []*program, results []result) ([]result, error) {
	had := map[string]result{}
	for _, r := range results {
		had[r.key()+"|"+r.Way] = r
	}
	end := time.Now().Add(o.budget)
	over := func() bool { return o.ctx.Err() != nil || time.Now().After(end) }
	for i, p := range list {
		if p.left != "" {
			continue
		}
		for _, w := range o.waysOf(p) {
			if over() {
				return results, nil
			}
			key := p.key() + "|" + w.Name
			res, known := had[key]
			if !known {
				var err error
				calls := cmp.Or(had[p.key()+"|ckptrun"].Calls, had[p.key()+"|native"].Calls)
				res, err = o.runner.run(p, w, calls)
				if over() && errors.Is(err, context.Canceled) {
					return results, nil
				}
				if err != nil {
					return results, err
				}
				had[key] = res
				results = append(results, res)
				if err := add(o.state, res); err != nil {
					return results, err
				}
				fmt.Printf("%d/%d %s %s/%s -n %d: %s: %s %s\n", i+1, len(list), p.ABI, p.Folder, p.Name, p.Ranks, w.Name, res.Outcome, res.Said)
			}
			if w.Name == "native" && res.Outcome != passes || w.Name == "ckptrun" && res.Outcome == hangs {
				break // there is nothing to compare, or nothing more to learn
			}
		}
	}
	return results, nil
}

// waysOf are the ways of a program: the four ways to restart take turns.
func (o *options) waysOf(p *program) []way {
	if o.all {
		return ways
	}
	n := len(ways) - 4
	turn := ways[n+int(p.number()>>16)%4]
	if len(o.ways) > 0 {
		return slices.DeleteFunc(slices.Clone(ways), func(w way) bool {
			return w.Name != "native" && !slices.Contains(o.ways, w.Name) && !(w == turn && slices.Contains(o.ways, "restart"))
		})
	}
	return append(slices.Clone(ways[:n]), turn)
}

func read(state string) ([]result, error) {
	var results []result
	f, err := os.Open(state)
	if os.IsNotExist(err) || state == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", state, err)
		}
		r.env = strings.Fields(r.Env)
		results = append(results, r)
	}
	return results, lines.Err()
}

func add(state string, r result) error {
	if state == "" {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(state, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func version(command ...string) string {
	out, _ := exec.Command(command[0], command[1:]...).Output()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "ersion") || strings.Contains(line, "OpenRTE") {
			return strings.Join(strings.Fields(line), " ")
		}
	}
	return command[0]
}
