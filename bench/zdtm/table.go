// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// reason says why programs whose name matches do not pass.
type reason struct{ pattern, why string }

// readReasons reads lines "PROGRAM: why", with wildcards in the first; "#" begins a comment.
func readReasons(file string) ([]reason, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []reason
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, why, ok := strings.Cut(line, ": ")
		if _, err := path.Match(pattern, ""); !ok || err != nil {
			return nil, fmt.Errorf("%s: %q is not \"PROGRAM: why\"", file, line)
		}
		all = append(all, reason{pattern, why})
	}
	return all, nil
}

func why(reasons []reason, program string) string {
	for _, r := range reasons {
		if ok, _ := path.Match(r.pattern, program); ok {
			return r.why
		}
	}
	return ""
}

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
func table(all map[string][]result, reasons []reason, head string) string {
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
		rows[v] = append(rows[v], fmt.Sprintf("| %s | %s %s | %s | %s |", name, r.Way, r.Outcome, why(reasons, name), strings.ReplaceAll(r.Said, "|", "\\|")))
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
