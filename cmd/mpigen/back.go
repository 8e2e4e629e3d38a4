// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// backChapter writes the generated functions of one chapter, compiled once per real MPI.
func backChapter(fs []*function) []byte {
	var b bytes.Buffer
	b.WriteString(banner + "#include \"back/calls.h\"\n")
	if slices.ContainsFunc(fs, func(f *function) bool { return f.collective() >= 0 }) {
		b.WriteString("#include \"back/collective/clocked.h\"\n")
	}
	for _, f := range fs {
		switch {
		case f.constructor():
		case f.class == "translate", f.class == "front":
			backWrapper(&b, f)
		case f.class == "persist":
			backPersistent(&b, f)
		}
	}
	backConstructors(&b, fs)
	return b.Bytes()
}

// collective is which word of a call that is counted on a communicator that is; -1: it is none.
func (f *function) collective() int {
	if !f.marked("clocked") && (f.chapter != "coll" || f.class != "translate") {
		return -1
	}
	return slices.IndexFunc(f.gateWords(), func(p param) bool { return p.kind == "comm" })
}

// blocking is how the back counts a collective call (clocked.h).
func (f *function) blocking() string {
	if slices.ContainsFunc(f.params, func(p param) bool { return p.kind == "orequest" }) {
		return "NONBLOCKING"
	}
	return "BLOCKING"
}

// fileFlags are the flags of a function on files that clocked_NAME of file_calls.c looks at; "": it has no such one.
func (f *function) fileFlags() string {
	var flags []string
	for _, m := range f.marks {
		if slices.Contains(fileMarks, m) {
			flags = append(flags, strings.ToUpper(m))
		}
	}
	return strings.Join(flags, " | ")
}

// counted is what stands before a function in the table while calls are counted; twoPhase: and while a
// barrier is in front of each blocking one.
func (f *function) counted(twoPhase bool) string {
	switch {
	case twoPhase && f.collective() >= 0 && f.blocking() == "BLOCKING":
		return "committed_" + f.name
	case f.collective() >= 0, f.marked(countedMarks...):
		return "clocked_" + f.name
	}
	return ""
}

// backClocked writes what counts the collective calls that are written by hand, and the tables in which all
// counted ones are.
func backClocked(fs []*function) []byte {
	var b bytes.Buffer
	b.WriteString(banner + "#include \"back/calls.h\"\n#include \"back/collective/clocked.h\"\n")
	for _, f := range fs {
		if at := f.collective(); at >= 0 && f.class != "translate" && f.class != "front" {
			fmt.Fprintf(&b, "\nstatic long call_%s(const long *a, MPI_Comm comm) {\n    (void)comm;\n    return back_%[1]s(a);\n}\nCLOCKED_%s(%s, %s, %d)\n",
				f.name, f.blocking(), f.name, strings.ToUpper(f.name), at)
		}
	}
	for _, twoPhase := range []bool{false, true} {
		fmt.Fprintf(&b, "\nckpt_back_fn *const back_%s_table[CKPT_FN_MPI_END - CKPT_FN_MPI] = {\n", map[bool]string{false: "clocked", true: "committed"}[twoPhase])
		for _, f := range fs {
			fn := f.counted(twoPhase)
			switch {
			case !f.below():
				fn = "back_missing"
			case fn == "":
				fn = "back_" + f.name
			}
			fmt.Fprintf(&b, "    [%s - CKPT_FN_MPI] = %s,\n", f.fnConst(), fn)
		}
		b.WriteString("};\n")
	}
	return b.Bytes()
}

// backNonblocking lists the collective calls that a checkpoint may start later, with their words that the
// clock looks at.
func backNonblocking(fs []*function) []byte {
	var b bytes.Buffer
	b.WriteString(banner + "#ifndef CKPT_ZZ_NONBLOCKING_H\n#define CKPT_ZZ_NONBLOCKING_H\n\n" +
		"/* X(NUMBER, which word is the address of the request's id, which is the operation; -1: none is, whether there are\n" +
		" * arrays of datatypes). */\n#define NONBLOCKING_FUNCTIONS(X)")
	for _, f := range fs {
		if f.collective() >= 0 && f.blocking() == "NONBLOCKING" {
			word := func(kind string) int {
				return slices.IndexFunc(f.gateWords(), func(p param) bool { return p.kind == kind })
			}
			arrays := 0
			if word("types") >= 0 {
				arrays = 1
			}
			fmt.Fprintf(&b, " \\\n    X(%s, %d, %d, %d)", strings.ToUpper(f.name), word("orequest"), word("op"), arrays)
		}
	}
	b.WriteString("\n\n#endif\n")
	return b.Bytes()
}

// backFiles lists the functions on files that file_calls.c makes.
func backFiles(fs []*function) []byte {
	var b bytes.Buffer
	b.WriteString(banner + "#ifndef CKPT_ZZ_FILES_H\n#define CKPT_ZZ_FILES_H\n\n/* X(function, NUMBER, flags, which word is the address of the request's id; 0: none is). */\n#define FILE_FUNCTIONS(X)")
	short := func(f *function) string { return strings.TrimPrefix(f.name, "File_") }
	for _, f := range fs {
		if flags := f.fileFlags(); flags != "" {
			request := max(0, slices.IndexFunc(f.gateWords(), func(p param) bool { return p.kind == "orequest" }))
			fmt.Fprintf(&b, " \\\n    X(%s, %s, %s, %d)", short(f), strings.ToUpper(short(f)), flags, request)
		}
	}
	b.WriteString("\n\n/* X(function without _begin and _end, NUMBER, words of _begin). */\n#define SPLIT_FUNCTIONS(X)")
	for _, f := range fs {
		if name, ok := strings.CutSuffix(short(f), "_begin"); ok {
			fmt.Fprintf(&b, " \\\n    X(%s, %s, %d)", name, strings.ToUpper(name), len(f.gateWords()))
		}
	}
	b.WriteString("\n\n#endif\n")
	return b.Bytes()
}

// backPersistent writes what remembers the arguments of a persistent collective; bit i of the mask says
// that argument i is a datatype.
func backPersistent(b *bytes.Buffer, f *function) {
	mask, n := 0, 0
	for _, p := range f.params {
		if p.kind == "info" {
			continue
		}
		if p.kind == "type" {
			mask |= 1 << n
		}
		n++
	}
	fmt.Fprintf(b, "\nlong back_%s(const long *a) {\n    return back_coll_init(CKPT_FN_MPI_%s - CKPT_FN_MPI, \"MPI_%s\", a, %d, %#x);\n}\n",
		f.name, strings.ToUpper(f.started()), f.name, n, mask)
}

// backWrapper writes the function back_NAME; of a collective call also what counts it (clocked.h), which has
// looked at the communicator already.
func backWrapper(b *bytes.Buffer, f *function) {
	counted := f.collective()
	if counted >= 0 {
		fmt.Fprintf(b, "\nstatic inline long call_%s(const long *a, MPI_Comm comm) {\n", f.name)
		if len(f.params) == 1 {
			b.WriteString("    (void)a;\n")
		}
		upper := strings.ToUpper(f.name)
		defer fmt.Fprintf(b, "long back_%s(const long *a) { return call_%s(a, real_comm(a[%d])); }\nCLOCKED_%s(%s, %s, %d)\n",
			f.name, f.name, counted, f.blocking(), f.name, upper, counted)
	} else {
		fmt.Fprintf(b, "\nlong back_%s(const long *a) {\n", f.name)
	}
	owner := "CKPT_VID_NONE"
	for i, p := range f.params {
		if p.kind == "comm" || p.kind == "win" || p.kind == "file" {
			owner = fmt.Sprintf("(ckpt_vid)a[%d]", i)
			break
		}
	}
	var args []string
	var finally, after strings.Builder
	for i, p := range f.params {
		k := kinds[p.kind]
		if k.arg == "" {
			panic(fmt.Sprintf("%s: parameter %s of kind %s cannot be generated in the back", f.name, p.name, p.kind))
		}
		sub := func(s string) string {
			s = strings.ReplaceAll(s, "OWNER", owner)
			s = strings.ReplaceAll(s, "%d", fmt.Sprint(i))
			return strings.ReplaceAll(s, "$", fmt.Sprintf("a[%d]", i))
		}
		if k.backBefore != "" {
			fmt.Fprintf(b, "    %s\n", sub(k.backBefore))
		}
		if i == counted {
			args = append(args, "comm")
		} else {
			args = append(args, sub(k.arg))
		}
		if k.backFinally != "" {
			fmt.Fprintf(&finally, "    %s\n", sub(k.backFinally))
		}
		if k.backAfter != "" {
			fmt.Fprintf(&after, "    %s\n", sub(k.backAfter))
		}
	}
	back := "back_error"
	if f.chapter == "tools" { // its codes are classes, and nobody may be asked before MPI_Init
		back = "back_canon_class"
		if len(f.params) == 0 {
			b.WriteString("    (void)a;\n")
		}
	}
	fmt.Fprintf(b, "    int rc = MPI_%s(%s);\n%s", f.name, strings.Join(args, ", "), finally.String())
	if after.Len() == 0 {
		fmt.Fprintf(b, "    return %s(rc);\n}\n", back)
		return
	}
	fmt.Fprintf(b, "    if (rc != MPI_SUCCESS) return %s(rc);\n", back)
	b.WriteString(after.String())
	if !strings.Contains(after.String(), "return") {
		b.WriteString("    return 0;\n")
	}
	b.WriteString("}\n")
}

// below reports whether the back has the function.
func (f *function) below() bool { return !slices.Contains([]string{"ask", "large"}, f.class) }

// backTable writes the table that the gate indexes.
func backTable(fs []*function) []byte {
	var b bytes.Buffer
	b.WriteString(banner + "#include \"back/calls.h\"\n\n")
	b.WriteString("ckpt_back_fn *const back_table[CKPT_FN_MPI_END - CKPT_FN_MPI] = {\n")
	for _, f := range fs {
		fn := "back_" + f.name
		if !f.below() {
			fn = "back_missing"
		}
		fmt.Fprintf(&b, "    [%s - CKPT_FN_MPI] = %s,\n", f.fnConst(), fn)
	}
	b.WriteString("};\n")
	return b.Bytes()
}

// removedInOpenMPI binds a datatype that its Fortran programs and its library have, but whose name in C is
// an error there.
func removedInOpenMPI(c constant) string {
	return fmt.Sprintf(`#if defined(OMPI_MAJOR_VERSION)
    extern struct ompi_predefined_datatype_t %[2]s __attribute__((weak));
    if (&%[2]s != NULL && back_bind_datatype(job, %[1]d, (MPI_Datatype)&%[2]s))
        return -1;
#elif defined(MPI_%[3]s)
    if (back_bind_datatype(job, %[1]d, MPI_%[3]s))
        return -1;
#endif
`, c.number, c.openmpi, c.name)
}

// backConstants binds predefined objects to the real MPI's, those that it has.
func backConstants(all map[string][]constant) []byte {
	var b bytes.Buffer
	b.WriteString(banner + "#include \"back/calls.h\"\n")
	b.WriteString("\nint back_bind_constants(ckpt_job *job) {\n")
	for _, sort := range []string{"datatype", "op"} {
		for _, c := range all[sort] {
			if sort == "datatype" && (c.name == "LB" || c.name == "UB") {
				b.WriteString(removedInOpenMPI(c))
				continue
			}
			fmt.Fprintf(&b, "#if defined(MPI_%s)\n    if (back_bind_%s(job, %d, MPI_%s)) return -1;\n#endif\n", c.name, sort, c.number, c.name)
		}
	}
	b.WriteString("    return 0;\n}\n")
	b.WriteString("\n/* Our number of an error class of the real MPI; MPI_ERR_OTHER's when we have none. */\nint back_canon_class(int class) {\n    switch (class) {\n    case MPI_SUCCESS:\n        return 0;\n")
	for _, c := range all["errclass"] {
		fmt.Fprintf(&b, "#ifdef MPI_%s\n    case MPI_%s:\n        return CANON_ERRCLASS_%s;\n#endif\n", c.name, c.name, c.name)
	}
	b.WriteString("    default:\n        return CANON_ERRCLASS_ERR_OTHER;\n    }\n}\n")
	b.WriteString("\n/* And back. */\nint back_real_class(int canon) {\n    switch (canon) {\n    case 0:\n        return MPI_SUCCESS;\n")
	for _, c := range all["errclass"] {
		fmt.Fprintf(&b, "#ifdef MPI_%s\n    case CANON_ERRCLASS_%s:\n        return MPI_%s;\n#endif\n", c.name, c.name, c.name)
	}
	b.WriteString("    default:\n        return MPI_ERR_OTHER;\n    }\n}\n")
	return b.Bytes()
}
