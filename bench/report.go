// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// report is what one study found.
type report struct {
	Title       string        `json:"title"`
	Text        string        `json:"-"`
	Partial     bool          `json:"-"` // an error ended it, and what was measured before is to be kept
	Machine     machine       `json:"machine"`
	Command     string        `json:"command"` // that makes it again
	Comparisons []*comparison `json:"comparisons"`
	Saves       []*save       `json:"saves,omitempty"`
	Played      []*playedJob  `json:"played,omitempty"` // nothing was measured
	Many        []*manyRanks  `json:"many,omitempty"`
	Grids       []*grid       `json:"grids,omitempty"`

	again string // what has to be said instead of ONLY=NAME to make it again; "": nothing
	file  string // name of the results, if that of the study is taken
}

// save writes name.json and name.md into dir, and the tables to the terminal.
func (r *report) save(dir, name string, b *bench) error {
	r.Machine = b.machine
	if r.Command = r.again; r.Command == "" {
		r.Command = "make bench ONLY=" + name
	}
	if b.full {
		r.Command += " FULL=1"
	}
	if r.file != "" {
		name = r.file
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name+".json"), append(data, '\n'), 0o666); err != nil {
		return err
	}
	tables := r.tables()
	fmt.Print(tables)
	text := "<!-- Written by `" + r.Command + "`. -->\n# " + r.Title + "\n\n" + r.Text +
		"\n\nMedians of the rounds, with the least and the largest of them; in every round all ways took turns. " +
		"Differences and ratios are those within a round; a figure without a spread is of one round. Goals are about the difference " +
		"of the quickest batches of calls, which the rest of the machine disturbed least. Every round is in `" + name + ".json`.\n\n" +
		"Machine: " + r.Machine.summary() + ".\n\nAgain: `" + r.Command + "`\n" + tables
	if r.Many != nil {
		text = "<!-- Written by `" + r.Command + "`. -->\n# " + r.Title + "\n\n" + r.Text + "\n\nMachine: " + r.Machine.summary() +
			".\n\nAgain: `" + r.Command + "`\n" + tables
	}
	if r.Grids != nil {
		text = "<!-- Written by `" + r.Command + "`. -->\n# " + r.Title + "\n\n" + r.Text +
			"\n\nMedians of the rounds, with the least and the largest of them; in every round all ways took turns. Every round is in `" + name +
			".json`.\n\nMachine: " + r.Machine.summary() + ".\n\nAgain: `" + r.Command + "`\n" + tables
	}
	if r.Played != nil {
		text = "<!-- Written by `" + r.Command + "`. -->\n# " + r.Title + "\n\n" + r.Text + "\n\nAgain: `" + r.Command + "`\n" + tables
	}
	return os.WriteFile(filepath.Join(dir, name+".md"), []byte(text), 0o666)
}

func (r *report) tables() string {
	var out strings.Builder
	for _, c := range r.Comparisons {
		c.table(&out)
		if c.ratios != nil {
			c.tableOfSpeeds(&out)
		}
	}
	if r.Saves != nil {
		tableOfSaves(&out, r.Saves)
		tableOfRestarts(&out, r.Saves)
	}
	if r.Played != nil {
		tableOfPlayed(&out, r.Played)
	}
	if r.Many != nil {
		tableOfMany(&out, r.Many)
	}
	for _, g := range r.Grids {
		g.table(&out)
	}
	return out.String()
}

// number has three digits that mean something, and no more behind the point than two.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a == 0 || a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// spread is a median with the least and the largest.
func spread(s series) string {
	if len(s) < 2 {
		return number(s.median())
	}
	return fmt.Sprintf("%s (%s to %s)", number(s.median()), number(s.least()), number(s.largest()))
}

func line(out *strings.Builder, cells ...string) {
	fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
}

func head(out *strings.Builder, cells ...string) {
	line(out, cells...)
	out.WriteString("|" + strings.Repeat("---|", len(cells)) + "\n")
}

func (c *comparison) table(out *strings.Builder) {
	fmt.Fprintf(out, "\n## %s\n\n", strings.ToUpper(c.Title[:1])+c.Title[1:])
	for _, w := range c.Ways {
		fmt.Fprintf(out, "    %s\n", w.Shown)
	}
	out.WriteString("\n")
	columns := []string{"", c.Ways[0].Name + ", " + c.Unit}
	for _, w := range c.Ways[1:] {
		columns = append(columns, w.Name+", "+c.Unit, "difference, "+c.Unit, "ratio")
	}
	if c.goals != nil {
		columns = append(columns, "quickest, goal")
	}
	head(out, columns...)
	for _, r := range c.Rows {
		cells := []string{r.Name, spread(r.Values[0])}
		for i := 1; i < len(c.Ways); i++ {
			cells = append(cells, spread(r.Values[i]), spread(r.difference(i)), number(r.ratio(i).median()))
		}
		if c.goals != nil {
			cells = append(cells, r.verdict())
		}
		line(out, cells...)
	}
}

// cost is the difference of the quickest batches, of the last way and natively. What else goes on in the machine
// makes a batch longer, never shorter, so these are the closest to what a call takes by itself.
func (r *row) cost() float64 { return r.Least[len(r.Least)-1] - r.Least[0] }

func (r *row) met() bool { return r.cost() <= r.Goal }

func (r *row) verdict() string {
	if r.Goal == 0 {
		return "none"
	}
	word := "missed"
	if r.met() {
		word = "met"
	}
	return fmt.Sprintf("%s, at most %s: %s", number(r.cost()), number(r.Goal), word)
}

// goals counts the goals that were met, and names those that were not.
func (r *report) goals() (met int, missed []string) {
	for _, c := range r.Comparisons {
		for _, row := range c.Rows {
			if row.Ratio != 0 {
				if verdict := row.judge(); verdict == ratioMet {
					met++
				} else {
					missed = append(missed, fmt.Sprintf("%s, %s: %s times the native one with a core each, goal %s: %s", c.Title, row.Name,
						number(row.ratioAt(near)), number(row.Ratio), verdict))
				}
			}
			switch {
			case row.Goal == 0:
			case row.met():
				met++
			default:
				missed = append(missed, fmt.Sprintf("%s, %s: %s %s more than natively, goal %s", c.Title, row.Name,
					number(row.cost()), c.Unit, number(row.Goal)))
			}
		}
	}
	for _, g := range r.Grids {
		for i := range g.Judged {
			if j := &g.Judged[i]; j.met() {
				met++
			} else {
				missed = append(missed, g.Title+", "+j.String())
			}
		}
	}
	return met, missed
}

func (s *save) cells() []string {
	return []string{fmt.Sprint(s.MiB), s.Data, s.Snapshot, s.Compress}
}

func tableOfSaves(out *strings.Builder, saves []*save) {
	last := saves[len(saves)-1]
	fmt.Fprintf(out, "\n## Checkpoint\n\n    %s\n\n", last.Commands[0])
	head(out, "MiB a rank", "data", "snapshot", "compress", "stopped, ms", "committed, s", "dd, s",
		"committed / dd", "image, MiB a rank", "image / data")
	for _, s := range saves {
		ms := pairwise(s.Stopped, s.Stopped, func(a, _ float64) float64 { return a * 1000 })
		line(out, append(s.cells(), spread(ms), spread(s.Committed), spread(s.DD),
			number(pairwise(s.Committed, s.DD, over).median()), number(s.Image.median()),
			number(s.Image.median()/float64(s.MiB)))...)
	}
}

func tableOfRestarts(out *strings.Builder, saves []*save) {
	last := saves[len(saves)-1]
	fmt.Fprintf(out, "\n## Restart\n\n    %s\n\n", last.Commands[1])
	head(out, "MiB a rank", "data", "snapshot", "compress", "restart, s", "read, s", "cold restart, s", "cold read, s",
		"touch, s")
	for _, s := range saves {
		line(out, append(s.cells(), spread(s.Warm), spread(s.WarmRead), spread(s.Cold), spread(s.ColdRead),
			spread(s.Touched))...)
	}
}
