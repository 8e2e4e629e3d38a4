// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// gateWords are the words of a function at the gate.
func (f *function) gateWords() []param {
	switch {
	case f.words != nil:
		return f.words
	case f.class == "persist": // hints do not cross
		return slices.DeleteFunc(slices.Clone(f.params), func(p param) bool { return p.kind == "info" })
	}
	return f.params
}

// wordTypes are the types of words that are neither what goes in of a kind (goesIn) nor an address of a
// virtual id.
var wordTypes = map[string]string{
	"buf": "long $", "mbuf": "long $", "cweights": "long $", "weights": "long $", "vptr": "void *$", "cvptr": "const void *$",
	"aint": "MPI_Aint $", "count": "MPI_Count $", "offset": "MPI_Offset $",
	"ints": "const int *$", "distribs": "const int *$", "dargs": "const int *$", "intp": "int *$", "orank": "int *$",
	"otopo": "int *$", "ocompare": "int *$", "oamode": "int *$", "olevel": "int *$", "viewat": "MPI_Offset $", "overbosity": "int *$", "obind": "int *$", "oscope": "int *$", "opclass": "int *$",
	"aints": "const MPI_Aint *$", "aintp": "MPI_Aint *$", "countp": "MPI_Count *$", "offsetp": "MPI_Offset *$",
	"cstr": "const char *$", "str": "char *$", "strs": "char **$", "strsp": "char ***$", "pvar": "long $",
	"ostatus": "long $", "cstatus": "long $", "statuses": "long $",
	"info": "const char *$", "group": "const ckpt_mpi_group *$", "types": "const ckpt_vid *$",
	"contents": "const char *const *$", "name": "ckpt_mpi_name *$", "oname": "ckpt_mpi_name **$",
	"members": "ckpt_mpi_group *$", "starts": "const int64_t *$", "vptrp": "void **$",
}

// words that are an int, or a virtual id, in the low half.
var (
	intWords = []string{"int", "whence", "amode", "level", "color", "rank", "tag", "order", "typeclass", "assert", "lock", "pclass"}
	vidWords = []string{"comm", "type", "op", "request", "message", "win", "file"}
)

// wordType declares a word of 8 bytes, as the back sees it.
func wordType(p param) string {
	t, ok := wordTypes[p.kind]
	switch {
	case ok:
	case slices.Contains(intWords, p.kind):
		t = "_Alignas(8) int $"
	case slices.Contains(vidWords, p.kind):
		t = "_Alignas(8) ckpt_vid $"
	default: // a handle out, or in and out; arrays of such
		t = "ckpt_vid *$"
	}
	return strings.ReplaceAll(t, "$", p.name)
}

// frontWordType declares a word of 8 bytes, as a front that is written by hand fills it in: a number or a
// virtual id in all its bytes.
func frontWordType(p param) string {
	if slices.Contains(intWords, p.kind) || slices.Contains(vidWords, p.kind) {
		return "long " + p.name
	}
	return wordType(p)
}

// wordsHeader gives the words of each function whose front is written by hand a name there.
func wordsHeader(fs []*function) []byte {
	var b bytes.Buffer
	b.WriteString(banner + `#ifndef CKPT_ZZ_WORDS_H
#define CKPT_ZZ_WORDS_H

/* The words of each function whose front is written by hand, as that front hands them to the gate. */

`)
	for _, f := range fs {
		words := f.gateWords()
		if f.class != "pair" && f.class != "front" || len(words) == 0 {
			continue
		}
		fmt.Fprintf(&b, "struct %s_words {\n", f.name)
		for _, p := range words {
			fmt.Fprintf(&b, "    %s;\n", frontWordType(p))
		}
		fmt.Fprintf(&b, "};\n_Static_assert(sizeof(struct %s_words) == %d, \"the words of MPI_%s\");\n", f.name, 8*len(words), f.name)
	}
	b.WriteString("\n#endif\n")
	return b.Bytes()
}

// argsHeader gives the words of each function at the gate a name.
func argsHeader(fs []*function) []byte {
	var b bytes.Buffer
	b.WriteString(banner + `#ifndef CKPT_ZZ_ARGS_H
#define CKPT_ZZ_ARGS_H

#include "canon/mpi_canon.h"

/* The words of each function, which the gate hands over as an array of longs: an int or a virtual id is the
 * lower half of its word, a handle that a call writes is the address of its virtual id.  The header before
 * this one has MPI_Aint, MPI_Count and MPI_Offset. */
#define ARGS(F) const struct F##_args *
#define ARGS_OF(F, words) _Static_assert(sizeof(struct F##_args) == 8 * (words), "the words of MPI_" #F)

`)
	for _, f := range fs {
		words := f.gateWords()
		if !f.below() || len(words) == 0 {
			continue
		}
		fmt.Fprintf(&b, "struct __attribute__((may_alias)) %s_args {\n", f.name)
		for _, p := range words {
			fmt.Fprintf(&b, "    %s;\n", wordType(p))
		}
		fmt.Fprintf(&b, "};\nARGS_OF(%s, %d);\n", f.name, len(words))
	}
	b.WriteString("\n#endif\n")
	return b.Bytes()
}
