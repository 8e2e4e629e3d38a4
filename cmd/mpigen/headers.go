// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
)

// listed reports whether the list has the parameters of a function. It has none for functions that only say that
// there is nothing.
func (f *function) listed() bool {
	return len(f.params) > 0 || f.class != "ask" || f.result != ""
}

// resultType is the C type that a function returns in the front.
func (f *function) resultType() string {
	switch k, ok := kinds[f.result]; {
	case f.result == "":
		return "int"
	case ok:
		return strings.TrimSpace(strings.ReplaceAll(k.ctype, "$", ""))
	}
	return f.result
}

// parameters are the parameters of a function as C declares them.
func (f *function) parameters() string {
	if len(f.params) == 0 {
		return "void"
	}
	ps := make([]string, len(f.params))
	for i, p := range f.params {
		ps[i] = declare(p)
	}
	if f.name == "Pcontrol" {
		ps = append(ps, "...")
	}
	return strings.Join(ps, ", ")
}

// frontHeader declares the functions of the front by their PMPI names, which no tool replaces.
func frontHeader(fs []*function) []byte {
	var b bytes.Buffer
	b.WriteString(banner + "#ifndef CKPT_ZZ_PMPI_H\n#define CKPT_ZZ_PMPI_H\n\n")
	for _, f := range fs {
		if f.listed() {
			fmt.Fprintf(&b, "%s PMPI_%s(%s);\n", f.resultType(), f.name, f.parameters())
		}
	}
	b.WriteString("\n#endif\n")
	return b.Bytes()
}

// fortranHeader lists the functions whose Fortran form stands in openmpi_mpifh.c.
func fortranHeader(fs []*function) []byte {
	var b bytes.Buffer
	b.WriteString(banner + "#ifndef CKPT_ZZ_MPIFH_H\n#define CKPT_ZZ_MPIFH_H\n\n/* X(name, NAME, Name), without MPI_, of each function of openmpi_mpifh.c. */\n#define MPIFH_FUNCTIONS(X)")
	for _, f := range fs {
		if f.marked("fortran") {
			fmt.Fprintf(&b, " \\\n    X(%s, %s, %s)", strings.ToLower(f.name), strings.ToUpper(f.name), f.name)
		}
	}
	b.WriteString("\n\n#endif\n")
	return b.Bytes()
}

// backHeader declares the functions of the back, and those that count collective calls.
func backHeader(fs []*function) []byte {
	var b bytes.Buffer
	b.WriteString(banner + "#ifndef CKPT_ZZ_BACK_H\n#define CKPT_ZZ_BACK_H\n\n#pragma GCC visibility push(hidden)\n\n")
	for _, f := range fs {
		if f.below() {
			fmt.Fprintf(&b, "long back_%s(const long *a);\n", f.name)
			for _, twoPhase := range []bool{false, true} {
				if fn := f.counted(twoPhase); fn != "" && (!twoPhase || fn != f.counted(false)) {
					fmt.Fprintf(&b, "long %s(const long *a);\n", fn)
				}
			}
		}
	}
	b.WriteString("\n#pragma GCC visibility pop\n\n#endif\n")
	return b.Bytes()
}
