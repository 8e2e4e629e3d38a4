// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt/lease"
	"github.com/libckpt/libckpt/ckpt/objects"
	"github.com/libckpt/libckpt/ckpt/store"
)

func init() { register(newLsCmd) }

func newLsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls DIR[@EPOCH]",
		GroupID: groupSaved,
		Short:   "List the epochs of a directory",
		Long: `List the epochs of a directory, oldest first.

A "committed" epoch has its manifest: a job can be restarted from it. An "incomplete" epoch is being written, or
was left behind by a crash: it counts for nothing, and ` + "`ckptctl gc`" + ` removes it later. A "damaged" epoch has a
manifest that is not as it was written. Of a "lost" one a file is gone or cut short, or of an epoch that it needs;
or a restart has found that its images are on none of the nodes any more.
Images are not read; ` + "`ckptctl verify`" + ` does that.

With ` + "`ckptrun --full every N`" + `, an epoch has what changed since the one before, and NEEDS older epochs for the rest:
they are kept as long as it is. With local directories (ckptrun --local) LEVELS are those that are complete.
With ckptrun --mtbf or --overhead it says which period was chosen, and from which costs.

Exit status 3 when no epoch is committed.` + objectsHelp,
		Example: `  ckptctl ls ckpt
  ckptctl ls ckpt@3 --json`,
		Args: cobra.ExactArgs(1),
	}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := listAt(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if *asJSON {
			err = printJSON(cmd.OutOrStdout(), list)
		} else {
			err = list.print(cmd.OutOrStdout())
		}
		if err != nil {
			return err
		}
		for _, e := range list.Epochs {
			if e.State == stateCommitted {
				return nil
			}
		}
		return fmt.Errorf("%s: %w", args[0], store.ErrNone)
	}
	return cmd
}

// States of an epoch, as printed.
const (
	stateCommitted  = "committed"
	stateIncomplete = "incomplete"
	stateDamaged    = "damaged"
	stateLost       = "lost" // committed, but files of it, or of an epoch that it needs, are gone or cut short
)

// epochList is what `ls` prints.
type epochList struct {
	Dir    string      `json:"dir"`
	Owner  string      `json:"owner,omitempty"` // the job that has the directory, unless it is known to be dead
	Epochs []epochLine `json:"epochs"`
}

type epochLine struct {
	Epoch int       `json:"epoch"`
	State string    `json:"state"`
	Time  time.Time `json:"time"`
	Ranks int       `json:"ranks,omitempty"`
	// Processes is how many have them, where that is another number.
	Processes int    `json:"processes,omitempty"`
	Mode      string `json:"mode,omitempty"` // "regions": memory of ranks, and no processes
	Bytes     int64  `json:"bytes,omitempty"`
	Payload   uint64 `json:"payload,omitempty"`
	MPI       string `json:"mpi,omitempty"`
	Shared    uint64 `json:"shared,omitempty"` // of the memory, in other epochs
	Same      uint64 `json:"same,omitempty"`   // of the memory, the same as another process's, and in its image
	Unread    uint64 `json:"unread,omitempty"` // of that, not read: the kernel had noted what was written
	Parent    int    `json:"parent,omitempty"`
	Needs     []int  `json:"needs,omitempty"`    // epochs with a part of its memory
	NeededBy  []int  `json:"neededBy,omitempty"` // epochs that cannot be without this one
	Lost      string `json:"lost,omitempty"`     // what of it, or of those that it needs, is not there
	Program   string `json:"program,omitempty"`
	Path      string `json:"path"`
	Error     string `json:"error,omitempty"`
	// Level is the highest that the images have reached, 4 the directory itself; Levels are all that are complete.
	Level  int      `json:"level,omitempty"`
	Levels []int    `json:"levels,omitempty"`
	Failed []string `json:"notRaised,omitempty"` // levels that it could not be raised to, and why
	// Chosen is the period that held when it was committed, where it is chosen by costs.
	Chosen *store.Chosen `json:"chosen,omitempty"`
}

// listAt lists a directory, or a place in an object store.
func listAt(ctx context.Context, spec string) (*epochList, error) {
	if objects.Is(spec) {
		return listObjects(ctx, spec)
	}
	return listEpochs(spec)
}

// neededBy says of epochs which ones are built upon them.
func neededBy(epochs []store.Epoch) map[int][]int {
	by := map[int][]int{}
	for i := range epochs {
		if m := epochs[i].Manifest; m != nil {
			for _, n := range m.Depends() {
				by[n] = append(by[n], m.Epoch)
			}
		}
	}
	return by
}

func listEpochs(spec string) (*epochList, error) {
	dir, only, err := store.SplitSpec(spec)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(dir)
	if err != nil {
		return nil, err
	}
	epochs, err := s.Epochs()
	if err != nil {
		return nil, err
	}
	list := &epochList{Dir: dir, Epochs: []epochLine{}}
	if o, err := lease.Look(dir); err == nil && o.Owned && o.Life != lease.Dead {
		list.Owner = o.Owner.String()
	}
	neededBy := neededBy(epochs)
	for i := range epochs {
		if e := &epochs[i]; only == 0 || e.Number == only {
			line := describeEpoch(e)
			line.NeededBy = neededBy[e.Number]
			if e.Committed() {
				if err := s.Whole(e.Manifest); err != nil {
					line.State, line.Lost = stateLost, err.Error()
				}
			}
			list.Epochs = append(list.Epochs, line)
		}
	}
	return list, nil
}

func describeEpoch(e *store.Epoch) epochLine {
	l := epochLine{Epoch: e.Number, State: stateIncomplete, Time: e.Changed, Path: e.Dir}
	switch {
	case e.Err != nil:
		l.State, l.Error = stateDamaged, e.Err.Error()
	case e.Committed():
		m := e.Manifest
		l.State, l.Ranks, l.Processes, l.Parent, l.Program = stateCommitted, m.Ranks, m.Processes, m.Parent, m.Program
		l.Needs = m.Needs
		l.MPI = mpiText(m.MPI)
		l.Mode, l.Chosen = m.Mode, m.Chosen
		describeLevels(&l, m)
		if l.Lost = m.Lost(); l.Lost != "" {
			l.State = stateLost
		}
		for _, im := range m.Images {
			l.Bytes += im.Bytes
			l.Payload += im.Payload
			l.Shared += im.Shared - im.Same
			l.Same += im.Same
			l.Unread += im.Unread
		}
	}
	return l
}

// needsText is a short list of epochs; "-" stands for none.
func needsText(list []int) string {
	if len(list) == 0 {
		return "-"
	}
	return ranksText(list)
}

// describeLevels says where the images are.
func describeLevels(l *epochLine, m *store.Manifest) {
	r := m.Levels
	if r == nil {
		return
	}
	l.Level, l.Levels = m.Level, r.Done
	for _, f := range r.Failed {
		l.Failed = append(l.Failed, fmt.Sprintf("level %d: %s", f.Level, f.Why))
	}
}

// levelText is the column of levels: all that are complete.
func (e *epochLine) levelText() string {
	if e.Level == 0 {
		return ""
	}
	var list []string
	for _, level := range e.Levels {
		list = append(list, fmt.Sprint(level))
	}
	return "L" + strings.Join(list, "+")
}

func (l *epochList) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	leveled := slices.ContainsFunc(l.Epochs, func(e epochLine) bool { return e.Level > 0 })
	column := func(text string) string {
		if leveled {
			return text + "\t"
		}
		return ""
	}
	_, _ = fmt.Fprintln(tw, "EPOCH\tSTATE\tTIME\tRANKS\tSIZE\tMEMORY\tNEEDS\t"+column("LEVELS")+"MPI\tPROGRAM")
	for _, e := range l.Epochs {
		when := e.Time.Local().Format("2006-01-02 15:04:05")
		if e.State == stateCommitted || e.State == stateLost {
			ranks := fmt.Sprint(e.Ranks)
			if e.Processes != 0 {
				ranks = fmt.Sprintf("%d/%d", e.Ranks, e.Processes)
			}
			_, _ = fmt.Fprintf(tw, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s%s\t%s\n", e.Epoch, e.State, when, ranks,
				sizeText(e.Bytes), sizeText(e.Payload+e.Shared+e.Same), needsText(e.Needs), column(e.levelText()), e.MPI, e.Program)
		} else {
			_, _ = fmt.Fprintf(tw, "%d\t%s\t%s\t\t\t\t\t\t\n", e.Epoch, e.State, when)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, e := range l.Epochs {
		for _, why := range e.Failed {
			_, _ = fmt.Fprintf(w, "epoch %d was not raised to %s\n", e.Epoch, why)
		}
		if e.Error != "" {
			_, _ = fmt.Fprintf(w, "epoch %d: %s\n", e.Epoch, e.Error)
		}
		if e.Lost != "" {
			_, _ = fmt.Fprintf(w, "epoch %d cannot be restarted from: %s\n", e.Epoch, e.Lost)
		}
		if len(e.NeededBy) > 0 {
			_, _ = fmt.Fprintf(w, "epoch %d is kept as long as there is epoch %s\n", e.Epoch, needsText(e.NeededBy))
		}
	}
	if i := len(l.Epochs) - 1; i >= 0 && l.Epochs[i].Chosen != nil {
		c := l.Epochs[i].Chosen
		_, _ = fmt.Fprintf(w, "chosen when epoch %d was made: %s (%s)\n", l.Epochs[i].Epoch, chosenText(c.PeriodSeconds, c.Levels), c.Why)
	}
	if l.Owner != "" {
		_, _ = fmt.Fprintf(w, "in use by %s; `ckptctl status %s` asks it\n", l.Owner, l.Dir)
	}
	return nil
}
