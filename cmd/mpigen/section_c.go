// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
)

// sectionC writes the records in C, above words.h.
func sectionC(s *section) []byte {
	var b bytes.Buffer
	b.WriteString(banner + "#ifndef CKPT_ZZ_SECTION_H\n#define CKPT_ZZ_SECTION_H\n\n#include \"back/impl/words.h\"\n\nenum {\n")
	enum := func(prefix string, list []named) {
		for _, v := range list {
			fmt.Fprintf(&b, "    %s_%s = %d, /* %s */\n", prefix, v.c, v.number, v.says)
		}
	}
	enum("SAVE_VERSION", s.versions)
	b.WriteString("};\nenum {\n")
	enum("SAVE_MAX", s.bounds)
	b.WriteString("};\nenum {\n")
	enum("STATE", s.states)
	fmt.Fprintf(&b, "    STATE_LAST = STATE_%s\n};\n", s.states[len(s.states)-1].c)
	b.WriteString("/* Flags of requests. */\nenum {\n")
	enum("SAVED", s.flags)
	b.WriteString("};\n/* X(name, number) for each that a request has in a process, too. */\n#define SAVED_LASTING(X)")
	for _, v := range s.flags {
		if !v.imageOnly() {
			fmt.Fprintf(&b, " \\\n    X(%s, %d)", v.c, v.number)
		}
	}
	b.WriteString("\n/* The words of each record at least. */\nenum {\n")
	for _, r := range s.records {
		fmt.Fprintf(&b, "    WORDS_%s = %d,\n", strings.ToUpper(r.c), r.words())
	}
	b.WriteString("};\n")
	for _, r := range s.records {
		cRecord(&b, r)
	}
	b.WriteString("\n#endif\n")
	return b.Bytes()
}

func cRecord(b *bytes.Buffer, r *record) {
	fmt.Fprintf(b, "\n/* %s%s. */\nstruct saved_%s {\n", strings.ToUpper(r.says[:1]), r.says[1:], r.c)
	for _, f := range r.fields {
		comment := ""
		if f.more != "" {
			comment = " /* " + f.more + " */"
		}
		switch f.kind {
		case "words":
			fmt.Fprintf(b, "    struct words %s;%s\n", f.c, comment)
		case "ids":
			fmt.Fprintf(b, "    struct words %s; /* as they were read */\n    const ckpt_vid *own_%[1]s; /* as they are to be written, %[1]s.n of them */\n", f.c)
		case "data":
			fmt.Fprintf(b, "    const void *%s;\n    int64_t bytes;\n", f.c)
		default:
			fmt.Fprintf(b, "    %s %s;%s\n", scalars[f.kind].ctype, f.c, comment)
		}
	}
	fmt.Fprintf(b, "};\nstatic inline void out_%s(struct out *o, const struct saved_%s *v) {\n", r.c, r.c)
	for _, f := range r.fields {
		fmt.Fprintf(b, "    %s\n", f.cWrite())
	}
	fmt.Fprintf(b, "}\nstatic inline void in_%s(struct in *x, struct saved_%s *v) {\n", r.c, r.c)
	for _, f := range r.fields {
		fmt.Fprintf(b, "    %s\n", f.cRead())
	}
	b.WriteString("}\n")
}

// counted reports whether the number of words stands before them.
func (f *field) counted() bool { return f.kind == "words" && strings.HasPrefix(f.gotype(), "[]") }

func (f *field) cWrite() string {
	switch {
	case f.counted():
		return fmt.Sprintf("out(o, (int64_t)v->%s.n);\n    out_words(o, &v->%s);", f.c, f.c)
	case f.kind == "words":
		return fmt.Sprintf("out_words(o, &v->%s);", f.c)
	case f.kind == "ids":
		return fmt.Sprintf("out_ids(o, v->own_%s, v->%s.n);", f.c, f.c)
	case f.kind == "data":
		return fmt.Sprintf("out(o, v->bytes);\n    out_bytes(o, v->%s, (size_t)v->bytes);", f.c)
	}
	return fmt.Sprintf("out(o, (int64_t)v->%s);", f.c)
}

func (f *field) cRead() string {
	within := func(low, high string) string {
		return fmt.Sprintf("v->%s = (%s)in_range(x, %s, %s);", f.c, scalars[f.kind].ctype, low, high)
	}
	switch f.kind {
	case "word", "uword":
		return fmt.Sprintf("v->%s = (%s)in(x);", f.c, scalars[f.kind].ctype)
	case "range":
		return within(f.args[0], f.args[1])
	case "below":
		return within("0", "SAVE_MAX_"+strings.ToUpper(f.args[0])+" - 1")
	case "index":
		return within("0", "(int64_t)v->"+strings.ToLower(f.args[0])+".n - 1")
	case "state":
		return within("0", "STATE_LAST")
	case "id", "fresh":
		return fmt.Sprintf("v->%s = in_vid(x, %s);", f.c, cKinds(f.args[0]))
	case "ids":
		return fmt.Sprintf("v->%s = in_ids(x, %s);\n    v->own_%[1]s = NULL;", f.c, cKinds(f.args[0]))
	case "data":
		return fmt.Sprintf("v->bytes = in_range(x, 0, (int64_t)x->left);\n    v->%s = in_bytes(x, (size_t)v->bytes);", f.c)
	case "words":
		switch {
		case len(f.args) == 2:
			return fmt.Sprintf("v->%s = in_words(x, in_range(x, %s, SAVE_MAX_%s));", f.c, f.args[0], strings.ToUpper(f.args[1]))
		case f.args[0] == "rest":
			return fmt.Sprintf("v->%s = in_words(x, in_count(x, 1));", f.c)
		}
		return fmt.Sprintf("v->%s = in_words(x, %s);", f.c, f.args[0])
	}
	return within(scalars[f.kind].clow, scalars[f.kind].chigh)
}

func cKinds(list string) string {
	var kinds []string
	for _, k := range strings.Split(list, ",") {
		kinds = append(kinds, "1u << CKPT_KIND_"+vidKinds[k][1])
	}
	return strings.Join(kinds, " | ")
}
