// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/libckpt/libckpt/bench/known"
)

// A verdict is what both runs of a program say.
type verdict string

const (
	same    verdict = "ends natively and under ckptrun alike"
	differs verdict = "ends otherwise under ckptrun"
	useless verdict = "fails, or cannot be run here, natively as under ckptrun"
	slow    verdict = "takes too long natively"
)

func (r result) verdict() verdict {
	switch {
	case r.Native == "hangs":
		return slow
	case r.Native != r.Ours:
		return differs
	case strings.HasPrefix(r.Native, "exit status 0"):
		return same
	}
	return useless
}

func (r result) differs() bool { return r.verdict() == differs }

// table is the report, in Markdown.
func table(all map[string]result, reasons known.Reasons, head string) string {
	var b strings.Builder
	counts := map[string]map[verdict]int{}
	total := map[verdict]int{}
	var rows []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := all[name]
		v := r.verdict()
		total[v]++
		if counts[r.List] == nil {
			counts[r.List] = map[verdict]int{}
		}
		counts[r.List][v]++
		if v == differs {
			rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | %s |", name, r.Native, r.Ours, cell(reasons.Why(name)), cell(r.Said)))
		}
	}
	verdicts := []verdict{same, useless, slow, differs}
	fmt.Fprintf(&b, "%s\n\n| what became of them |", head)
	lists := slices.Sorted(maps.Keys(counts))
	for _, l := range lists {
		fmt.Fprintf(&b, " %s |", l)
	}
	fmt.Fprintf(&b, " all |\n|---|%s---|\n", strings.Repeat("---|", len(lists)))
	for _, v := range verdicts {
		fmt.Fprintf(&b, "| %s |", v)
		for _, l := range lists {
			fmt.Fprintf(&b, " %d |", counts[l][v])
		}
		fmt.Fprintf(&b, " %d |\n", total[v])
	}
	fmt.Fprintf(&b, "\n## What %s\n\n| program | natively | under ckptrun | why | what only ckptrun's run said |\n|---|---|---|---|---|\n%s\n", differs, strings.Join(rows, "\n"))
	b.WriteString(savedTable(all, reasons))
	return b.String()
}

// savedTable tells what became of programs that end alike and were saved while they ran; "" if none was.
func savedTable(all map[string]result, reasons known.Reasons) string {
	kinds := []string{"ends as natively", "not saved, and ends as natively", early, "ends otherwise"}
	kind := func(outcome, native string) string {
		switch {
		case outcome == native:
			return kinds[0]
		case strings.HasPrefix(outcome, refused):
			return kinds[1]
		case outcome == early:
			return kinds[2]
		}
		return kinds[3]
	}
	continued, restarted, why := map[string]int{}, map[string]int{}, map[string]int{}
	var rows []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := all[name]
		if r.Saved == (saved{}) {
			continue
		}
		continued[kind(r.Saved.Continued, r.Native)]++
		restarted[kind(r.Saved.Restarted, r.Native)]++
		if reason, ok := strings.CutPrefix(r.Saved.Restarted, refused); ok {
			why[reason]++
		}
		if r.Saved.otherwise(r.Native) {
			rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", name, r.Native, cell(r.Saved.Continued), cell(r.Saved.Restarted),
				cell(reasons.Why(name)), cell(r.Saved.Said)))
		}
	}
	if len(continued) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n## Saved while they run\n\nPrograms that end alike: saved again and again until they end; and saved in the middle, killed and restarted.\n\n" +
		"| what became of them | saved again and again | killed and restarted |\n|---|---|---|\n")
	for _, k := range kinds {
		fmt.Fprintf(&b, "| %s | %d | %d |\n", k, continued[k], restarted[k])
	}
	b.WriteString("\n| programs | why they were not saved, to be restarted |\n|---|---|\n")
	for _, reason := range slices.SortedFunc(maps.Keys(why), func(x, y string) int { return cmp.Or(why[y]-why[x], strings.Compare(x, y)) }) {
		fmt.Fprintf(&b, "| %d | %s |\n", why[reason], cell(reason))
	}
	fmt.Fprintf(&b, "\n| program | natively | saved again and again | restarted | why | it said |\n|---|---|---|---|---|---|\n%s\n", strings.Join(rows, "\n"))
	return b.String()
}

// cell is text in a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
