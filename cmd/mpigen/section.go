// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

//go:embed section.list
var sectionList string

// section is what section.list says of the section "messages".
type section struct {
	versions, bounds, flags []named
	states                  []named
	records                 []*record
	layout                  [][2]string
}

// named is a number with a name: a version, a bound, a state, a flag.
type named struct {
	number       int64
	name, c      string // in Go, in C
	record, says string // states: the record that follows, "" for none
}

// imageOnly reports whether a flag is none of a living request: its meaning says so.
func (n *named) imageOnly() bool { return strings.HasPrefix(n.says, "in images only") }

// record is words that belong together.
type record struct {
	name, c, says string
	fields        []field
}

type field struct {
	kind, name, c string
	args          []string // of the kind: what stands behind its colons
	what, more    string   // what it is called in errors; more about it
}

// scalars are the kinds of one word: Go's type, C's, the smallest and the highest value in Go and in C; the
// latter are empty where every word is good.
var scalars = map[string]struct{ gotype, ctype, low, high, clow, chigh string }{
	"word":  {"int64", "int64_t", "", "", "", ""},
	"uword": {"uint64", "uint64_t", "", "", "", ""},
	"i32":   {"int32", "int", "math.MinInt32", "math.MaxInt32", "INT32_MIN", "INT32_MAX"},
	"rank":  {"int32", "int", "0", "math.MaxInt32", "0", "INT32_MAX"},
	"size":  {"int64", "int64_t", "0", "math.MaxInt64", "0", "INT64_MAX"},
	"bool":  {"bool", "int", "0", "1", "0", "1"},
	"class": {"uint8", "int", "0", "math.MaxUint8", "0", "255"},
	"range": {"int64", "int", "", "", "", ""},
	"below": {"int32", "int", "", "", "", ""},
	"index": {"int32", "int", "", "", "", ""},
	"state": {"State", "int", "", "", "", ""},
	"id":    {"uint32", "ckpt_vid", "", "", "", ""},
	"fresh": {"uint32", "ckpt_vid", "", "", "", ""},
}

// vidKinds are the kinds of objects, as the list has them: in Go and in C.
var vidKinds = map[string][2]string{
	"comm": {"kindComm", "COMM"}, "datatype": {"kindDatatype", "DATATYPE"}, "message": {"kindMessage", "MESSAGE"},
	"request": {"kindRequest", "REQUEST"}, "win": {"kindWindow", "WIN"}, "file": {"kindFile", "FILE"},
}

// words is the smallest number of words that a record takes.
func (r *record) words() int {
	n := 0
	for _, f := range r.fields {
		switch {
		case f.kind == "words" && len(f.args) == 1 && f.args[0] != "rest":
			count, _ := strconv.Atoi(f.args[0])
			n += count
		case f.kind == "words" && len(f.args) == 2:
			low, _ := strconv.Atoi(f.args[0])
			n += 1 + low
		default:
			n++
		}
	}
	return n
}

func parseSection(text string) (*section, error) {
	s := &section{}
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimRight(line, " "); line == "" || line[0] == '#' {
			continue
		}
		if err := s.line(line); err != nil {
			return nil, fmt.Errorf("section.list:%d: %w", i+1, err)
		}
	}
	return s, s.check()
}

// cut splits the first n words off; the rest is one text.
func cut(line string, n int) []string {
	var words []string
	for ; n > 0; n-- {
		line = strings.TrimLeft(line, " ")
		word, rest, _ := strings.Cut(line, " ")
		words, line = append(words, word), rest
	}
	return append(words, strings.TrimLeft(line, " "))
}

func (s *section) line(line string) error {
	sort, rest, _ := strings.Cut(line, " ")
	switch sort {
	case "version", "flag":
		w := cut(rest, 2)
		return s.number(sort, w[0], named{name: w[1], c: strings.ToUpper(w[1]), says: w[2]})
	case "bound":
		w := cut(rest, 2)
		return s.number(sort, w[1], named{name: w[0], c: strings.ToUpper(w[0]), says: w[2]})
	case "state":
		w := cut(rest, 4)
		return s.number(sort, w[0], named{name: w[1], c: w[2], record: strings.TrimPrefix(w[3], "-"), says: w[4]})
	case "record":
		w := cut(rest, 2)
		s.records = append(s.records, &record{name: w[0], c: w[1], says: w[2]})
		return nil
	case "layout":
		part, how, ok := strings.Cut(rest, ": ")
		if !ok {
			return fmt.Errorf("want layout PART: HOW")
		}
		s.layout = append(s.layout, [2]string{part, how})
		return nil
	case "":
		return s.field(strings.TrimLeft(line, " "))
	}
	return fmt.Errorf("%q is none of version, bound, state, flag, record, layout", sort)
}

func (s *section) number(sort, number string, n named) error {
	list := map[string]*[]named{"version": &s.versions, "flag": &s.flags, "bound": &s.bounds, "state": &s.states}[sort]
	v, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is no number", number)
	}
	n.number = v
	for _, old := range *list {
		if sort != "bound" && old.number == v || old.name == n.name {
			return fmt.Errorf("%s %d %s: number or name is used twice", sort, v, n.name)
		}
	}
	*list = append(*list, n)
	return nil
}

func (s *section) field(line string) error {
	if len(s.records) == 0 {
		return fmt.Errorf("a field outside of a record")
	}
	w := cut(line, 2)
	kind := strings.Split(w[0], ":")
	f := field{kind: kind[0], args: kind[1:], name: w[1], c: strings.ToLower(w[1])}
	f.what, f.more, _ = strings.Cut(w[2], ": ")
	r := s.records[len(s.records)-1]
	if _, ok := scalars[f.kind]; !ok && !slices.Contains([]string{"words", "ids", "data"}, f.kind) {
		return fmt.Errorf("unknown kind %q", f.kind)
	}
	if want := map[string]int{"range": 2, "below": 1, "index": 1, "id": 1, "fresh": 1, "ids": 1}; len(f.args) != want[f.kind] && f.kind != "words" {
		return fmt.Errorf("%s takes %d values behind colons", f.kind, want[f.kind])
	}
	if slices.Contains([]string{"id", "fresh", "ids"}, f.kind) {
		for _, k := range strings.Split(f.args[0], ",") {
			if _, ok := vidKinds[k]; !ok {
				return fmt.Errorf("no objects are of kind %q", k)
			}
		}
	}
	if f.name == "" || f.what == "" {
		return fmt.Errorf("want KIND FIELD WHAT")
	}
	r.fields = append(r.fields, f)
	return nil
}

// check finds names that are used and not defined.
func (s *section) check() error {
	for _, state := range s.states {
		if state.record != "" && s.record(state.record) == nil {
			return fmt.Errorf("section.list: state %s: no record %s", state.name, state.record)
		}
	}
	for _, r := range s.records {
		for _, f := range r.fields {
			bound := f.kind == "below" && s.bound(f.args[0]) == nil || f.kind == "words" && len(f.args) == 2 && s.bound(f.args[1]) == nil
			if bound || f.kind == "index" && !slices.ContainsFunc(r.fields, func(g field) bool { return g.name == f.args[0] }) {
				return fmt.Errorf("section.list: %s.%s: no such bound or field: %v", r.name, f.name, f.args)
			}
		}
	}
	return nil
}

func (s *section) record(name string) *record {
	for _, r := range s.records {
		if r.name == name {
			return r
		}
	}
	return nil
}

// follows reports whether a record is a part of a request, behind its head.
func (s *section) follows(r *record) bool {
	return r.name == "Persistent" || slices.ContainsFunc(s.states, func(v named) bool { return v.record == r.name })
}

func (s *section) bound(name string) *named {
	for i := range s.bounds {
		if s.bounds[i].name == name {
			return &s.bounds[i]
		}
	}
	return nil
}
