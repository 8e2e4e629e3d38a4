// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func newGrid() *grid {
	return &grid{Title: "A title", Keys: []string{"way"}, Columns: []string{"took, s"}, Rows: []*gridRow{{Keys: []string{"a"}, Commands: []string{"do a"}}, {Keys: []string{"b"}, Commands: []string{"do b"}}}}
}

// TestGridTurns: all ways take turns, and none always comes after the same other.
func TestGridTurns(t *testing.T) {
	g, order := newGrid(), ""
	err := g.measure(context.Background(), 3, func(_ context.Context, i int) ([]float64, error) {
		order += g.Rows[i].Keys[0]
		return []float64{float64(len(order))}, nil
	})
	if err != nil || order != "abbaab" {
		t.Fatalf("%q, %v", order, err)
	}
	if got := g.Rows[1].Values[0]; !slices.Equal(got, series{2, 3, 6}) {
		t.Errorf("b: %v", got)
	}
	g.Judged = []judgement{{"a over b", 1.02, 1.01}, {"b over a", 1.009, 1.01}}
	var out strings.Builder
	g.table(&out)
	for _, want := range []string{"## A title", "    do b\n", "| b | 3.00 (2.00 to 6.00) |", "a over b: 1.020, at most 1.010: missed", "b over a: 1.009, at most 1.010: met"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q:\n%s", want, out.String())
		}
	}
	r := &report{Grids: []*grid{g}}
	if met, missed := r.goals(); met != 1 || len(missed) != 1 || !strings.Contains(missed[0], "a over b") {
		t.Errorf("%d met, missed %q", met, missed)
	}
}

// TestGridRefuses: a failure ends it, and so do figures for which there is no column.
func TestGridRefuses(t *testing.T) {
	broken := errors.New("broken")
	for name, each := range map[string]func(context.Context, int) ([]float64, error){
		"failure": func(context.Context, int) ([]float64, error) { return nil, broken },
		"figures": func(context.Context, int) ([]float64, error) { return []float64{1, 2}, nil },
	} {
		if err := newGrid().measure(context.Background(), 1, each); err == nil || name == "failure" && !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDiskUse: a file with two names is there once.
func TestDiskUse(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "in"), 0o700), os.WriteFile(filepath.Join(dir, "in", "a"), make([]byte, 1<<20), 0o600),
		os.Link(filepath.Join(dir, "in", "a"), filepath.Join(dir, "b"))); err != nil {
		t.Fatal(err)
	}
	if n, err := diskUse(dir, filepath.Join(dir, "in"), filepath.Join(dir, "none")); err != nil || n < 1<<20 || n > 3<<19 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestParseFTI: what FTI's library says of itself is no answer.
func TestParseFTI(t *testing.T) {
	got, err := parseFTI([]byte("[FTI  Information] - 000000 : FTI has been initialized.\ntook\tsaved\t7000\nmoment\trecovered\t1500\n"), 1000)
	if err != nil || !slices.Equal(got, []answer{{name: "saved", value: 7000, least: 7000}, {name: "recovered", value: 500, least: 500}}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := parseFTI([]byte("[FTI  Warning] - 000000 : no\n"), 1000); err == nil {
		t.Errorf("%v", got)
	}
}

// TestLeftOut: a study that cannot be made here fails when it is asked for by name.
func TestLeftOut(t *testing.T) {
	t.Setenv(ftiVariable, "")
	if _, err := (&bench{}).ownFTI(context.Background()); !errors.Is(err, errLeftOut) || !strings.Contains(err.Error(), "make bench ONLY=fti FTI=DIR") {
		t.Errorf("%v", err)
	}
	t.Setenv(ftiVariable, t.TempDir())
	if _, err := (&bench{}).ownFTI(context.Background()); err == nil || errors.Is(err, errLeftOut) || !strings.Contains(err.Error(), "there must be include/fti.h") {
		t.Errorf("%v", err)
	}
}

// TestResultsName: the results of one study do not take the place of another's.
func TestResultsName(t *testing.T) {
	dir := t.TempDir()
	if err := (&report{Grids: []*grid{newGrid()}, file: "ftibeside", again: "make bench ONLY=it X=Y"}).save(dir, "fti", &bench{}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "ftibeside.md"))
	if _, none := os.Stat(filepath.Join(dir, "fti.md")); err != nil || none == nil {
		t.Fatalf("%v, %v", err, none)
	}
	for _, want := range []string{"Again: `make bench ONLY=it X=Y`", "Every round is in `ftibeside.json`"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("want %q:\n%s", want, text)
		}
	}
}
