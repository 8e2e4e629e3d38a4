// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/store"
)

func init() { register(newDiffCmd) }

func newDiffCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "diff DIR[@EPOCH] [DIR[@EPOCH]]",
		GroupID: groupSaved,
		Short:   "Show how much changed between two epochs",
		Long: `Compare the memory of each rank in two epochs, page by page, and say which sections differ. The images may
be compressed in different ways. With one argument, compare the epoch with the committed one before it.

"same" is data that is equal in both; "changed" differs; "added" and "removed" is data in regions that
only the newer or only the older epoch has. The share that changed is what an incremental checkpoint
would have to write.`,
		Example: `  ckptctl diff ckpt
  ckptctl diff ckpt@2 ckpt@5 --json`,
		Args: cobra.RangeArgs(1, 2),
	}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		report, err := diff(cmd.Context(), args)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), report)
		}
		return report.print(cmd.OutOrStdout())
	}
	return cmd
}

// diffReport is what `diff` prints.
type diffReport struct {
	From  string     `json:"from"`
	To    string     `json:"to"`
	Ranks []diffRank `json:"ranks"`
}

type diffRank struct {
	Rank     int           `json:"rank"`
	Same     uint64        `json:"same"`
	Changed  uint64        `json:"changed"`
	Added    uint64        `json:"added"`
	Removed  uint64        `json:"removed"`
	Sections []diffSection `json:"sections"`
}

type diffSection struct {
	Name   string `json:"name"`
	Before int64  `json:"before"` // -1: not there
	After  int64  `json:"after"`
}

// epochRef is an epoch of a directory.
type epochRef struct {
	store    *store.Store
	manifest *store.Manifest
}

func (e *epochRef) String() string { return fmt.Sprintf("%s@%d", e.store.Dir(), e.manifest.Epoch) }

func resolveEpoch(spec string) (*epochRef, error) {
	s, n, err := store.Resolve(spec)
	if err != nil {
		return nil, err
	}
	m, err := s.Manifest(n)
	return &epochRef{s, m}, err
}

// before finds the committed epoch before e.
func (e *epochRef) before() (*epochRef, error) {
	list, err := e.store.Epochs()
	if err != nil {
		return nil, err
	}
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Number < e.manifest.Epoch && list[i].Committed() {
			return &epochRef{e.store, list[i].Manifest}, nil
		}
	}
	return nil, fmt.Errorf("%v: %w before it to compare with", e, store.ErrNone)
}

func diff(ctx context.Context, args []string) (*diffReport, error) {
	b, err := resolveEpoch(args[len(args)-1])
	if err != nil {
		return nil, err
	}
	var a *epochRef
	if len(args) == 2 {
		a, err = resolveEpoch(args[0])
	} else {
		a, err = b.before()
	}
	if err != nil {
		return nil, err
	}
	if a.manifest.Ranks != b.manifest.Ranks || a.manifest.ProcessCount() != b.manifest.ProcessCount() {
		return nil, fmt.Errorf("%v has %d ranks and %v has %d: they are not epochs of one job",
			a, a.manifest.Ranks, b, b.manifest.Ranks)
	}
	r := &diffReport{From: a.String(), To: b.String()}
	for rank := range a.manifest.ProcessCount() {
		line, err := diffImages(ctx, a, b, rank)
		if err != nil {
			return nil, err
		}
		r.Ranks = append(r.Ranks, line)
	}
	return r, nil
}

func diffImages(ctx context.Context, a, b *epochRef, rank int) (diffRank, error) {
	fa, err := a.store.OpenImage(a.manifest, rank)
	if err != nil {
		return diffRank{}, err
	}
	defer func() { _ = fa.Close() }()
	fb, err := b.store.OpenImage(b.manifest, rank)
	if err != nil {
		return diffRank{}, err
	}
	defer func() { _ = fb.Close() }()
	d, err := image.Diff(ctx, fa, fb)
	line := diffRank{Rank: rank, Same: d.Same, Changed: d.Changed, Added: d.Added, Removed: d.Removed,
		Sections: []diffSection{}}
	for _, s := range d.Sections {
		line.Sections = append(line.Sections, diffSection(s))
	}
	return line, err
}

func (r *diffReport) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintf(tw, "from %s to %s\n", r.From, r.To)
	_, _ = fmt.Fprintln(tw, "RANK\tSAME\tCHANGED\tADDED\tREMOVED\tTO WRITE\tSECTIONS THAT DIFFER")
	for _, d := range r.Ranks {
		share := "-"
		if all := d.Same + d.Changed + d.Added; all > 0 {
			share = fmt.Sprintf("%.1f%%", 100*float64(d.Changed+d.Added)/float64(all))
		}
		sections := ""
		for i, s := range d.Sections {
			if i > 0 {
				sections += ", "
			}
			sections += s.Name
		}
		_, _ = fmt.Fprintf(tw, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Rank, sizeText(d.Same), sizeText(d.Changed),
			sizeText(d.Added), sizeText(d.Removed), share, sections)
	}
	return tw.Flush()
}
