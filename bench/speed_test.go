// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSpeeds has a machine whose processors move between the ways of a round: pairs say nothing, distances do.
func TestSpeeds(t *testing.T) {
	c := &comparison{Title: "two ranks", Unit: "ns", ratios: map[string]float64{"trip": 1.3, "lone": 1.1},
		Ways: []way{{Name: "native"}, {Name: "ckptrun"}}}
	const core, cache, none = 57, 128, 450
	for round, values := range [][2][2]float64{
		{{270, cache}, {1230, none}}, {{1130, none}, {350, cache}}, {{266, cache}, {346, cache}},
		{{1120, none}, {1240, none}}, {{268, cache}, {348, cache}}, {{210, core}, {310, core}},
	} {
		for way, v := range values {
			answers := []answer{{"trip", v[0], v[0], v[1]}, {"lone", 20 + float64(way), 20, none}}
			if err := c.add(round, way, answers); err != nil {
				t.Fatal(err)
			}
		}
	}
	var out strings.Builder
	c.tableOfSpeeds(&out)
	want := `
By where the processors of the two ranks were; medians, and of how many runs:

|  | processors | native, ns | ckptrun, ns | ratio | goal |
|---|---|---|---|---|---|
| trip | threads of a core | 210 (1) | 310 (1) |  |  |
| trip | a core each | 268 (3) | 348 (3) | 1.30 | at most 1.30: met |
| trip | no cache in common | 1125 (2) | 1235 (2) |  |  |
| lone | no cache in common | 20.0 (6) | 21.0 (6) | 1.05 |  |
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
	if got := c.row("lone").judge(); got != ratioOpen {
		t.Errorf("no run with a core each: %s", got)
	}
}

// TestDistanceIsNeeded: a goal of a ratio means nothing without it.
func TestDistanceIsNeeded(t *testing.T) {
	c := &comparison{Title: "two ranks", Unit: "ns", ratios: map[string]float64{"trip": 1.3}, Ways: []way{{Name: "native"}}}
	if err := c.add(0, 0, []answer{{name: "trip", value: 1, least: 1}}); err == nil {
		t.Error("a ratio has a goal, and the program said no distance")
	}
}
