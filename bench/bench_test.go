// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values series
		want   float64
	}{
		{nil, 0},
		{series{3}, 3},
		{series{9, 1}, 5},
		{series{9, 1, 2}, 2},
		{series{4, 1, 1000, 3}, 3.5},
	} {
		before := append(series{}, c.values...)
		if got := c.values.median(); got != c.want {
			t.Errorf("median of %v: %g, want %g", c.values, got, c.want)
		}
		if diff := cmp.Diff(before, append(series{}, c.values...)); diff != "" {
			t.Errorf("median changed its values:\n%s", diff)
		}
	}
}

func TestParse(t *testing.T) {
	got, err := parse([]byte("ns\tMPI_Comm_rank\t2.5\t2.4\t90\ntook\tstopped\t7000\nmoment\tstarted\t1500\n"), 1000)
	if err != nil {
		t.Fatal(err)
	}
	want := []answer{{name: "MPI_Comm_rank", value: 2.5, least: 2.4}, {name: "stopped", value: 7000, least: 7000}, {name: "started", value: 500, least: 500}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); diff != "" {
		t.Error(diff)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, out := range []string{
		"",
		"\n",
		"hello\n",
		"ns\tx\t1\t1\n",
		"ns\tx\tone\t1\t1\n",
		"ns\tx\t0\t0\t0\n",
		"ns\tx\tNaN\t0\t0\n",
		"took\tx\t-5\n",
		"moment\tx\t999\n", // before the start
		"took\tx\t5\nwarning: something\n",
	} {
		if got, err := parse([]byte(out), 1000); err == nil {
			t.Errorf("%q was taken for %v", out, got)
		}
	}
}

// TestAddRefuses proves that no way can answer other questions than the others, or fewer.
func TestAddRefuses(t *testing.T) {
	for name, second := range map[string][]answer{
		"fewer":       {{name: "a", value: 1, least: 1}},
		"more":        {{name: "a", value: 1, least: 1}, {name: "b", value: 1, least: 1}, {name: "c", value: 1, least: 1}},
		"other":       {{name: "a", value: 1, least: 1}, {name: "x", value: 1, least: 1}},
		"other order": {{name: "b", value: 1, least: 1}, {name: "a", value: 1, least: 1}},
	} {
		c := &comparison{Unit: "ns", Ways: make([]way, 2)}
		if err := c.add(0, 0, []answer{{name: "a", value: 1, least: 1}, {name: "b", value: 2, least: 2}}); err != nil {
			t.Fatal(err)
		}
		if err := c.add(0, 1, second); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	c := &comparison{Unit: "ns", Ways: make([]way, 2), goals: map[string]float64{"misspelt": 1}}
	if err := c.add(0, 0, []answer{{name: "a", value: 1, least: 1}}); err == nil {
		t.Error("a goal for what nobody measures was accepted")
	}
}

func TestTable(t *testing.T) {
	c := &comparison{Title: "two ranks", Unit: "ns", goals: map[string]float64{"fast": 3, "slow": 40},
		Ways: []way{{Name: "native", Shown: "program"}, {Name: "ckptrun", Shown: "ckptrun -- program"}}}
	for round, values := range [][2]float64{{10, 12}, {11, 12.5}, {20, 23}} {
		for way, v := range values {
			if err := c.add(round, way, []answer{{name: "fast", value: v, least: v - 1}, {name: "slow", value: v * v, least: v * v}, {name: "free", value: v, least: v}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var out strings.Builder
	c.table(&out)
	want := `
## Two ranks

    program
    ckptrun -- program

|  | native, ns | ckptrun, ns | difference, ns | ratio | quickest, goal |
|---|---|---|---|---|---|
| fast | 11.0 (10.0 to 20.0) | 12.5 (12.0 to 23.0) | 2.00 (1.50 to 3.00) | 1.15 | 2.00, at most 3.00: met |
| slow | 121 (100 to 400) | 156 (144 to 529) | 44.0 (35.2 to 129) | 1.32 | 44.0, at most 40.0: missed |
| free | 11.0 (10.0 to 20.0) | 12.5 (12.0 to 23.0) | 2.00 (1.50 to 3.00) | 1.15 | none |
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestPlan(t *testing.T) {
	all, _ := thorough.plan()
	if len(all) != 3*2*2*2 {
		t.Errorf("the full plan has %d rows", len(all))
	}
	some, rounds := quick.plan()
	if len(some) >= len(all) || len(rounds) != len(some) {
		t.Errorf("the quick plan has %d rows and %d counts, the full one %d rows", len(some), len(rounds), len(all))
	}
	sizes := map[int]bool{}
	for _, s := range some {
		sizes[s.MiB] = true
	}
	if diff := cmp.Diff(map[int]bool{64: true, 512: true, 1024: true}, sizes); diff != "" {
		t.Errorf("sizes of the quick plan:\n%s", diff)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-only", "nothing"}, {"stray"}, {"-no-such-option"}} {
		if err := run(t.Context(), args); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v, want a usage error", args, err)
		}
	}
}

// TestFailureIsAnError runs programs that fail, hang or print nonsense.
func TestFailureIsAnError(t *testing.T) {
	b := &bench{build: t.TempDir()}
	b.scratch = b.build
	for name, command := range map[string][]string{
		"status":   {"sh", "-c", "printf 'took\\tx\\t5\\n'; exit 3"},
		"nonsense": {"echo", "hello"},
		"silence":  {"true"},
		"missing":  {b.program("not-there")},
		"signal":   {"sh", "-c", "kill -9 $$"},
	} {
		if answers, err := b.run(t.Context(), limitOfRun, command); err == nil {
			t.Errorf("%s: %v", name, answers)
		}
	}
	if _, err := b.run(t.Context(), 1, []string{"sleep", "60"}); err == nil || !strings.Contains(err.Error(), "not done") {
		t.Errorf("a program that hangs: %v", err)
	}
}
