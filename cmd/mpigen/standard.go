// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	_ "embed"
	"fmt"
)

// What the header of the standard ABI has beside predefined objects, error classes and functions: the numbers are those
// of the standard.
//
//go:embed standard.in
var standardTypes string

// handleTypes are the types of predefined objects in the standard ABI.
var handleTypes = map[string]string{"datatype": "MPI_Datatype", "op": "MPI_Op"}

// standardHeader writes the mpi.h of the standard ABI, with the functions that the fronts have.
func standardHeader(fs []*function, all map[string][]constant) []byte {
	var b bytes.Buffer
	b.WriteString(banner + standardTypes)
	b.WriteString("\n/* ---- predefined objects and error classes ---- */\n\n#define MPI_SUCCESS 0\n")
	for _, sort := range []string{"datatype", "op", "errclass"} {
		for _, c := range all[sort] {
			switch t := handleTypes[sort]; {
			case c.standard == "-":
			case t == "":
				fmt.Fprintf(&b, "#define MPI_%s %s\n", c.name, c.standard)
			default:
				fmt.Fprintf(&b, "#define MPI_%s ((%s)%s)\n", c.name, t, c.standard)
			}
		}
	}
	b.WriteString("\n/* ---- functions ---- */\n\n")
	for _, f := range fs {
		if !f.listed() || f.marked("removed") {
			continue
		}
		for _, prefix := range []string{"MPI_", "PMPI_"} {
			fmt.Fprintf(&b, "%s %s%s(%s);\n", f.resultType(), prefix, f.name, f.parameters())
		}
	}
	b.WriteString("\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n")
	return b.Bytes()
}
