// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
)

// grid is a table of what was measured in turns: each row is one way to do something, each column one figure of it.
type grid struct {
	Title   string     `json:"title"`
	Keys    []string   `json:"keys"`    // heads of what tells the rows apart
	Columns []string   `json:"columns"` // heads of the figures, with their units
	Rows    []*gridRow `json:"rows"`
	// Judged are goals, with what became of each.
	Judged []judgement `json:"goals,omitempty"`
}

type gridRow struct {
	Keys     []string `json:"keys"`
	Commands []string `json:"commands"`
	Values   []series `json:"values"` // of each column, one a round
}

// judgement is what became of a goal that is no difference of two columns.
type judgement struct {
	What string  `json:"what"`
	Got  float64 `json:"got"`
	Most float64 `json:"most"`
}

func (j *judgement) met() bool { return j.Got <= j.Most }

func (j *judgement) String() string {
	word := "missed"
	if j.met() {
		word = "met"
	}
	return fmt.Sprintf("%s: %.3f, at most %.3f: %s", j.What, j.Got, j.Most, word)
}

// measure has each row do what it is about once a round, forwards in one round and backwards in the next, so that
// no row always comes after the same other. each returns one figure a column.
func (g *grid) measure(ctx context.Context, rounds int, each func(ctx context.Context, row int) ([]float64, error)) error {
	fmt.Printf("   %s: %d rounds of %d ways\n", g.Title, rounds, len(g.Rows))
	for round := range rounds {
		for i := range g.Rows {
			if round%2 == 1 {
				i = len(g.Rows) - 1 - i
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			row := g.Rows[i]
			figures, err := each(ctx, i)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", g.Title, strings.Join(row.Keys, ", "), err)
			}
			if err := g.add(row, round, figures); err != nil {
				return err
			}
		}
	}
	return nil
}

// add takes the figures of one run. Every run must have one for each column.
func (g *grid) add(row *gridRow, round int, figures []float64) error {
	if len(figures) != len(g.Columns) {
		return fmt.Errorf("%s: %d figures for %d columns", strings.Join(row.Keys, ", "), len(figures), len(g.Columns))
	}
	if row.Values == nil {
		row.Values = make([]series, len(g.Columns))
	}
	for c, v := range figures {
		if len(row.Values[c]) != round {
			return fmt.Errorf("%s: measured twice in a round", strings.Join(row.Keys, ", "))
		}
		row.Values[c] = append(row.Values[c], v)
	}
	return nil
}

func (g *grid) table(out *strings.Builder) {
	fmt.Fprintf(out, "\n## %s\n\n", g.Title)
	shown := map[string]bool{}
	for _, row := range g.Rows {
		for _, c := range row.Commands {
			if !shown[c] {
				fmt.Fprintf(out, "    %s\n", c)
			}
			shown[c] = true
		}
	}
	out.WriteString("\n")
	head(out, append(append([]string{}, g.Keys...), g.Columns...)...)
	for _, row := range g.Rows {
		cells := append([]string{}, row.Keys...)
		for _, s := range row.Values {
			cells = append(cells, spread(s))
		}
		line(out, cells...)
	}
	if g.Judged != nil {
		out.WriteString("\nGoals:\n\n")
	}
	for i := range g.Judged {
		fmt.Fprintf(out, "- %s\n", g.Judged[i].String())
	}
}
