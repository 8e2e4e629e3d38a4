// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/libckpt/libckpt/bench/known"
)

// A verdict is what all ways of a program together say.
type verdict string

const (
	right      verdict = "saved, killed and continued"
	kept       verdict = "refused with the reason, and goes on"
	wrong      verdict = "differs from a native run"
	notHere    verdict = "does not pass natively here"
	unlauncher verdict = "does not run under ckptrun"
)

// judge takes all results of one program; the last is the decisive one.
func judge(all []result) (verdict, result) {
	last := all[len(all)-1]
	for _, r := range all {
		if r.Way == native && r.Outcome != passes {
			return notHere, r
		}
	}
	for _, r := range all {
		switch {
		case r.Way == unsaved && r.Outcome != passes:
			return unlauncher, r
		case r.Way == restarted && r.Outcome == passes:
			return right, r
		}
	}
	for _, r := range all {
		if r.Way == restarted && r.Outcome == refused {
			return kept, r
		}
	}
	for _, r := range all {
		if r.Way != native && r.Outcome != passes {
			return wrong, r
		}
	}
	return wrong, last
}

// table is the report, in Markdown.
func table(all map[string][]result, reasons known.Reasons, head string) string {
	var b strings.Builder
	counts := map[verdict]int{}
	rows := map[verdict][]string{}
	var passed []string
	for _, name := range slices.Sorted(keys(all)) {
		v, r := judge(all[name])
		counts[v]++
		if v == right {
			passed = append(passed, "`"+name+"`")
			continue
		}
		rows[v] = append(rows[v], fmt.Sprintf("| %s | %s %s | %s | %s |", name, r.Way, r.Outcome, reasons.Why(name), strings.ReplaceAll(r.Said, "|", "\\|")))
	}
	fmt.Fprintf(&b, "# CRIU's test programs under ckptrun\n\n%s\n\n| programs | what became of them |\n|---|---|\n", head)
	for _, v := range []verdict{right, kept, wrong, unlauncher, notHere} {
		fmt.Fprintf(&b, "| %d | %s |\n", counts[v], v)
	}
	for _, v := range []verdict{wrong, unlauncher, kept, notHere} {
		if len(rows[v]) > 0 {
			fmt.Fprintf(&b, "\n## %s\n\n| program | outcome | why | it said |\n|---|---|---|---|\n%s\n", capital(string(v)), strings.Join(rows[v], "\n"))
		}
	}
	fmt.Fprintf(&b, "\n## %s\n\n%s\n", capital(string(right)), strings.Join(passed, ", "))
	return b.String()
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
