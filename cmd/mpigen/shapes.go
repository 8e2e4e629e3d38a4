// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// letters say what a word of a constructor of datatypes is (capi/canon/shape.h); a capital one is an array.
var letters = map[string]string{
	"int": "i", "ints": "I", "order": "o", "distribs": "D", "dargs": "G", "count": "c", "counts": "C",
	"aint": "a", "aints": "A", "type": "t", "types": "T",
}

const (
	shapeInts      = "nioIDG" // letters of what is among the integers of MPI_Type_get_contents
	shapeAddresses = "aA"
)

// constructor reports whether a function makes a datatype from its arguments, so that its shape is all that
// there is to know.
func (f *function) constructor() bool { return f.marked("datatype") }

// combiner is what MPI_Type_get_envelope says of a datatype that f made, without MPI_COMBINER_.
func (f *function) combiner() string {
	return strings.ToUpper(strings.TrimPrefix(strings.TrimPrefix(f.twin(), "Type_"), "create_"))
}

// shape is a letter for each parameter of a constructor but the last, the new datatype.
func (f *function) shape() (string, error) {
	last := len(f.params) - 1
	if last < 1 || f.params[last].kind != "otype" {
		return "", fmt.Errorf("%s: a datatype is not the last parameter", f.name)
	}
	shape := ""
	for _, p := range f.params[:last] {
		letter := letters[p.kind]
		if letter == "" {
			return "", fmt.Errorf("%s: a %s is nothing that a datatype is made of", f.name, p.kind)
		}
		shape += letter
	}
	if shape == strings.ToLower(shape) {
		return shape, nil
	}
	at := slices.IndexFunc(f.params, func(p param) bool { return p.name == "count" || p.name == "ndims" })
	if at < 0 || strings.Trim(shape[:at], "i") != "" || !strings.Contains("ic", shape[at:at+1]) {
		return "", fmt.Errorf("%s: no count or ndims, with integers before it alone, says how long its arrays are", f.name)
	}
	length := map[byte]string{'i': "n", 'c': "m"}[shape[at]]
	return shape[:at] + length + shape[at+1:], nil
}

// checkShapes refuses a list with a constructor that has no shape.
func checkShapes(fs []*function) error {
	for _, f := range fs {
		if f.constructor() {
			if _, err := f.shape(); err != nil {
				return fmt.Errorf("functions.list: %w", err)
			}
		}
	}
	return nil
}

// mustShape is the shape of a constructor that checkShapes has seen.
func (f *function) mustShape() string {
	shape, err := f.shape()
	if err != nil {
		panic(err)
	}
	return shape
}

// shapes lists the constructors of datatypes for fronts and backs.
func shapes(fs []*function) []byte {
	var b bytes.Buffer
	b.WriteString(banner + "#ifndef CKPT_ZZ_SHAPES_H\n#define CKPT_ZZ_SHAPES_H\n")
	list := func(comment, name string, large bool) {
		fmt.Fprintf(&b, "\n/* %s */\n#define %s(X)", comment, name)
		for _, f := range fs {
			if f.constructor() && large == strings.HasSuffix(f.name, "_c") {
				fmt.Fprintf(&b, " \\\n    X(%s, \"%s\")", f.combiner(), f.mustShape())
			}
		}
		b.WriteString("\n")
	}
	list("X(combiner, shape) of every constructor of datatypes (canon/shape.h).", "CANON_SHAPES", false)
	list("The same of those with large counts.", "CANON_LARGE_SHAPES", true)
	b.WriteString("\n#endif\n")
	return b.Bytes()
}

// backConstructors writes the constructors among the functions of a chapter, and what calls the real ones.
func backConstructors(b *bytes.Buffer, fs []*function) {
	var cases strings.Builder
	for _, f := range fs {
		if f.constructor() && f.below() {
			fmt.Fprintf(b, "\nlong back_%s(const long *a) { return back_type_make(CANON_COMBINER_%s, a); }\n", f.name, f.combiner())
			fmt.Fprintf(&cases, "    case CANON_COMBINER_%s:\n        return MPI_%s(%stype);\n", f.combiner(), f.name, contents(f.mustShape()))
		}
	}
	if cases.Len() > 0 {
		fmt.Fprintf(b, "\nint back_type_construct(int combiner, int n, const int *v, const MPI_Aint *at, const MPI_Datatype *t, MPI_Datatype *type) {\n"+
			"    switch (combiner) {\n%s    default:\n        return MPI_ERR_ARG;\n    }\n}\n", cases.String())
	}
}

// contents are the arguments of a constructor, each with a comma, out of the arrays of MPI_Type_get_contents.
func contents(shape string) string {
	var args strings.Builder
	ones, arrays := map[string]int{}, map[string]int{} // of each array: what was taken of it
	for _, letter := range shape {
		from := "t"
		switch {
		case strings.ContainsRune(shapeInts, letter):
			from = "v"
		case strings.ContainsRune(shapeAddresses, letter):
			from = "at"
		}
		var offset []string
		if n := ones[from]; n > 0 {
			offset = append(offset, fmt.Sprint(n))
		}
		switch n := arrays[from]; {
		case n == 1:
			offset = append(offset, "n")
		case n > 1:
			offset = append(offset, fmt.Sprint(n, " * n"))
		}
		switch {
		case unicode.IsUpper(letter):
			arrays[from]++
			args.WriteString(strings.Join(append([]string{from}, offset...), " + "))
		case offset == nil:
			ones[from]++
			args.WriteString(from + "[0]")
		default:
			ones[from]++
			args.WriteString(from + "[" + strings.Join(offset, " + ") + "]")
		}
		args.WriteString(", ")
	}
	return args.String()
}
