// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt/lease"
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
manifest that is not as it was written. Images are not read; ` + "`ckptctl verify`" + ` does that.

Exit status 3 when no epoch is committed.`,
		Example: `  ckptctl ls ckpt
  ckptctl ls ckpt@3 --json`,
		Args: cobra.ExactArgs(1),
	}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := listEpochs(args[0])
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
	Parent    int    `json:"parent,omitempty"`
	Program   string `json:"program,omitempty"`
	Path      string `json:"path"`
	Error     string `json:"error,omitempty"`
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
	for i := range epochs {
		if only == 0 || epochs[i].Number == only {
			list.Epochs = append(list.Epochs, describeEpoch(&epochs[i]))
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
		l.MPI = mpiText(m.MPI)
		l.Mode = m.Mode
		for _, im := range m.Images {
			l.Bytes += im.Bytes
			l.Payload += im.Payload
		}
	}
	return l
}

func (l *epochList) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "EPOCH\tSTATE\tTIME\tRANKS\tSIZE\tMEMORY\tMPI\tPROGRAM")
	for _, e := range l.Epochs {
		when := e.Time.Local().Format("2006-01-02 15:04:05")
		if e.State == stateCommitted {
			ranks := fmt.Sprint(e.Ranks)
			if e.Processes != 0 {
				ranks = fmt.Sprintf("%d/%d", e.Ranks, e.Processes)
			}
			_, _ = fmt.Fprintf(tw, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.Epoch, e.State, when, ranks,
				sizeText(e.Bytes), sizeText(e.Payload), e.MPI, e.Program)
		} else {
			_, _ = fmt.Fprintf(tw, "%d\t%s\t%s\t\t\t\t\t\n", e.Epoch, e.State, when)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, e := range l.Epochs {
		if e.Error != "" {
			_, _ = fmt.Fprintf(w, "epoch %d: %s\n", e.Epoch, e.Error)
		}
	}
	if l.Owner != "" {
		_, _ = fmt.Fprintf(w, "in use by %s; `ckptctl status %s` asks it\n", l.Owner, l.Dir)
	}
	return nil
}
