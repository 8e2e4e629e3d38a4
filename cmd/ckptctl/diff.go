// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
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
would have to write. With --regions, show the same for each mapping that is not equal in both.`,
		Example: `  ckptctl diff ckpt
  ckptctl diff ckpt --regions
  ckptctl diff ckpt@2 ckpt@5 --json`,
		Args: cobra.RangeArgs(1, 2),
	}
	asJSON := addJSON(cmd)
	byRegion := cmd.Flags().Bool("regions", false, "show which mappings differ, and by how much")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		report, err := diff(cmd.Context(), args, *byRegion)
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
	Regions  []diffRegion  `json:"regions,omitempty"` // with --regions: those that differ
}

// diffRegion is a mapping of either image.
type diffRegion struct {
	Start   string `json:"start"`
	End     string `json:"end"`
	Name    string `json:"name,omitempty"`
	Same    uint64 `json:"same"`
	Changed uint64 `json:"changed"`
	Added   uint64 `json:"added"`
	Removed uint64 `json:"removed"`
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
	return &epochRef{s.WithLocal(os.Getenv(localName)), m}, err
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

func diff(ctx context.Context, args []string, byRegion bool) (*diffReport, error) {
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
		line, err := diffImages(ctx, a, b, rank, byRegion)
		if err != nil {
			return nil, err
		}
		r.Ranks = append(r.Ranks, line)
	}
	return r, nil
}

func diffImages(ctx context.Context, a, b *epochRef, rank int, byRegion bool) (diffRank, error) {
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
	changes := regionChanges{a: fa, b: fb}
	each := changes.add
	if !byRegion {
		each = nil
	}
	d, err := image.DiffEach(ctx, fa, fb, each)
	line := diffRank{Rank: rank, Same: d.Same, Changed: d.Changed, Added: d.Added, Removed: d.Removed,
		Sections: []diffSection{}}
	for _, s := range d.Sections {
		line.Sections = append(line.Sections, diffSection(s))
	}
	line.Regions = changes.list
	return line, err
}

// regionChanges sorts changes by mapping.
type regionChanges struct {
	a, b *image.File
	list []diffRegion
	at   *image.Region // that of the last of list
	same uint64        // in a mapping of which nothing else is known yet
	then *image.Region // that mapping
}

func (c *regionChanges) add(e image.Extent, what image.Change) {
	for at := e.Start; at < e.End; {
		r := regionAt(c.b, at)
		if r == nil {
			r = regionAt(c.a, at)
		}
		if r == nil {
			return
		}
		n := min(e.End, r.End) - at
		at += n
		if c.then != r {
			c.then, c.same = r, 0
		}
		if what == image.Same && c.at != r {
			c.same += n
			continue
		}
		if c.at != r {
			c.at = r
			c.list = append(c.list, diffRegion{Start: fmt.Sprintf("0x%x", r.Start), End: fmt.Sprintf("0x%x", r.End),
				Name: strings.TrimSpace(r.Name + " " + r.Path), Same: c.same})
		}
		l := &c.list[len(c.list)-1]
		*[...]*uint64{&l.Same, &l.Changed, &l.Added, &l.Removed}[what] += n
	}
}

// regionAt is the mapping of an image that has the address; nil: there is none.
func regionAt(f *image.File, addr uint64) *image.Region {
	list := f.Regions()
	i := sort.Search(len(list), func(i int) bool { return list[i].End > addr })
	if i == len(list) || list[i].Start > addr {
		return nil
	}
	return &list[i]
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
	if err := tw.Flush(); err != nil {
		return err
	}
	return r.printRegions(w)
}

func (r *diffReport) printRegions(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	head := "\nRANK\tREGION\tSAME\tCHANGED\tADDED\tREMOVED\tNAME\n"
	for _, d := range r.Ranks {
		for _, l := range d.Regions {
			_, _ = fmt.Fprintf(tw, "%s%d\t%s-%s\t%s\t%s\t%s\t%s\t%s\n", head, d.Rank, l.Start, l.End, sizeText(l.Same),
				sizeText(l.Changed), sizeText(l.Added), sizeText(l.Removed), l.Name)
			head = ""
		}
	}
	return tw.Flush()
}
