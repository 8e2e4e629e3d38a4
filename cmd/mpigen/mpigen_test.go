// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseFunctions(t *testing.T) {
	got, err := parseFunctions("# comment\n[p2p]\n3 Send hand buf:buf int:count\n4 Wtime ask -> double\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []*function{
		{number: 3, name: "Send", class: "hand", chapter: "p2p", params: []param{{"buf", "buf"}, {"int", "count"}}},
		{number: 4, name: "Wtime", class: "ask", chapter: "p2p", result: "double"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(function{}, param{})); diff != "" {
		t.Errorf("functions (-want +got):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"number used twice": "1 A ask\n1 B ask\n",
		"name used twice":   "1 A ask\n2 A ask\n",
		"no number":         "x A ask\n",
		"unknown class":     "1 A often\n",
		"unknown kind":      "1 A ask thing:x\n",
		"no name of a kind": "1 A ask int\n",
		"too short":         "1 A\n",
		"unknown mark":      "1 A ask+often\n",
		"words of no pair":  "1 A hand int:x | int:y\n",
		"no datatype made":  "1 A hand+datatype int:count type:old\n",
		"no such argument":  "1 A hand+datatype comm:comm otype:new\n",
		"arrays of nothing": "1 A hand+datatype int:n ints:x otype:new\n",
		"length after more": "1 A hand+datatype ints:x int:count otype:new\n",
		"length no integer": "1 A hand+datatype ints:count otype:new\n",
	} {
		if _, err := parseFunctions(text); err == nil || !strings.HasPrefix(err.Error(), "functions.list:") {
			t.Errorf("%s: error %v, want one that names the line", name, err)
		}
	}
	for name, text := range map[string]string{
		"too short":         "op MAX 1 2\n",
		"number out of 255": "op MAX 256 - - -\n",
		"number used twice": "op MAX 1 - - -\nop MIN 1 - - -\n",
	} {
		if _, err := parseConstants(text); err == nil {
			t.Errorf("constants, %s: accepted", name)
		}
	}
}

// TestDirectRefuses: a list of functions that cannot be right is not written from.
func TestDirectRefuses(t *testing.T) {
	for what, text := range map[string]string{
		"want two words":            "library libx.so.1\nversion X_1\nerror\n",
		"not an answer":             "library libx.so.1\nversion X_1\nmaybe x_open\n",
		"of no library and version": "library libx.so.1\nerror x_open\n",
		"twice":                     "library libx.so.1\nversion X_1\nerror x_open\nerror x_open\n",
	} {
		if _, err := direct(text); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want %q: %v", what, err)
		}
	}
}

// TestParseSectionRefuses: a list that contradicts itself is not written from.
func TestParseSectionRefuses(t *testing.T) {
	if _, err := parseSection(sectionList); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"number or name":  "state 1 A A -  x\nstate 1 B B -  x\n",
		"no record":       "state 1 A A Gone  x\n",
		"unknown kind":    "record A a  x\n  int Field  a field\n",
		"outside":         "  word Field  a field\n",
		"no objects":      "record A a  x\n  id:thing Field  a field\n",
		"no such bound":   "record A a  x\n  below:Gone Field  a field\n",
		"behind colons":   "record A a  x\n  range:1 Field  a field\n",
		"is no number":    "version x Plain  x\n",
		"want KIND FIELD": "record A a  x\n  word Field\n",
		"want layout":     "layout x\n",
		"is none of":      "field x\n",
	} {
		if _, err := parseSection(text); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want %q: %v", what, err)
		}
	}
}

// TestGeneratedFilesAreFresh is what -check does.
func TestGeneratedFilesAreFresh(t *testing.T) {
	if err := run("../..", true); err != nil {
		t.Error(err)
	}
}

func TestStaleFilesAreFound(t *testing.T) {
	root := t.TempDir()
	if err := run(root, true); err == nil {
		t.Fatal("nothing is there, and -check is content")
	}
	if err := run(root, false); err != nil {
		t.Fatal(err)
	}
	if err := run(root, true); err != nil {
		t.Fatalf("just written, yet stale: %v", err)
	}
	old := filepath.Join(root, "capi/front/gen/zz_gone.c")
	if err := os.WriteFile(old, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(root, true); err == nil || !strings.Contains(err.Error(), "zz_gone.c") {
		t.Errorf("a file that is not generated any more: %v", err)
	}
}

// TestEveryFunctionIsDefinedOnce: generated or by hand, in the front, and as its class says in the
// back.
func TestEveryFunctionIsDefinedOnce(t *testing.T) {
	fs, err := parseFunctions(functionsList)
	if err != nil {
		t.Fatal(err)
	}
	front := definitions(t, "../../capi/front", regexp.MustCompile(`(?m)^(?:FRONT\(.+?, |int PMPI_)(\w+?)(?:,$|, \(|\()`))
	macro := definitions(t, "../../capi/front", regexp.MustCompile(`(?m)^HANDLE\((\w+),`))
	infos := definitions(t, "../../capi/front", regexp.MustCompile(`(?m)^INFOS\((\w+),`))
	back := definitions(t, "../../capi/back", regexp.MustCompile(`(?m)^long back_(\w+)\(const long \*a\)(?: \{.*)?$`))
	byMacro := regexp.MustCompile(`^[BSR]send(_init)?$|^File_\w+_(begin|end)$`)
	for _, f := range fs {
		n := front[f.name]
		for _, way := range []string{"_c2f", "_f2c", "_toint", "_fromint"} {
			if kind, ok := strings.CutSuffix(f.name, way); ok && macro[kind] > 0 {
				n++
			}
		}
		if kind, ok := strings.CutSuffix(f.name, "_info"); ok && infos[strings.Split(kind, "_")[0]] > 0 {
			n++
		}
		if n == 0 {
			t.Errorf("MPI_%s (%s) is not in the front", f.name, f.class)
		}
		want := 1
		if !f.below() {
			want = 0
		}
		if got := back[f.name]; got != want && !byMacro.MatchString(f.name) {
			t.Errorf("MPI_%s (%s) is in the back %d times, want %d", f.name, f.class, got, want)
		}
	}
}

// definitions counts what re finds in all C files below dir, by its first group.
func definitions(t *testing.T, dir string, re *regexp.Regexp) map[string]int {
	t.Helper()
	count := map[string]int{}
	for _, pattern := range []string{"*.c", "*/*.c"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range re.FindAllStringSubmatch(string(text), -1) {
				count[m[1]]++
			}
		}
	}
	return count
}

// TestCounted: what stands before a function while collective calls are counted, and which word is its
// communicator: of a pair, what it sends and not its parameters.
func TestCounted(t *testing.T) {
	fs, err := parseFunctions(functionsList)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*function{}
	for _, f := range fs {
		byName[f.name] = f
	}
	for name, want := range map[string]struct {
		comm              int
		clocked, twoPhase string
	}{
		"Bcast":         {4, "clocked_Bcast", "committed_Bcast"},
		"Ibcast":        {4, "clocked_Ibcast", "clocked_Ibcast"},
		"Alltoallw":     {8, "clocked_Alltoallw", "committed_Alltoallw"},
		"Comm_spawn":    {6, "clocked_Comm_spawn", "committed_Comm_spawn"},
		"Comm_split":    {0, "clocked_Comm_split", "committed_Comm_split"},
		"Comm_free":     {-1, "clocked_Comm_free", "clocked_Comm_free"},
		"File_read_all": {-1, "clocked_File_read_all", "clocked_File_read_all"},
		"Reduce_local":  {-1, "", ""},
		"Type_vector":   {-1, "", ""},
		"Wait":          {-1, "", ""},
		"Send":          {-1, "", ""},
	} {
		f := byName[name]
		if f.collective() != want.comm || f.counted(false) != want.clocked || f.counted(true) != want.twoPhase {
			t.Errorf("MPI_%s: communicator at %d, %q, %q; want %+v", name, f.collective(), f.counted(false), f.counted(true), want)
		}
	}
}

// TestFates: a function with large counts has the fate of the one without; what the table says of some.
func TestFates(t *testing.T) {
	fs, err := parseFunctions(functionsList)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*function{}
	for _, f := range fs {
		byName[f.name] = f
	}
	for _, f := range fs {
		counts := 0
		for _, p := range f.params {
			if p.kind == "large" {
				counts++
			}
		}
		if counts > 3 {
			t.Errorf("MPI_%s has %d counts, struct front_large has room for 3", f.name, counts)
		}
		twin := byName[f.twin()]
		if twin == f || twin == nil {
			continue
		}
		if a, b := fate(f, mpich), fate(twin, mpich); a != b {
			t.Errorf("MPI_%s: %q, but MPI_%s: %q", f.name, a, twin.name, b)
		}
	}
	for name, want := range map[string][implementations]string{
		"Send":           {passFate, passFate},
		"Ireduce":        {savedFate, savedFate},
		"Issend_c":       {savedFate, absentFate},
		"Alltoallw_init": {savedFate, savedFate},
		"Comm_spawn":     {errorFate, heldFate},
		"Info_set":       {savedFate, savedFate},
		"Psend_init":     {heldFate, absentFate},
	} {
		if got := [implementations]string{fate(byName[name], mpich), fate(byName[name], openmpi)}; got != want {
			t.Errorf("MPI_%s: %q, want %q", name, got, want)
		}
	}
	if r := remark(byName["Ireduce_c"]); !strings.Contains(r, "operation of the program's own") || !strings.Contains(r, "2147483647") {
		t.Errorf("MPI_Ireduce_c: the remark is %q", r)
	}
}

// TestShapes: what the arguments of the constructors of datatypes are, and how they are found again in what
// MPI_Type_get_contents gives.
func TestShapes(t *testing.T) {
	fs, err := parseFunctions(functionsList)
	if err != nil {
		t.Fatal(err)
	}
	type made struct{ combiner, shape, arguments string }
	got := map[string]made{}
	for _, f := range fs {
		if f.constructor() {
			got[f.name] = made{f.combiner(), f.mustShape(), contents(f.mustShape())}
		}
	}
	for name, want := range map[string]made{
		"Type_dup":                {"DUP", "t", "t[0], "},
		"Type_vector":             {"VECTOR", "iiit", "v[0], v[1], v[2], t[0], "},
		"Type_create_resized":     {"RESIZED", "taa", "t[0], at[0], at[1], "},
		"Type_create_struct":      {"STRUCT", "nIAT", "v[0], v + 1, at, t, "},
		"Type_create_subarray":    {"SUBARRAY", "nIIIot", "v[0], v + 1, v + 1 + n, v + 1 + 2 * n, v[1 + 3 * n], t[0], "},
		"Type_create_f90_integer": {"F90_INTEGER", "i", "v[0], "},
	} {
		if got[name] != want {
			t.Errorf("MPI_%s: %q, want %q", name, got[name], want)
		}
	}
	if large := got["Type_create_darray_c"]; large.combiner != "DARRAY" || large.shape != "iinCDGIot" {
		t.Errorf("MPI_Type_create_darray_c: %q", large)
	}
	if large := got["Type_indexed_c"].shape; large != "mCCt" {
		t.Errorf("MPI_Type_indexed_c: %q", large)
	}
}

// TestNonblocking: what a checkpoint may start later, and only that, with the words that the clock looks at.
func TestNonblocking(t *testing.T) {
	fs, err := parseFunctions(functionsList)
	if err != nil {
		t.Fatal(err)
	}
	text := string(backNonblocking(fs))
	for row, want := range map[string]int{
		"X(IALLREDUCE, 6, 4, 0)": 1, "X(IALLTOALLW, 9, -1, 1)": 1, "X(INEIGHBOR_ALLTOALLW, 9, -1, 1)": 1, "X(COMM_IDUP, 2, -1, 0)": 1,
		"X(IBARRIER, 1, -1, 0)": 1, "X(ALLREDUCE,": 0, "X(ALLTOALLW,": 0, "X(IRECV,": 0, "X(RACCUMULATE,": 0, "X(FILE_IREAD_ALL,": 0,
	} {
		if got := strings.Count(text, row); got != want {
			t.Errorf("%s is there %d times, want %d", row, got, want)
		}
	}
}

// TestFortranHeader: each function that is marked is there under its three spellings, and no other.
func TestFortranHeader(t *testing.T) {
	fs, err := parseFunctions("1 Group_union ask+fortran\n2 Group_size ask\n")
	if err != nil {
		t.Fatal(err)
	}
	if text := string(fortranHeader(fs)); !strings.Contains(text, "X(group_union, GROUP_UNION, Group_union)") || strings.Contains(text, "size") {
		t.Error(text)
	}
}

// TestWordsOfFronts: a front by hand fills in its words by name: numbers and ids in all bytes, addresses with
// their types; those of generated fronts have no names there.
func TestWordsOfFronts(t *testing.T) {
	fs, err := parseFunctions("1 Foo pair comm:comm | int:n intp:flag comm:comm ostatus:status\n2 Bar front buf:buf ocomm:made\n3 Baz hand int:n\n4 Nil pair\n")
	if err != nil {
		t.Fatal(err)
	}
	text := string(wordsHeader(fs))
	for _, want := range []string{
		"struct Foo_words {\n    long n;\n    int *flag;\n    long comm;\n    long status;\n};\n_Static_assert(sizeof(struct Foo_words) == 32,",
		"struct Bar_words {\n    long buf;\n    ckpt_vid *made;\n};\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "Baz") || strings.Contains(text, "Nil") {
		t.Error(text)
	}
}
