// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/ckpt/store"
)

func init() { register(newDuCmd) }

func newDuCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "du DIR[@EPOCH]",
		GroupID: groupSaved,
		Short:   "Say where the space of a checkpoint directory went",
		Long: `Say how much space each epoch takes, and for what: MEMORY is pages in images, META is the rest of them (threads,
objects, messages, the index), FILES is output files that are kept beside images, OTHER is manifests, and what is being
written or was left by a crash. DISK is what all that takes on disk; a file with several names counts once, in the oldest
epoch that has it.

Of jobs with local directories (ckptrun --local), images in that of this node count too, where it is known: CKPT_LOCAL, or
what the job was told. LOCAL is what an epoch takes there, with copies and parities; MEMORY and META are of images that are
there or in DIR, and images that are neither are named, with the nodes that had them first.

FREED is what ` + "`ckptctl gc --keep N`" + ` would give back of it: nothing of epochs that stay, and of others not the
blocks that are shared with files elsewhere, by links or clones. --ranks shows a line for each rank's image too.`,
		Example: `  ckptctl du ckpt
  ckptctl du ckpt --keep 1
  ckptctl du ckpt@3 --ranks --json`,
		Args: cobra.ExactArgs(1),
	}
	asJSON := addJSON(cmd)
	keep := cmd.Flags().Int("keep", 0, "committed epochs that would be kept (default: CKPT_KEEP, or 2)")
	ranks := cmd.Flags().Bool("ranks", false, "show each rank's image")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := keepGiven(cmd, keep); err != nil {
			return err
		}
		report, err := diskUse(args[0], *keep, true)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), report)
		}
		return report.print(cmd.OutOrStdout(), *ranks)
	}
	return cmd
}

// duReport is what `du` prints.
type duReport struct {
	Dir    string    `json:"dir"`
	Keep   int       `json:"keep"`
	Epochs []duEpoch `json:"epochs"`
	Disk   uint64    `json:"disk"`  // of the whole directory
	Local  uint64    `json:"local"` // in local directories that can be seen from here
	Other  uint64    `json:"other"` // of it beside the epochs: job.json, history, leases
	Freed  uint64    `json:"freed"`

	kinds bool
}

type duEpoch struct {
	Epoch  int      `json:"epoch"`
	State  string   `json:"state"`
	Memory uint64   `json:"memory"`
	Meta   uint64   `json:"meta"`
	Files  uint64   `json:"files"`
	Other  uint64   `json:"other"`
	Disk   uint64   `json:"disk"`
	Local  uint64   `json:"local,omitempty"`
	Freed  uint64   `json:"freed"`
	Away   *duAway  `json:"away,omitempty"`
	Ranks  []duRank `json:"ranks"`
	Errors []string `json:"errors,omitempty"`
}

// duAway is what of an epoch cannot be seen from here.
type duAway struct {
	Images int      `json:"images"`
	Bytes  int64    `json:"bytes"`
	Nodes  []string `json:"nodes"` // that had them first
}

type duRank struct {
	Rank   int               `json:"rank"`
	Bytes  int64             `json:"bytes"`
	Memory uint64            `json:"memory"`
	Meta   uint64            `json:"meta"`
	Kinds  map[string]uint64 `json:"kinds"` // stored bytes by the kind of chunk
	Files  uint64            `json:"files"`
}

// inode is a file, whatever its names are.
type inode struct{ dev, ino uint64 }

// space is what files take on disk.
type space struct {
	seen  map[inode]int // names met so far
	links map[inode]uint64
	disk  map[inode]uint64
}

func (s *space) add(st fs.FileInfo) (disk uint64, first bool) {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return uint64(st.Size()), true
	}
	id := inode{sys.Dev, sys.Ino}
	s.seen[id]++
	s.links[id], s.disk[id] = sys.Nlink, uint64(sys.Blocks)*512
	return s.disk[id], s.seen[id] == 1
}

func newSpace() *space {
	return &space{map[inode]int{}, map[inode]uint64{}, map[inode]uint64{}}
}

// diskUse adds up a directory. kinds: images are opened, so that it is known what is in them.
func diskUse(spec string, keep int, kinds bool) (*duReport, error) {
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
	if only != 0 && !slices.ContainsFunc(epochs, func(e store.Epoch) bool { return e.Number == only }) {
		return nil, fmt.Errorf("%s: %w: epoch %d is not there", dir, store.ErrNone, only)
	}
	plan, err := s.PlanRetire(keep)
	if err != nil {
		return nil, err
	}
	r := &duReport{Dir: dir, Keep: keep, Epochs: []duEpoch{}, kinds: kinds}
	all, gone := newSpace(), newSpace()
	for i := range epochs {
		e := &epochs[i]
		line, err := r.epoch(e, all, gone, slices.Contains(plan.Remove, e.Number))
		if err != nil {
			return nil, err
		}
		if only == 0 || only == e.Number {
			r.Epochs = append(r.Epochs, line)
		}
		r.Disk += line.Disk
		r.Local += line.Local
		r.Freed += line.Freed
	}
	r.Other, err = beside(dir, epochs, all)
	r.Disk += r.Other
	return r, err
}

// epoch adds up one epoch. goes: --keep would remove it.
func (r *duReport) epoch(e *store.Epoch, all, gone *space, goes bool) (duEpoch, error) {
	l := duEpoch{Epoch: e.Number, State: describeEpoch(e).State, Ranks: []duRank{}}
	if e.Err != nil {
		l.Errors = append(l.Errors, e.Err.Error())
	}
	ranks := map[int]*duRank{}
	err := filepath.WalkDir(e.Dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it is being removed
		}
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return nil // the same
		}
		disk, first := all.add(st)
		if first {
			l.Disk += disk
		}
		if goes {
			gone.add(st)
			if id := idOf(st); gone.seen[id] == int(gone.links[id]) || st.IsDir() { // all its names go
				l.Freed += disk
			}
		}
		if !st.Mode().IsRegular() {
			return nil
		}
		if r.kinds {
			l.file(path, st, ranks)
		}
		return nil
	})
	if e.Committed() && e.Manifest.Levels != nil {
		err = errors.Join(err, r.local(&l, e.Manifest, all, goes, ranks))
	}
	for _, n := range slices.Sorted(maps.Keys(ranks)) {
		l.Ranks = append(l.Ranks, *ranks[n])
	}
	return l, err
}

// local adds what an epoch has in local directories that can be seen from here, and names the rest.
func (r *duReport) local(l *duEpoch, m *store.Manifest, all *space, goes bool, ranks map[int]*duRank) error {
	seen := map[string]bool{}
	for n, d := range ranks {
		seen[store.ImageName(n)] = d.Bytes > 0
	}
	known := os.Getenv(localName)
	for _, place := range levels.Find(cmp.Or(known, m.Levels.Local), m.Levels.Set) {
		held, err := place.Inventory([]int{m.Epoch})
		if err != nil {
			return err
		}
		for _, h := range held {
			path := place.Path(h.Epoch, h.File)
			st, err := os.Lstat(path)
			if err != nil {
				continue // it is being removed
			}
			disk, first := all.add(st)
			if !first {
				disk = 0
			}
			l.Local += disk
			if goes && known != "" { // without it gc does not look there
				l.Freed += disk
			}
			if m.RankOf(h.File) >= 0 && !seen[h.File] && r.kinds {
				l.file(path, st, ranks)
			}
			seen[h.File] = true
		}
	}
	away := duAway{}
	for _, n := range m.Levels.Nodes {
		for _, f := range n.Files {
			if seen[f.Name] {
				continue
			}
			away.Images, away.Bytes = away.Images+1, away.Bytes+f.Bytes
			if !slices.Contains(away.Nodes, n.Name) {
				away.Nodes = append(away.Nodes, n.Name)
			}
		}
	}
	if away.Images > 0 {
		l.Away = &away
	}
	return nil
}

func idOf(st fs.FileInfo) inode {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return inode{sys.Dev, sys.Ino}
	}
	return inode{}
}

// file adds a file of an epoch to its kind.
func (l *duEpoch) file(path string, st fs.FileInfo, ranks map[int]*duRank) {
	name := filepath.Base(path)
	rank, ok := rankOfFile(name)
	if !ok || strings.HasSuffix(name, ".tmp") {
		l.Other += uint64(st.Size())
		return
	}
	d := ranks[rank]
	if d == nil {
		d = &duRank{Rank: rank, Kinds: map[string]uint64{}}
		ranks[rank] = d
	}
	if name != store.ImageName(rank) {
		d.Files += uint64(st.Size())
		l.Files += uint64(st.Size())
		return
	}
	d.Bytes = st.Size()
	f, err := image.Open(path)
	if err != nil {
		l.Errors = append(l.Errors, err.Error())
		l.Other += uint64(st.Size())
		return
	}
	for _, c := range f.Chunks() {
		if c.Source != 0 { // in another image
			continue
		}
		d.Kinds[c.Kind.String()] += uint64(c.Stored)
		d.Memory += uint64(c.Stored)
	}
	d.Meta = uint64(st.Size()) - d.Memory
	_ = f.Close()
	l.Memory += d.Memory
	l.Meta += d.Meta
}

// rankOfFile reads the rank from the name of a file of an epoch.
func rankOfFile(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, "rank-")
	if i := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		digits = digits[:i]
	}
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && strings.HasPrefix(name, store.ImagePrefix(n))
}

// beside is what the directory holds besides the epochs.
func beside(dir string, epochs []store.Epoch, all *space) (total uint64, err error) {
	list, err := os.ReadDir(dir)
	for _, d := range list {
		if slices.ContainsFunc(epochs, func(e store.Epoch) bool { return filepath.Base(e.Dir) == d.Name() }) {
			continue
		}
		err = errors.Join(err, filepath.WalkDir(filepath.Join(dir, d.Name()), func(_ string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if st, err := d.Info(); err == nil {
				if disk, first := all.add(st); first {
					total += disk
				}
			}
			return nil
		}))
	}
	return total, err
}

func (r *duReport) print(w io.Writer, ranks bool) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	leveled := slices.ContainsFunc(r.Epochs, func(e duEpoch) bool { return e.Local > 0 || e.Away != nil })
	local := func(text string) string {
		if leveled {
			return text + "\t"
		}
		return ""
	}
	_, _ = fmt.Fprintln(tw, "EPOCH\tSTATE\tMEMORY\tMETA\tFILES\tOTHER\tDISK\t"+local("LOCAL")+"FREED")
	for _, e := range r.Epochs {
		_, _ = fmt.Fprintf(tw, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s%s\n", e.Epoch, e.State, sizeText(e.Memory), sizeText(e.Meta),
			sizeText(e.Files), sizeText(e.Other), sizeText(e.Disk), local(sizeText(e.Local)), sizeText(e.Freed))
		for _, d := range e.Ranks {
			if !ranks {
				break
			}
			var kinds []string
			for _, k := range slices.Sorted(maps.Keys(d.Kinds)) {
				kinds = append(kinds, k+" "+sizeText(d.Kinds[k]))
			}
			_, _ = fmt.Fprintf(tw, "  rank %d\t\t%s\t%s\t%s\t\t\t%s\t%s\n", d.Rank, sizeText(d.Memory), sizeText(d.Meta), sizeText(d.Files), local(""), strings.Join(kinds, ", "))
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, e := range r.Epochs {
		for _, text := range e.Errors {
			_, _ = fmt.Fprintf(w, "epoch %d: %s\n", e.Epoch, text)
		}
	}
	for _, e := range r.Epochs {
		if a := e.Away; a != nil {
			_, _ = fmt.Fprintf(w, "epoch %d: %d images, %s, are not here: they were written on %s\n", e.Epoch, a.Images, sizeText(a.Bytes), nodesText(a.Nodes))
		}
	}
	what := ""
	if r.Local > 0 {
		what = fmt.Sprintf(", and %s in local directories here", sizeText(r.Local))
	}
	_, err := fmt.Fprintf(w, "%s: %s on disk%s; `ckptctl gc %s --keep %d` would free %s\n", r.Dir, sizeText(r.Disk), what, r.Dir, r.Keep, sizeText(r.Freed))
	return err
}

// nodesText names some nodes.
func nodesText(names []string) string {
	const most = 4
	text := "node "
	if len(names) > 1 {
		text = "nodes "
	}
	text += strings.Join(names[:min(len(names), most)], ", ")
	if n := len(names) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}
