// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt/store"
)

func init() { register(newReportCmd) }

func newReportCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "report DIR[@EPOCH]",
		GroupID: groupSaved,
		Short:   "Write a page about a job's checkpoints, with plots",
		Long: `Write an HTML page about the checkpoints in a directory: what each cost (the time for which the program stood still,
the stages, the whole time), how large it is, how fast it was written, and how the ranks of the newest epoch, or of the
epoch that is given, differ. The page is one file. It loads nothing and runs no script, so it can be mailed, or kept
with the results.

The times are those of the manifests and of history.jsonl, so epochs that are removed are in it too. The plots show
the newest --last epochs.`,
		Example: `  ckptctl report ckpt --out ckpt.html
  ckptctl report ckpt@3 --out epoch3.html --force`,
		Args: cobra.ExactArgs(1),
	}
	out := cmd.Flags().StringP("out", "o", "", "`file` to write")
	force := cmd.Flags().Bool("force", false, "replace the file if it is there")
	last := cmd.Flags().Int("last", 100, "epochs to show")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case *out == "":
			return usagef("--out FILE says where the page shall be")
		case *last < 1:
			return usagef("--last %d: at least one epoch", *last)
		}
		dir, only, err := store.SplitSpec(args[0])
		if err != nil {
			return err
		}
		list, err := history(dir, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		p, err := reportPage(dir, list, only, *last, time.Now())
		if err != nil {
			return err
		}
		return orForce(writeOutput(*out, p, *force))
	}
	return cmd
}

//go:embed report.html
var reportText string

var reportTemplate = template.Must(template.New("report").Parse(reportText))

// reportData is what the page shows.
type reportData struct {
	Title, Dir, Program, Made string
	Facts                     [][2]string
	Plots                     []reportPlot
	Ranks                     []reportPlot // of one epoch
	Of                        string       // that epoch
	Epochs                    []reportRow
	Left                      int // epochs that are not shown
}

type reportPlot struct {
	Title, Note string
	Legend      []series0
	SVG         template.HTML // made by plot.svg, which escapes
}

type series0 struct{ Class, Name string }

type reportRow struct {
	Epoch                                  int
	Time, State, Size, Memory, Stop, Total string
	Rate, Ranks                            string
	Needs, Levels                          string // epochs with parts of it; levels that are complete
}

// stagesShown are the stages in the order in which they are, and as the plots show them.
var stagesShown = []string{"agree", "close", "stop", "drain", "snapshot", "write"}

func reportPage(dir string, list []store.History, only, last int, now time.Time) ([]byte, error) {
	of := list[len(list)-1]
	if only != 0 {
		i := slices.IndexFunc(list, func(h store.History) bool { return h.Epoch == only })
		if i < 0 {
			return nil, fmt.Errorf("%s: %w: nothing is known of epoch %d", dir, store.ErrNone, only)
		}
		of = list[i]
	}
	left := max(len(list)-last, 0)
	list = list[left:]
	newest := list[len(list)-1]
	full, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	d := reportData{Title: "Checkpoints of " + filepath.Base(newest.Program), Dir: full, Left: left,
		Program: strings.Join(append([]string{newest.Program}, newest.Args[min(1, len(newest.Args)):]...), " "),
		Made:    now.Format("2006-01-02 15:04:05 MST"), Of: fmt.Sprintf("epoch %d", of.Epoch)}
	d.Facts = facts(list)
	for _, p := range epochPlots(list) {
		d.Plots = append(d.Plots, p.data())
	}
	for _, p := range rankPlots(&of) {
		d.Ranks = append(d.Ranks, p.data())
	}
	for i := len(list) - 1; i >= 0; i-- {
		d.Epochs = append(d.Epochs, rowOf(&list[i]))
	}
	var b bytes.Buffer
	if err := reportTemplate.Execute(&b, d); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (p *plot) data() reportPlot {
	r := reportPlot{Title: p.title, Note: p.note, SVG: template.HTML(p.svg())}
	for _, s := range p.series {
		r.Legend = append(r.Legend, series0{s.class, s.name})
	}
	return r
}

// sums of an epoch.
func sizes(h *store.History) (stored, memory float64) {
	for _, im := range h.Images {
		stored += float64(im.Bytes)
		memory += float64(im.Payload)
	}
	return stored, memory
}

// stageSeconds is how long the ranks were in a stage: the longest. NaN: not known.
func stageSeconds(h *store.History, stage string) float64 {
	longest := math.NaN()
	for _, im := range h.Images {
		if s := phaseOf(&im, stage); !math.IsNaN(s) && !(s <= longest) {
			longest = s
		}
	}
	return longest
}

func phaseOf(im *store.Image, stage string) float64 {
	for _, p := range im.Phases {
		if p.Name == stage {
			return p.Seconds
		}
	}
	return math.NaN()
}

// bandwidth is how fast an epoch was written, or NaN.
func bandwidth(h *store.History) float64 {
	stored, _ := sizes(h)
	if s := stageSeconds(h, "write"); s > 0 {
		return stored / s
	}
	return math.NaN()
}

func facts(list []store.History) [][2]string {
	newest := &list[len(list)-1]
	ranks := fmt.Sprint(newest.Ranks)
	if newest.Processes != 0 {
		ranks = fmt.Sprintf("%d in %d processes", newest.Ranks, newest.Processes)
	}
	nodes := map[string]bool{}
	for _, im := range newest.Images {
		nodes[im.Host] = true
	}
	stops := []float64{}
	for i := range list {
		if list[i].StopSeconds > 0 {
			stops = append(stops, list[i].StopSeconds)
		}
	}
	out := [][2]string{{"ranks", fmt.Sprintf("%s on %d nodes", ranks, len(nodes))}, {"MPI", mpiText(newest.MPI)},
		{"newest epoch", fmt.Sprintf("%d, %s", newest.Epoch, newest.Time.Local().Format("2006-01-02 15:04:05"))}}
	if len(nodes) == 1 {
		out[0][1] = ranks + " on one node"
	}
	if len(stops) > 0 {
		slices.Sort(stops)
		out = append(out, [2]string{"the program stood still", fmt.Sprintf("%s in the middle, %s at most", secondsText(stops[len(stops)/2]), secondsText(stops[len(stops)-1]))})
	}
	return out
}

// epochPlots are those that have an epoch a group.
func epochPlots(list []store.History) []*plot {
	var names []string
	for i := range list {
		names = append(names, fmt.Sprint(list[i].Epoch))
	}
	of := func(f func(*store.History) float64) []float64 {
		var v []float64
		for i := range list {
			v = append(v, f(&list[i]))
		}
		return v
	}
	still := &plot{title: "Stop: for how long the program stood still", note: "the rank on which it was longest, by epoch", groups: names, format: secondsText, base: 10,
		series: []series{{"stood still", "s0", of(func(h *store.History) float64 { return h.StopSeconds })}}}
	stages := &plot{title: "Stages", note: "the longest of all ranks in each stage, by epoch; while it is written the program runs", groups: names, stacked: true, format: secondsText, base: 10}
	for i, name := range stagesShown {
		v := of(func(h *store.History) float64 { return stageSeconds(h, name) })
		if slices.ContainsFunc(v, func(s float64) bool { return s > 0 }) {
			stages.series = append(stages.series, series{name, fmt.Sprintf("s%d", i), v})
		}
	}
	size := &plot{title: "Size", note: "memory in the images, and what it takes there, by epoch", groups: names, format: bytesText, base: 1024, series: []series{
		{"memory", "s6", of(func(h *store.History) float64 { _, m := sizes(h); return m })},
		{"images", "s0", of(func(h *store.History) float64 { s, _ := sizes(h); return s })}}}
	rate := &plot{title: "Write", note: "bytes of images a second, all ranks together, by epoch", groups: names, format: bandwidthText, base: 1024,
		series: []series{{"written", "s5", of(bandwidth)}}}
	out := []*plot{still}
	if len(stages.series) > 0 {
		out = append(out, stages)
	}
	out = append(out, size)
	if slices.ContainsFunc(rate.series[0].values, func(v float64) bool { return v > 0 }) {
		out = append(out, rate)
	}
	return out
}

// maxBars is how many ranks a plot shows one by one; of more, neighbours share a bar, with the longest of them.
const maxBars = 128

func rankPlots(h *store.History) []*plot {
	each := (len(h.Images) + maxBars - 1) / maxBars
	var names []string
	for i := 0; i < len(h.Images); i += each {
		name := fmt.Sprint(h.Images[i].Rank)
		if end := min(i+each, len(h.Images)) - 1; end > i {
			name += fmt.Sprintf("-%d", h.Images[end].Rank)
		}
		names = append(names, name)
	}
	of := func(f func(*store.Image) float64) []float64 {
		v := make([]float64, len(names))
		for i := range v {
			v[i] = math.NaN()
		}
		for i := range h.Images {
			if x := f(&h.Images[i]); !math.IsNaN(x) && !(x <= v[i/each]) {
				v[i/each] = x
			}
		}
		return v
	}
	who := "by rank"
	if h.Processes != 0 {
		who = "by process"
	}
	if each > 1 {
		who += fmt.Sprintf("; a bar is the longest of %d", each)
	}
	stages := func(title string, list ...string) *plot {
		p := &plot{title: title, note: who, groups: names, stacked: true, format: secondsText, base: 10}
		for _, name := range list {
			v := of(func(im *store.Image) float64 { return phaseOf(im, name) })
			if slices.ContainsFunc(v, func(s float64) bool { return s > 0 }) {
				p.series = append(p.series, series{name, fmt.Sprintf("s%d", slices.Index(stagesShown, name)), v})
			}
		}
		return p
	}
	var out []*plot
	for _, p := range []*plot{stages("Stop, drain and snapshot", "close", "stop", "drain", "snapshot"), stages("Write", "write")} {
		if len(p.series) > 0 {
			out = append(out, p)
		}
	}
	return append(out, &plot{title: "Size", note: who, groups: names, format: bytesText, base: 1024, series: []series{
		{"memory", "s6", of(func(im *store.Image) float64 { return float64(im.Payload) })},
		{"image", "s0", of(func(im *store.Image) float64 { return float64(im.Bytes) })}}})
}

func rowOf(h *store.History) reportRow {
	stored, memory := sizes(h)
	for _, im := range h.Images {
		memory += float64(im.Shared) // in other images
	}
	r := reportRow{Epoch: h.Epoch, Time: h.Time.Local().Format("2006-01-02 15:04:05"), State: "there", Size: bytesText(stored), Memory: bytesText(memory),
		Stop: "-", Total: "-", Rate: "-", Ranks: fmt.Sprint(h.Ranks)}
	if h.Gone {
		r.State = "removed"
	}
	if h.StopSeconds > 0 {
		r.Stop = secondsText(h.StopSeconds)
	}
	if h.TotalSeconds > 0 {
		r.Total = secondsText(h.TotalSeconds)
	}
	if v := bandwidth(h); v > 0 {
		r.Rate = bandwidthText(v)
	}
	r.Ranks = cmp.Or(r.Ranks, "-")
	r.Needs, r.Levels = needsText(h.Needs), "-"
	if h.Levels != nil {
		line := epochLine{Level: h.Level, Levels: h.Levels.Done}
		r.Levels = line.levelText()
		for _, t := range h.Levels.Took {
			r.Levels += fmt.Sprintf(", L%d in %s", t.Level, secondsText(t.Seconds))
		}
	}
	return r
}
