// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		name string
		s    series
		want float64
	}{
		{"none", nil, 0},
		{"one", series{3}, 0},
		{"one speed, spread", series{100, 130, 160, 200}, 0},
		{"two", series{1100, 266, 280, 1180}, math.Sqrt(280 * 1100)},
	} {
		if got := split(c.s); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestSpeeds has a machine that changes its speed between the ways of a round: pairs say nothing, speeds do.
func TestSpeeds(t *testing.T) {
	c := &comparison{Title: "two ranks", Unit: "ns", ratios: map[string]float64{"trip": 1.3, "lone": 1.1},
		Ways: []way{{Name: "native"}, {Name: "ckptrun"}}}
	for round, values := range [][2]float64{{270, 1230}, {1130, 350}, {266, 346}, {1120, 1240}} {
		for way, v := range values {
			if err := c.add(round, way, []answer{{"trip", v, v}, {"lone", 20 + float64(way), 20}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var out strings.Builder
	c.tableOfSpeeds(&out)
	want := `
The quick runs, and the slow ones, by what each took; medians, and of how many runs:

|  | quick: native, ns | ckptrun, ns | ratio | goal | slow: native, ns | ckptrun, ns | ratio |
|---|---|---|---|---|---|---|---|
| trip | 268 (2) | 348 (2) | 1.30 | at most 1.30: met | 1125 (2) | 1235 (2) | 1.10 |
| lone | 20.0 (4) | 21.0 (4) | 1.05 | at most 1.10: one speed was seen, which may be the slow one | one speed |  |  |
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	r := &report{Comparisons: []*comparison{c}}
	if met, missed := r.goals(); met != 1 || len(missed) != 1 {
		t.Errorf("%d met, missed %q", met, missed)
	}
	c.row("trip").Ratio = 1.2
	if _, missed := r.goals(); len(missed) != 2 {
		t.Errorf("missed %q", missed)
	}
	for _, only := range []struct {
		value float64
		want  judged
	}{{347, ratioMet}, {1230, ratioMissed}} { // quick for sure; who knows
		c.row("trip").Values[1] = series{only.value, only.value}
		c.row("trip").Ratio = 1.3
		if got := c.row("trip").judge(); got != only.want {
			t.Errorf("%v in all runs: %s", only.value, got)
		}
	}
}
