// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// reason is a known difference: a line "ABI FOLDER/PROGRAM WAY: why", where each of the first three may
// have wildcards.
type reason struct{ abi, program, way, why string }

func readReasons(file string) ([]reason, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []reason
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		what, why, ok := strings.Cut(line, ": ")
		words := strings.Fields(what)
		if !ok || len(words) != 3 {
			return nil, fmt.Errorf("%s: %q is not \"ABI FOLDER/PROGRAM WAY: why\"", file, line)
		}
		all = append(all, reason{words[0], words[1], words[2], why})
	}
	return all, nil
}

func why(reasons []reason, r result) string {
	for _, k := range reasons {
		a, _ := path.Match(k.abi, r.ABI)
		p, _ := path.Match(k.program, r.Folder+"/"+r.Name)
		w, _ := path.Match(k.way, r.Way)
		if a && p && w {
			return k.why
		}
	}
	return "not known"
}

// what became of a program in one way, in a word.
func (r result) word() string {
	if r.Outcome == passes && !r.Saved && r.Way != "native" && r.Way != "ckptrun" && r.Way != "other" {
		return "not saved"
	}
	return r.Outcome
}

func (o *options) write(list []*program, results []result) error {
	if o.report == "" {
		return nil
	}
	reasons, err := readReasons(o.reasons)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# MPICH's test suite, with checkpoints\n\n%s; %s. Written by `bench/mpich_suite.sh` on %s. A program passes when it "+
		"says so itself and ends with status 0; those that do not pass natively are not compared. It is saved at one "+
		"of its MPI calls; \"not saved\" means that it passes and ended before its epoch was there, or that the "+
		"checkpoint was refused. Each program is restarted in one of the four ways unless `-all` is given. A job that takes longer than %v hangs, a native one than %v.\n",
		version("mpichversion"), version("mpiexec.openmpi", "--version"), time.Now().UTC().Format(time.DateOnly), o.each, o.natively)
	if o.notes != "" {
		notes, err := os.ReadFile(o.notes)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n%s", notes)
	}
	revisions(&b, results)
	for _, abi := range []string{"mpich", "openmpi"} {
		counts(&b, abi, results)
	}
	differences(&b, results, reasons)
	unsaved(&b, results)
	leftOut(&b, list, results)
	data, err := json.MarshalIndent(results, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(o.report+".json", append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(o.report+".md", b.Bytes(), 0o644)
}

// revisions tells which commits the results are of.
func revisions(b *bytes.Buffer, results []result) {
	of := map[string]int{}
	for _, r := range results {
		if r.Way != "native" {
			of[r.Revision]++
		}
	}
	if len(of) == 0 || len(of) == 1 && of[""] > 0 {
		return
	}
	b.WriteString("\n| results under ckptrun | of commit |\n|---|---|\n")
	for _, r := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(b, "| %d | %s |\n", of[r], cmp.Or(r, "not kept, before the others"))
	}
}

func counts(b *bytes.Buffer, abi string, results []result) {
	if !slices.ContainsFunc(results, func(r result) bool { return r.ABI == abi }) {
		return
	}
	fmt.Fprintf(b, "\n## Programs built for %s\n\n| way | run | pass | fail | hang | not saved |\n|---|---|---|---|---|---|\n",
		map[string]string{"mpich": "MPICH", "openmpi": "Open MPI"}[abi])
	for _, w := range ways {
		words := map[string]int{}
		total := 0
		for _, r := range results {
			if r.ABI == abi && r.Way == w.Name {
				words[r.word()]++
				total++
			}
		}
		fmt.Fprintf(b, "| %s | %d | %d | %d | %d | %d |\n", w.What, total, words[passes], words[fails], words[hangs], words["not saved"])
	}
}

func differences(b *bytes.Buffer, results []result, reasons []reason) {
	var rows []string
	for _, r := range results {
		if r.differs() {
			rows = append(rows, fmt.Sprintf("| %s | %s/%s %s | %d | %s | %s | %s | %s |\n", r.ABI, r.Folder, r.Name, r.Args, r.Ranks,
				r.Way, at(r), r.Outcome, cell(why(reasons, r)+": "+r.Said)))
		}
	}
	if len(rows) == 0 {
		b.WriteString("\nNo program that passes natively does anything else.\n")
		return
	}
	slices.Sort(rows)
	fmt.Fprintf(b, "\n## Differences\n\n| built for | program | ranks | way | saved at | outcome | reason, and what it said |\n|---|---|---|---|---|---|---|\n%s",
		strings.Join(rows, ""))
}

func at(r result) string {
	if r.Call == 0 {
		return ""
	}
	return fmt.Sprintf("call %d of rank %d", r.Call, r.Rank)
}

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

func unsaved(b *bytes.Buffer, results []result) {
	why := map[string]int{}
	for _, r := range results {
		if r.word() == "not saved" {
			why[cmp.Or(r.Said, "it ended before")]++
		}
	}
	if len(why) == 0 {
		return
	}
	b.WriteString("\n## Not saved\n\n| runs | why |\n|---|---|\n")
	for _, w := range slices.Sorted(maps.Keys(why)) {
		fmt.Fprintf(b, "| %d | %s |\n", why[w], cell(w))
	}
}

func leftOut(b *bytes.Buffer, list []*program, results []result) {
	why := map[string]int{}
	ran := map[string]bool{}
	for _, r := range results {
		ran[r.key()] = true
		if r.Way == "native" && r.Outcome != passes {
			why["do not pass natively ("+r.ABI+")"]++
		}
	}
	for _, p := range list {
		switch {
		case ran[p.key()]: // in this run or in one before
		case p.left != "":
			why[p.left+" ("+p.ABI+")"]++
		default:
			why["was not run for lack of time ("+p.ABI+")"]++
		}
	}
	b.WriteString("\n## Left out\n\n| programs | why |\n|---|---|\n")
	for _, w := range slices.Sorted(maps.Keys(why)) {
		fmt.Fprintf(b, "| %d | %s |\n", why[w], w)
	}
}
