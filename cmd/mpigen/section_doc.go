// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// sectionPage is the page with the part about the section "messages".
const sectionPage = "docs/image-sections.md"

// Where that part begins and ends there.
const (
	partBegin = "<!-- messages: begin -->\n"
	partEnd   = "<!-- messages: end -->\n"
)

// spliced is the page with part in its place; one that has no such place gets it at the end.
func spliced(page, part []byte) []byte {
	before, rest, found := bytes.Cut(page, []byte(partBegin))
	_, after, ended := bytes.Cut(rest, []byte(partEnd))
	if !found || !ended {
		before, after = page, nil
	}
	return slices.Concat(before, []byte(partBegin), part, []byte(partEnd), after)
}

// sectionPart writes the part about the section.
func sectionPart(s *section) []byte {
	var b bytes.Buffer
	b.WriteString(`<!-- Written by mpigen from cmd/mpigen/section.list, as the code is that reads and writes it. -->

Everything is words of 64 bits, little-endian and signed; bytes are padded with zeros to a whole word. A virtual id
has its kind of object in bits 28 to 31. No bytes at all are an empty section.

`)
	for _, l := range s.layout {
		fmt.Fprintf(&b, "1. **%s**: %s.\n", strings.ToUpper(l[0][:1])+l[0][1:], l[1])
	}
	table := func(title, head string, list []named, row func(named) string) {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n", title, head)
		for _, v := range list {
			b.WriteString(row(v) + "\n")
		}
	}
	table("Versions", "| number | when |\n|---|---|", s.versions, func(v named) string { return fmt.Sprintf("| %d | %s |", v.number, v.says) })
	table("Bounds", "| number | of |\n|---|---|", s.bounds, func(v named) string { return fmt.Sprintf("| %d | %s |", v.number, v.says) })
	table("States of requests", "| number | name | meaning | what follows |\n|---|---|---|---|", s.states, func(v named) string {
		follows := v.record
		if follows == "" {
			follows = "nothing"
		}
		return fmt.Sprintf("| %d | %s | %s | %s |", v.number, v.name, v.says, follows)
	})
	table("Flags of requests", "| number | name | meaning |\n|---|---|---|", s.flags, func(v named) string {
		return fmt.Sprintf("| %d | `%s` | %s |", v.number, v.c, v.says)
	})
	b.WriteString("\n### Records\n")
	for _, r := range s.records {
		fmt.Fprintf(&b, "\n**%s**: %s%s.\n\n| words | field | values | meaning |\n|---|---|---|---|\n", r.name, r.says[:1], r.says[1:])
		for _, f := range r.fields {
			words, values := f.described()
			meaning := f.what
			if f.more != "" {
				meaning += ": " + f.more
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", words, f.name, values, meaning)
		}
	}
	return b.Bytes()
}

// described says how many words a field takes, and which values they have.
func (f *field) described() (words, values string) {
	switch f.kind {
	case "word", "uword":
		return "1", "any"
	case "i32":
		return "1", "an `int`"
	case "rank":
		return "1", "0 to 2147483647"
	case "size":
		return "1", "0 or more"
	case "bool":
		return "1", "0, 1"
	case "class":
		return "1", "0 to 255"
	case "range":
		return "1", f.args[0] + " to " + f.args[1]
	case "below":
		return "1", "0 or more, below the bound of " + strings.ToLower(f.args[0])
	case "index":
		return "1", "0 or more, below the number of " + f.args[0]
	case "state":
		return "1", "a state"
	case "id":
		return "1", strings.ReplaceAll(f.args[0], ",", ", ")
	case "fresh":
		return "1", f.args[0] + " of the program's own, named once"
	case "ids":
		return "1 + n", "n, then ids: " + f.args[0]
	case "data":
		return "1 + n/8", "n, then n bytes, padded"
	}
	switch {
	case len(f.args) == 2:
		return "1 + n", "n from " + f.args[0] + " to the bound, then n words"
	case f.args[0] == "rest":
		return "1 + n", "n, then n words"
	}
	return f.args[0], "any"
}
