// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt/control"
)

func init() { register(newStatusCmd) }

func newStatusCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "status DIR",
		GroupID: groupLive,
		Short:   "Say what a running job is doing",
		Long: `Say what the job that runs in a directory is doing: its state, its newest epoch, how the last
checkpoint ended (and why, if it was refused), and what each rank is doing; with ckptrun --mtbf or
--overhead also which period is chosen, from which costs, and when the next checkpoint comes.`,
		Example: `  ckptctl status ckpt
  ckptctl status ckpt --json`,
		Args: cobra.ExactArgs(1),
	}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		job, err := findJob(args[0])
		if err != nil {
			return err
		}
		status, err := job.client.Status(cmd.Context())
		if err != nil {
			return job.explain(err)
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), status)
		}
		return printStatus(cmd.OutOrStdout(), job, status, time.Now())
	}
	return cmd
}

// printStatus prints all that is known of a job, for people.
func printStatus(w io.Writer, job *liveJob, s control.Status, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) // errors come out in Flush
	}
	r := job.record
	line("program", "%s", strings.Join(append([]string{r.Program}, r.Args...), " "))
	line("runs", "%d ranks, rank 0 is process %d on %s, for %s", r.Ranks, r.PID, r.Host, durationText(now.Sub(s.Started)))
	if mpi := mpiText(r.MPI); mpi != "" {
		line("MPI", "%s", mpi)
	}
	line("state", "%s", stateText(s))
	if text := writingText(s, now); text != "" {
		line("images", "%s", text)
	}
	if s.Requests > 0 {
		line("asked for", "by %d", s.Requests)
	}
	line("newest epoch", "%s", epochText(s.Epoch))
	if s.Last != nil {
		line("last checkpoint", "%s", outcomeText(*s.Last, now))
		for _, reason := range s.Last.Refused {
			line("", "- %s", reason)
		}
	}
	if s.Raising != "" {
		line("is raised", "%s", s.Raising)
	}
	if s.NotRaised != "" {
		line("not raised", "%s", s.NotRaised)
	}
	if c := s.Chosen; c != nil {
		next := "now"
		if wait := c.Next.Sub(now); wait > 0 {
			next = "in " + durationText(wait.Round(100*time.Millisecond))
		}
		line("chosen", "%s, the next one %s", chosenText(c.PeriodSeconds, c.Levels), next)
		line("", "%s", c.Why)
	}
	for i, hold := range s.Holds {
		name := ""
		if i == 0 {
			name = "held back by"
		}
		line(name, "%s", hold)
	}
	line("since the start", "%d committed, %d refused, %d failed", s.Counters.Committed, s.Counters.Refused, s.Counters.Failed)
	if err := t.Flush(); err != nil {
		return err
	}
	if len(s.Ranks) == 0 {
		return nil
	}
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "\nRANK\tHOST\tPID\tPHASE\tDONE\tRATE\tDETAIL")
	for _, r := range s.Ranks {
		_, _ = fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Rank, orDash(r.Host), orDash(pidText(r.PID)), r.Phase,
			orDash(doneText(r)), orDash(rateText(r)), r.Detail)
	}
	return t.Flush()
}

// stateText is the state of a job in a few words.
func stateText(s control.Status) string {
	text := string(s.State)
	if s.Phase != "" {
		text += ": " + s.Phase
	}
	if s.Pending > 0 {
		text += fmt.Sprintf(" (epoch %d)", s.Pending)
	}
	return text
}

// chosenText says how often checkpoints are asked for, and raised.
func chosenText(period float64, levels string) string {
	if period == 0 {
		return "no period yet"
	}
	text := "a checkpoint every " + durationText(secondsOf(period))
	if levels != "" {
		text += ", levels " + levels
	}
	return text
}

func epochText(epoch int) string {
	if epoch == 0 {
		return "none yet"
	}
	return fmt.Sprint(epoch)
}

// outcomeText says how a checkpoint ended; the reasons of a refusal follow on lines of their own.
func outcomeText(o control.Outcome, now time.Time) string {
	ago := durationText(now.Sub(o.When).Round(time.Second)) + " ago"
	switch {
	case len(o.Refused) > 0:
		return "refused " + ago + ":"
	case o.Error != "":
		return "failed " + ago + ": " + o.Error
	}
	return fmt.Sprintf("epoch %d, %s in %s, %s", o.Epoch, sizeText(o.Bytes), durationText(secondsOf(o.Seconds)), ago)
}

func pidText(pid int) string {
	if pid == 0 {
		return ""
	}
	return fmt.Sprint(pid)
}

func doneText(r control.RankStatus) string {
	switch {
	case r.Total > 0:
		return fmt.Sprintf("%s of %s", sizeText(r.Done), sizeText(r.Total))
	case r.Done > 0:
		return sizeText(r.Done)
	}
	return ""
}

// rateText is the speed of a rank, and how long it will need for the rest when that is known.
func rateText(r control.RankStatus) string {
	if r.Rate <= 0 {
		return ""
	}
	text := sizeText(uint64(r.Rate)) + "/s"
	if r.Total > r.Done {
		left := secondsOf(float64(r.Total-r.Done) / r.Rate)
		text += ", " + durationText(left.Round(time.Second)) + " left"
	}
	return text
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
