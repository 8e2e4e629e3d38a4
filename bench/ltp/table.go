// SPDX-License-Identifier: Apache-2.0

package main

import (
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
			cell := func(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
			rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | %s |", name, r.Native, r.Ours, cell(reasons.Why(name)), cell(r.Said)))
		}
	}
	verdicts := []verdict{same, useless, slow, differs}
	fmt.Fprintf(&b, "# The Linux Test Project's programs under ckptrun\n\n%s\n\n| what became of them |", head)
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
	return b.String()
}
