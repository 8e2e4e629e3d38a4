// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
)

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// TestLists: folders, comments, arguments and the keys of a testlist; the list of a folder that configure did
// not write comes from the source.
func TestLists(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "testlist"), "# all\nattr\ncoll # these\nerrors\n", 0o644)
	write(t, filepath.Join(dir, "attr/testlist"), "one 1\n!../util:all\ntwo 4 arg=-a arg=b env=X=1 env=Y=2\n", 0o644)
	write(t, filepath.Join(dir, "coll/testlist"), "odd 3 mpiexecarg=-x\n\nfatal 2 resultTest=TestErrFatal\nplain\n", 0o644)
	write(t, filepath.Join(dir, "errors/testlist"), "attr\n", 0o644)
	write(t, filepath.Join(dir, "errors/attr/Makefile"), "", 0o644)
	write(t, filepath.Join(dir, "source/errors/attr/testlist"), "deep 1\n", 0o644)
	write(t, filepath.Join(dir, "errors/attr/testlist.dtp"), "random 2 arg=-testsize=32\n", 0o644)
	list, err := programs("mpich", dir, nil, []string{"testlist", "testlist.dtp"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range list {
		got = append(got, p.key()+"|"+p.left)
	}
	want := []string{
		"mpich|attr|one|1|||",
		"mpich|attr|two|4|-a b|X=1 Y=2|",
		"mpich|coll|odd|3|||wants an option of mpiexec's",
		"mpich|coll|fatal|2|||is judged by more than what it says (TestErrFatal)",
		"mpich|coll|plain|2|||",
		"mpich|errors/attr|deep|1|||",
		"mpich|errors/attr|random|2|-testsize=32||",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if list, err = programs("mpich", dir, []string{"errors"}, []string{"testlist"}); err != nil || len(list) != 1 {
		t.Errorf("of errors: %d programs, %v", len(list), err)
	}
	// Folders are found without the programs of their list.
	if list, err = programs("mpich", dir, nil, []string{"testlist.dtp"}); err != nil || len(list) != 1 || list[0].Name != "random" {
		t.Errorf("of testlist.dtp: %d programs, %v", len(list), err)
	}
}

// TestLimitObjects: a program makes no more datatypes than the limit says, and no more than its list says.
func TestLimitObjects(t *testing.T) {
	var list []*program
	for _, args := range []string{"-type=MPI_INT -testsize=32 -seed=1", "-testsize=1", "-testsize=many", ""} {
		list = append(list, &program{Args: args})
	}
	limitObjects(list, 2)
	var got []string
	for _, p := range list {
		got = append(got, p.Args)
	}
	want := []string{"-type=MPI_INT -testsize=2 -seed=1", "-testsize=1", "-testsize=many", ""}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestJudge: a program passes when it says so, nothing else is wrong, and it ends with 0.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		out  string
		exit e2e.Exit
		hung bool
		want string
	}{
		{" No Errors\n", e2e.Exit{}, false, passes},
		{"No errors\n", e2e.Exit{}, false, passes},
		{"something else\n No Errors\n", e2e.Exit{}, false, passes},
		{" No Errors\n", e2e.Exit{Code: 1}, false, fails},
		{" No Errors\n", e2e.Exit{Signal: syscall.SIGSEGV}, false, fails},
		{" Found 3 errors\n No Errors\n", e2e.Exit{}, false, fails},
		{"There were No Errors of note\n", e2e.Exit{}, false, fails},
		{" No Errors\n", e2e.Exit{}, true, hangs},
		{"", e2e.Exit{}, false, fails},
	} {
		var r result
		r.judge(c.out, "", c.exit, c.hung)
		if r.Outcome != c.want {
			t.Errorf("%q, %v, hung %v: %s, want %s", c.out, c.exit, c.hung, r.Outcome, c.want)
		}
	}
}

// TestGoesOn: what has a result is not run again, a bounded run stops, and the next one has the rest.
func TestGoesOn(t *testing.T) {
	dir, state := t.TempDir(), filepath.Join(t.TempDir(), "results")
	for _, r := range []result{
		{program: program{ABI: "mpich", Folder: "attr", Name: "one", Ranks: 1}, Way: "native", Outcome: passes},
		{program: program{ABI: "mpich", Folder: "attr", Name: "one", Ranks: 1, Args: "a b"}, Env: "X=1 Y=2", Way: "exit", Outcome: fails, Said: "a | b", Saved: true, Call: 7},
	} {
		if err := add(state, r); err != nil {
			t.Fatal(err)
		}
	}
	results, err := read(state)
	if err != nil || len(results) != 2 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	if k := results[1].key(); k != "mpich|attr|one|1|a b|X=1 Y=2" {
		t.Errorf("the second one's key is %q", k)
	}
	o := &options{runner: runner{suite: map[string]string{"mpich": dir}, work: dir, each: time.Minute, ctx: t.Context()}, state: state, budget: -time.Second}
	p := &program{ABI: "mpich", Folder: "attr", Name: "one", Ranks: 1}
	again, err := o.through([]*program{p}, results)
	if err != nil || len(again) != 2 {
		t.Errorf("without time: %d results, %v", len(again), err)
	}
}

// TestTable: outcomes are counted by way, differences have their reasons, and why programs are left out is said.
func TestTable(t *testing.T) {
	dir := t.TempDir()
	reasons := filepath.Join(dir, "reasons")
	write(t, reasons, "# known\nmpich attr/o* exit*: the moon | the sun\n", 0o644)
	one := program{ABI: "mpich", Folder: "attr", Name: "one", Ranks: 1}
	results := []result{
		{program: one, Way: "native", Outcome: passes},
		{program: one, Way: "continue", Outcome: passes},
		{program: one, Way: "exit-other", Outcome: fails, Saved: true, Call: 3, Said: "exit status 1"},
		{program: one, Way: "kill", Outcome: hangs},
	}
	o := &options{report: filepath.Join(dir, "table"), reasons: reasons}
	if err := o.write([]*program{&one, {ABI: "mpich", Name: "two", left: "was not built"}, {ABI: "mpich", Name: "three"}}, results); err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile(o.report + ".md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| natively | 1 | 1 | 0 | 0 | 0 |",
		"| saved, goes on | 1 | 0 | 0 | 0 | 1 |",
		"| mpich | attr/one  | 1 | exit-other | call 3 of rank 0 | fails | the moon \\| the sun: exit status 1 |",
		"| mpich | attr/one  | 1 | kill |  | hangs | not known:  |",
		"| 1 | it ended before |",
		"| 1 | was not built (mpich) |",
		"| 1 | was not run for lack of time (mpich) |",
	} {
		if !strings.Contains(string(table), want+"\n") {
			t.Errorf("no line %q in\n%s", want, table)
		}
	}
}

// TestAgain: what did not pass under ckptrun is forgotten, and nothing else; only its program is run again.
func TestAgain(t *testing.T) {
	state := filepath.Join(t.TempDir(), "results")
	one, two, three := &program{ABI: "mpich", Name: "one"}, &program{ABI: "mpich", Name: "two"}, &program{ABI: "mpich", Name: "three"}
	all := []result{
		{program: *one, Way: "native", Outcome: passes}, {program: *one, Way: "ckptrun", Outcome: passes}, {program: *one, Way: "exit", Outcome: hangs},
		{program: *two, Way: "native", Outcome: fails},
		{program: *three, Way: "native", Outcome: passes}, {program: *three, Way: "ckptrun", Outcome: passes},
	}
	for _, r := range all {
		if err := add(state, r); err != nil {
			t.Fatal(err)
		}
	}
	list, left, err := anew(state, []*program{one, two, three}, slices.Clone(all))
	if err != nil || len(list) != 1 || list[0] != one || len(left) != len(all)-1 {
		t.Fatalf("%d programs, %d results left, %v", len(list), len(left), err)
	}
	kept, err := read(state)
	if err != nil || len(kept) != len(left) {
		t.Fatalf("%d results in the file, %v", len(kept), err)
	}
	for _, r := range kept {
		if r.differs() {
			t.Errorf("%s %s is still there", r.Name, r.Way)
		}
	}
}

// TestMerge: what this run has no result of comes from the table before; a program that passed then and does
// not pass natively in this run remains as it was.
func TestMerge(t *testing.T) {
	table := filepath.Join(t.TempDir(), "table.json")
	write(t, table, `[
 {"abi": "mpich", "folder": "a", "program": "one", "ranks": 1, "way": "native", "outcome": "passes"},
 {"abi": "mpich", "folder": "a", "program": "one", "ranks": 1, "way": "kill", "outcome": "hangs"},
 {"abi": "mpich", "folder": "a", "program": "one", "ranks": 1, "env": "X=1", "way": "kill", "outcome": "passes"},
 {"abi": "mpich", "folder": "a", "program": "slow", "ranks": 1, "way": "native", "outcome": "passes"},
 {"abi": "mpich", "folder": "a", "program": "slow", "ranks": 1, "way": "exit", "outcome": "fails"}
]`, 0o644)
	one, slow := program{ABI: "mpich", Folder: "a", Name: "one", Ranks: 1}, program{ABI: "mpich", Folder: "a", Name: "slow", Ranks: 1}
	results, err := merge(table, []result{
		{program: one, Way: "native", Outcome: passes, Revision: "abc"},
		{program: one, Way: "kill", Outcome: passes, Revision: "abc"},
		{program: slow, Way: "native", Outcome: hangs, Revision: "abc"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range results {
		got = append(got, strings.Join([]string{r.Name, r.Env, r.Way, r.Outcome, r.Revision}, "|"))
	}
	want := []string{"one||native|passes|abc", "one||kill|passes|abc", "one|X=1|kill|passes|", "slow||native|passes|", "slow||exit|fails|"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestShared: a table has no paths of the machine on which it was made.
func TestShared(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "sources/list"), "", 0o644)
	built := filepath.Join(dir, "built")
	if err := os.Mkdir(built, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../sources", filepath.Join(built, "source")); err != nil {
		t.Fatal(err)
	}
	r := runner{suite: map[string]string{"mpich": built}}
	if got := r.shared("mpich", []byte("one: "+dir+"/sources/attr/one.c:72: no")); got != "one: test/mpi/attr/one.c:72: no" {
		t.Errorf("%q", got)
	}
}
