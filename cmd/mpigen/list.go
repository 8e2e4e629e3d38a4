// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

//go:embed functions.list
var functionsList string

//go:embed constants.list
var constantsList string

// marks that a function may have behind its class: about counting, of these about files, and others.
var (
	fileMarks    = []string{"collective", "moves", "shared", "unsequential"}
	countedMarks = append([]string{"clocked", "guarded"}, fileMarks...)
	marks        = append([]string{"datatype", "fortran", "removed"}, countedMarks...)
)

// classes of functions, in the order of the coverage table's summary.
var classes = []string{"translate", "hand", "pair", "front", "persist", "ask", "large"}

type param struct {
	kind, name string
}

type function struct {
	number  int
	name    string // without MPI_
	class   string
	chapter string
	result  string // kind or C type of the result, "" for the usual error code
	params  []param
	marks   []string
	words   []param // what goes through the gate, where that is not the parameters
}

// marked reports whether f has one of these marks.
func (f *function) marked(marks ...string) bool {
	return slices.ContainsFunc(f.marks, func(m string) bool { return slices.Contains(marks, m) })
}

// fnConst is the name of the function's number in C.
func (f *function) fnConst() string { return "CKPT_FN_MPI_" + strings.ToUpper(f.name) }

func parseFunctions(text string) ([]*function, error) {
	var all []*function
	names, numbers := map[string]bool{}, map[int]bool{}
	chapter := ""
	for i, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		if line[0] == '[' {
			chapter = strings.Trim(line, "[]")
			continue
		}
		f, err := parseFunction(fields)
		if err != nil {
			return nil, fmt.Errorf("functions.list:%d: %w", i+1, err)
		}
		if names[f.name] || numbers[f.number] {
			return nil, fmt.Errorf("functions.list:%d: name %s or number %d is used twice", i+1, f.name, f.number)
		}
		names[f.name], numbers[f.number] = true, true
		f.chapter = chapter
		all = append(all, f)
	}
	if err := persistent(all); err != nil {
		return nil, err
	}
	return all, checkShapes(all)
}

// persistent gives the persistent collectives the parameters of the non-blocking ones, and an info.
func persistent(all []*function) error {
	byName := map[string]*function{}
	for _, f := range all {
		byName[f.name] = f
	}
	for _, f := range all {
		if f.class != "persist" {
			continue
		}
		i := byName[f.started()]
		if i == nil || len(i.params) == 0 {
			return fmt.Errorf("functions.list: %s is persist, but there is no %s", f.name, f.started())
		}
		last := len(i.params) - 1
		f.params = append(append(append(f.params, i.params[:last]...), param{"info", "info"}), i.params[last])
	}
	return nil
}

// started names the non-blocking collective that a persistent one starts: Iallgather of Allgather_init.
func (f *function) started() string {
	n := strings.TrimSuffix(f.name, "_init")
	return "I" + strings.ToLower(n[:1]) + n[1:]
}

func parseFunction(fields []string) (*function, error) {
	if len(fields) < 3 {
		return nil, fmt.Errorf("want NUMBER NAME CLASS ..., have %q", fields)
	}
	n, err := strconv.Atoi(fields[0])
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%q is no number", fields[0])
	}
	class := strings.Split(fields[2], "+")
	f := &function{number: n, name: fields[1], class: class[0]}
	for _, m := range class[1:] {
		if !slices.Contains(marks, m) {
			return nil, fmt.Errorf("%s: unknown mark %q", f.name, m)
		}
		f.marks = append(f.marks, m)
	}
	known := false
	for _, c := range classes {
		known = known || c == f.class
	}
	if !known {
		return nil, fmt.Errorf("%s: unknown class %q", f.name, f.class)
	}
	rest := fields[3:]
	if len(rest) >= 2 && rest[0] == "->" {
		f.result, rest = rest[1], rest[2:]
	}
	to := &f.params
	for _, s := range rest {
		if s == "|" && f.class == "pair" && to == &f.params {
			to = &f.words
			continue
		}
		kind, name, ok := strings.Cut(s, ":")
		if _, known := kinds[kind]; !ok || !known {
			return nil, fmt.Errorf("%s: %q is no KIND:PARAMETER of a known kind", f.name, s)
		}
		*to = append(*to, param{kind, name})
	}
	return f, nil
}

// constant is a predefined object or an error class.
type constant struct {
	name           string
	number         int
	mpich, openmpi string // "-" where that ABI has none
	fortran        string // the Fortran handle of Open MPI; those of MPICH and of the standard are those of C
	standard       string // the number in the standard ABI
}

func parseConstants(text string) (map[string][]constant, error) {
	all := map[string][]constant{}
	seen := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		if len(fields) != 7 {
			return nil, fmt.Errorf("constants.list:%d: want SORT NAME NUMBER MPICH OPENMPI FORTRAN STANDARD", i+1)
		}
		n, err := strconv.ParseInt(fields[2], 0, 32)
		if err != nil || n <= 0 || n > 255 {
			return nil, fmt.Errorf("constants.list:%d: number %q is not in 1 to 255", i+1, fields[2])
		}
		key := fmt.Sprint(fields[0], n)
		if seen[key] {
			return nil, fmt.Errorf("constants.list:%d: number %d of %s is used twice", i+1, n, fields[0])
		}
		seen[key] = true
		all[fields[0]] = append(all[fields[0]], constant{fields[1], int(n), fields[3], fields[4], fields[5], fields[6]})
	}
	return all, nil
}
