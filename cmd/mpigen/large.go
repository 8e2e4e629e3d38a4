// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
)

// twin is the name of the function that a class large function calls.
func (f *function) twin() string { return strings.TrimSuffix(f.name, "_c") }

func (f *function) has(kind string) bool {
	for _, p := range f.params {
		if p.kind == kind {
			return true
		}
	}
	return false
}

// takesAny reports whether a count above 2147483647 becomes one element of a large datatype.  It does
// not where an operation wants its own datatypes (one-sided ones look inside), where a piece of memory
// of that size is copied in between, and where there are arrays of counts.
func (f *function) takesAny() bool {
	return !f.has("larges") && (!f.has("op") || f.has("win")) && !strings.Contains(f.name, "replace")
}

// frontLarge writes a function with large counts, which calls the one of the same name without _c.
func frontLarge(b *bytes.Buffer, f *function) {
	fmt.Fprintf(b, "\n%s {\n    struct front_large w = {0};\n", prototype(f))
	largeArrays(b, f)
	var args []string
	request := "NULL"
	for i, p := range f.params {
		arg := "n_" + p.name
		switch p.kind {
		case "larges", "laints":
			fmt.Fprintf(b, "    const int *%s = front_large_ints(&w, %s, %s);\n", arg, p.name, f.length(p))
		case "large":
			count := f.significant(p.name)
			call := fmt.Sprintf("front_large_int(&w, %s)", count)
			if f.takesAny() {
				call = fmt.Sprintf("front_large_count(&w, %s, &%s)", count, typeAfter(f.params[i:]))
			}
			fmt.Fprintf(b, "    int %s = %s;\n", arg, call)
		case "orequest":
			request, arg = p.name, p.name
		default:
			arg = p.name
		}
		args = append(args, arg)
	}
	kind, object := objectOf(f)
	fmt.Fprintf(b, "    if (__builtin_expect(w.refused || w.rc != MPI_SUCCESS, 0)) return front_large_refuse(&w, FRONT_%s, %s, %s);\n",
		strings.ToUpper(kind), object, f.fnConst())
	fmt.Fprintf(b, "    return front_large_end(&w, PMPI_%s(%s), %s);\n}\n", f.twin(), strings.Join(args, ", "), request)
}

// largeArrays makes room for the arrays of a function, if it has some.
func largeArrays(b *bytes.Buffer, f *function) {
	n := 0
	for _, p := range f.params {
		if p.kind == "larges" || p.kind == "laints" {
			n++
		}
	}
	switch {
	case n == 0:
	case f.has("rank"): // the root
		fmt.Fprintf(b, "    front_large_rooted(&w, comm, root, %d);\n", n)
	case strings.Contains(strings.ToLower(f.name), "neighbor"):
		fmt.Fprintf(b, "    front_large_begin(&w, comm, FRONT_BLOCKS_NEIGHBORS, %d);\n", n)
	case f.has("op"):
		fmt.Fprintf(b, "    front_large_begin(&w, comm, FRONT_BLOCKS_LOCAL, %d);\n", n)
	default:
		fmt.Fprintf(b, "    front_large_begin(&w, comm, FRONT_BLOCKS_ALL, %d);\n", n)
	}
}

// significant is a count, or 0 where MPI says that nobody looks at it: what a collective call with a
// root sends or receives elsewhere, what would be sent in place.
func (f *function) significant(name string) string {
	if f.has("tag") || name != "sendcount" && name != "recvcount" {
		return name
	}
	buf := strings.Replace(name, "count", "buf", 1)
	if f.has("rank") {
		side := 0
		if strings.Contains(strings.ToLower(f.name), "gather") == (name == "recvcount") {
			side = 1
		}
		return fmt.Sprintf("front_large_at(comm, root, %d, %s, %s)", side, buf, name)
	}
	return fmt.Sprintf("front_large_given(%s, %s)", buf, name)
}

// length is how many elements an array has: a block for each that something comes in from or goes out
// to.  With MPI_IN_PLACE nobody looks at those of what goes out.
func (f *function) length(p param) string {
	out := strings.HasPrefix(p.name, "s") || p.name == "displs" && f.params[0].name == "sendbuf" && f.params[1].kind == "larges"
	switch {
	case out && f.has("rank"):
		return "w.out"
	case out:
		return "in_buf(sendbuf) == CANON_IN_PLACE ? 0 : w.out"
	}
	return "w.in"
}

// typeAfter is the datatype that a count is of: the next one.
func typeAfter(params []param) string {
	for _, p := range params {
		if p.kind == "type" {
			return p.name
		}
	}
	return ""
}
