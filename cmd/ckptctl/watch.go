// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"

	"github.com/libckpt/libckpt/ckpt/control"
)

func init() { register(newWatchCmd) }

func newWatchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "watch DIR",
		GroupID: groupLive,
		Short:   "Show live what a running job is doing",
		Long: `Show live what the job that runs in a directory is doing, until it ends or the command is interrupted.

On a terminal: a line for the job and one for each rank, with its phase, progress, rate and what the rank waits
for. Elsewhere: a line for each change. While images are written, the line for the job has what is done, the rate of all ranks
together, and when the slowest will be done; elsewhere than on a terminal every two seconds. With --json: the status that ` + "`ckptctl status --json`" + ` prints, one
object per line, once per period; while images are written it has "writing": bytes done, of how many, the rate, and the end.`,
		Example: `  ckptctl watch ckpt
  ckptctl watch ckpt --json --period 5s`,
		Args: cobra.ExactArgs(1),
	}
	asJSON := addJSON(cmd)
	period := cmd.Flags().Duration("period", 500*time.Millisecond, "how often to look")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *period < time.Millisecond {
			return usagef("--period %v: at least 1ms", *period)
		}
		job, err := findJob(args[0])
		if err != nil {
			return err
		}
		return job.watch(cmd.Context(), *period, newView(cmd.OutOrStdout(), *asJSON))
	}
	return cmd
}

// watch shows the job until it ends, or the user has seen enough; both are what was asked for.
func (j *liveJob) watch(ctx context.Context, period time.Duration, v view) error {
	var shown error
	err := j.client.Watch(ctx, period, func(s control.Status) bool {
		shown = v.show(s)
		return shown == nil
	})
	ended := connectionLost(err)
	v.end(ended)
	switch {
	case shown != nil:
		return shown
	case ended, ctx.Err() != nil:
		return nil
	}
	return j.explain(err)
}

// view is a way to show a stream of states.
type view interface {
	show(control.Status) error
	end(jobEnded bool)
}

func newView(w io.Writer, asJSON bool) view {
	if asJSON {
		return jsonView{json.NewEncoder(w)}
	}
	if f, ok := terminal(w); ok {
		return &tableView{progress: newScreen(f)}
	}
	return &lineView{w: w, now: time.Now}
}

type jsonView struct{ e *json.Encoder }

func (v jsonView) show(s control.Status) error { return v.e.Encode(s) }
func (v jsonView) end(bool)                    {}

// lineView prints what has changed.
type lineView struct {
	w     io.Writer
	now   func() time.Time
	state string
	ranks map[int]string
	wrote time.Time // when the progress of writing was printed
}

func (v *lineView) show(s control.Status) error {
	var out strings.Builder
	stamp := v.now().Format(time.TimeOnly)
	if text := jobText(s); text != v.state {
		fmt.Fprintf(&out, "%s %s\n", stamp, text)
		v.state = text
	}
	if text := writingText(s, v.now()); text == "" {
		v.wrote = v.now() // what takes no time is not told
	} else if v.now().Sub(v.wrote) >= writingEvery {
		fmt.Fprintf(&out, "%s %s\n", stamp, text)
		v.wrote = v.now()
	}
	if v.ranks == nil {
		v.ranks = make(map[int]string)
	}
	for _, r := range s.Ranks {
		text := r.Phase
		if r.Detail != "" {
			text += ": " + r.Detail
		}
		if text != v.ranks[r.Rank] {
			fmt.Fprintf(&out, "%s rank %d: %s\n", stamp, r.Rank, text)
			v.ranks[r.Rank] = text
		}
	}
	_, err := io.WriteString(v.w, out.String())
	return err
}

func (v *lineView) end(jobEnded bool) {
	if jobEnded {
		_, _ = fmt.Fprintf(v.w, "%s the job has ended\n", v.now().Format(time.TimeOnly))
	}
}

// tableView redraws a line for the job and one for each rank. What does not fit on the terminal is not
// shown.
type tableView struct {
	progress *mpb.Progress
	job      *row
	ranks    []*row
}

func (v *tableView) show(s control.Status) error {
	if v.job == nil {
		v.job = newRow(v.progress)
	}
	text := jobText(s)
	if writing := writingText(s, time.Now()); writing != "" {
		text += "; " + writing
	}
	v.job.set(text, 0, 0, "")
	for i, r := range s.Ranks {
		if i == len(v.ranks) {
			v.ranks = append(v.ranks, newRow(v.progress))
		}
		var more []string
		for _, text := range []string{doneText(r), rateText(r), r.Detail} {
			if text != "" {
				more = append(more, text)
			}
		}
		v.ranks[i].set(fmt.Sprintf("rank %-5d %-12s %-14s ", r.Rank, r.Host, r.Phase), r.Done, r.Total, " "+strings.Join(more, ", "))
	}
	return nil
}

func (v *tableView) end(jobEnded bool) {
	if v.job == nil {
		v.progress.Shutdown()
		return
	}
	if jobEnded {
		v.job.set("the job has ended", 0, 0, "")
	}
	for _, r := range append(v.ranks, v.job) {
		r.freeze()
	}
	v.progress.Wait()
}

// writingEvery is how often a line tells how far a long write is.
const writingEvery = 2 * time.Second

// writingText says how far the ranks are with their images, how fast, and when the last will be done at that rate; "" when
// none writes, or nothing is known yet.
func writingText(s control.Status, now time.Time) string {
	w := control.WritingOf(s.Ranks, now)
	if w == nil {
		return ""
	}
	text := fmt.Sprintf("writes %s of %s, %s/s", sizeText(w.Done), sizeText(w.Total), sizeText(uint64(w.Rate)))
	if w.End != nil {
		text += fmt.Sprintf(", done in %s, at %s", durationText(w.End.Sub(now)), w.End.Format(time.TimeOnly))
	}
	return text
}

// jobText is the line for the job.
func jobText(s control.Status) string {
	text := fmt.Sprintf("%s: %s; newest epoch: %s", orDash(s.Program), stateText(s), epochText(s.Epoch))
	if s.Last == nil {
		return text
	}
	switch {
	case len(s.Last.Refused) > 0:
		text += "; last checkpoint refused: " + strings.Join(s.Last.Refused, "; ")
	case s.Last.Error != "":
		text += "; last checkpoint failed: " + s.Last.Error
	}
	return text
}
