// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/regions"
)

// Kinds of memory, as `inspect --tree` sorts them: the first level of the tree.
const (
	kindProgram   = "program"
	kindLibraries = "libraries"
	kindFiles     = "mapped files"
	kindHeap      = "heap"
	kindStacks    = "stacks"
	kindShared    = "shared memory"
	kindAnonymous = "anonymous"
	kindRanks     = "ranks" // regions mode: memory that a runtime has named for its ranks
	kindNamed     = "named" // regions mode: memory that the program has named, by its numbers
)

// treeReport is what `inspect --tree` prints.
type treeReport struct {
	Path   string      `json:"path"`
	Images []imageTree `json:"images"`
}

type imageTree struct {
	Rank int      `json:"rank"` // -1 for a single file
	File string   `json:"file"`
	Root treeNode `json:"root"`
}

// treeNode is a kind of memory, below it a file or another object, below that a mapping.
type treeNode struct {
	Name     string     `json:"name"`
	Mappings int        `json:"mappings,omitempty"` // below it
	Mapped   uint64     `json:"mapped"`
	Data     uint64     `json:"data"`   // of it with content
	Stored   uint64     `json:"stored"` // in the image
	Shared   uint64     `json:"shared"` // of the data, in other images
	Start    string     `json:"start,omitempty"`
	End      string     `json:"end,omitempty"`
	Prot     string     `json:"prot,omitempty"`
	Children []treeNode `json:"children,omitempty"`
}

// inspectTree is inspect with --tree: it reads indexes and no pages.
func inspectTree(spec string, ranks []int, all bool) (*treeReport, error) {
	r := &treeReport{Path: spec, Images: []imageTree{}}
	err := eachImage(spec, ranks, all, func(rank int, f *image.File) error {
		root, err := memoryTree(f)
		r.Images = append(r.Images, imageTree{rank, f.Name(), root})
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// eachImage opens images one after the other: the file that spec names, with rank -1, or those of an epoch.
func eachImage(spec string, ranks []int, all bool, do func(rank int, f *image.File) error) error {
	if isImageFile(spec) {
		f, err := image.Open(spec)
		if err != nil {
			return err
		}
		return errors.Join(do(-1, f), f.Close())
	}
	e, err := resolveEpoch(spec)
	if err != nil {
		return err
	}
	if all {
		ranks = nil
		for i := range e.manifest.Images {
			ranks = append(ranks, i)
		}
	}
	for _, rank := range ranks {
		if rank < 0 || rank >= len(e.manifest.Images) {
			return usagef("--rank %d: epoch %d has images of 0 to %d", rank, e.manifest.Epoch, len(e.manifest.Images)-1)
		}
		f, err := e.store.OpenImage(e.manifest, rank)
		if err != nil {
			return err
		}
		if err := errors.Join(do(rank, f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// tasksOf reads whose memory an image of regions mode has; nil: it is of a process.
func tasksOf(f *image.File) (*regions.Table, error) {
	b, err := f.Section("tasks")
	if errors.Is(err, image.ErrNoSection) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t, err := regions.Decode(b)
	if err != nil {
		return nil, fmt.Errorf("%s: section %q: %w", f.Name(), "tasks", err)
	}
	return t, nil
}

// memoryTree sorts the regions of an image.
func memoryTree(f *image.File) (treeNode, error) {
	root := treeNode{Name: "memory"}
	tasks, err := tasksOf(f)
	if err != nil {
		return root, err
	}
	protected, _, err := protectedOf(f)
	if err != nil {
		return root, err
	}
	ids := map[uint64]string{} // by where it begins
	for _, r := range protected {
		ids[r.At] = fmt.Sprintf("region %d", r.ID)
	}
	var meta ckpt.Meta
	if b, err := f.Meta(); err != nil {
		return root, err
	} else if json.Unmarshal(b, &meta) != nil {
		meta = ckpt.Meta{} // not written by ckptrun: no program is known
	}
	executable := map[string]bool{} // files of which code is mapped
	for i := range f.Regions() {
		if r := &f.Regions()[i]; r.Prot&4 != 0 && r.Path != "" {
			executable[r.Path] = true
		}
	}
	at := map[[2]string]int{} // object by kind and name: its place
	kinds := map[string]*treeNode{}
	var last string // the file of the mapping before: a .bss follows its file without a name
	for i := range f.Regions() {
		r := &f.Regions()[i]
		leaf := treeNode{Name: strings.TrimSpace(r.Name + " " + flagsText(r.Flags)), Mappings: 1, Mapped: r.Bytes(),
			Start: fmt.Sprintf("0x%x", r.Start), End: fmt.Sprintf("0x%x", r.End), Prot: protText(r.Prot)}
		if r.Flags&image.FlagFile != 0 {
			leaf.Name = segmentName(r)
		}
		for _, c := range f.RegionChunks(i) {
			leaf.Data += uint64(c.Bytes)
			if c.Source == 0 {
				leaf.Stored += uint64(c.Stored)
			} else {
				leaf.Shared += uint64(c.Bytes)
			}
		}
		kind, object := kindOf(r, meta.Program, executable)
		if tasks != nil {
			kind, object = kindRanks, r.Name
		} else if id, ok := ids[r.Start]; ok {
			kind, object = kindNamed, id
		} else if kind == kindAnonymous && r.Name == "" && last != "" && i > 0 && f.Regions()[i-1].End == r.Start {
			kind, object = kindOfFile(last, meta.Program, executable), last
			leaf.Name = "behind the file (.bss)"
		}
		last = ""
		if r.Path != "" && r.Flags&image.FlagFile != 0 && executable[r.Path] {
			last = r.Path
		}
		k := kinds[kind]
		if k == nil {
			k = &treeNode{Name: kind}
			kinds[kind] = k
		}
		n, ok := at[[2]string{kind, object}]
		if !ok {
			n = len(k.Children)
			at[[2]string{kind, object}] = n
			k.Children = append(k.Children, treeNode{Name: object})
		}
		k.Children[n].add(leaf)
	}
	for _, k := range kinds {
		for _, o := range k.Children {
			k.sum(o)
		}
		slices.SortStableFunc(k.Children, func(a, b treeNode) int { return cmp.Compare(b.Data, a.Data) })
		root.Children = append(root.Children, *k)
		root.sum(*k)
	}
	slices.SortFunc(root.Children, func(a, b treeNode) int {
		return cmp.Or(cmp.Compare(b.Data, a.Data), cmp.Compare(a.Name, b.Name))
	})
	return root, nil
}

// segmentName says what a part of a file is, by what may be done with it.
func segmentName(r *image.Region) string {
	switch {
	case r.Prot&4 != 0:
		return "code"
	case r.Prot&2 != 0:
		return "data"
	}
	return "constants"
}

func (n *treeNode) add(child treeNode) {
	n.Children = append(n.Children, child)
	n.sum(child)
}

func (n *treeNode) sum(child treeNode) {
	n.Mappings += child.Mappings
	n.Mapped += child.Mapped
	n.Data += child.Data
	n.Stored += child.Stored
	n.Shared += child.Shared
}

// kindOf says where in the tree a mapping belongs.
func kindOf(r *image.Region, program string, executable map[string]bool) (kind, object string) {
	switch {
	case r.Flags&image.FlagFile != 0 && r.Path != "":
		return kindOfFile(r.Path, program, executable), r.Path
	case strings.HasPrefix(r.Name, "[shared ") || r.Flags&image.FlagShared != 0:
		return kindShared, cmp.Or(r.Name, r.Path, "without a name")
	case r.Name == "[heap]":
		return kindHeap, "[heap]"
	case r.Flags&image.FlagStack != 0 || strings.HasPrefix(r.Name, "[stack"):
		return kindStacks, cmp.Or(r.Name, "without a name")
	case r.Path != "": // a copy of what a file had
		return kindOfFile(r.Path, program, executable), r.Path
	}
	return kindAnonymous, cmp.Or(r.Name, "without a name")
}

func kindOfFile(path, program string, executable map[string]bool) string {
	switch {
	case program != "" && filepath.Base(path) == filepath.Base(program):
		return kindProgram
	case executable[path]:
		return kindLibraries
	}
	return kindFiles
}

// print draws the tree. Mappings are left out where an object has one only: its own line says all of it.
func (r *treeReport) print(w io.Writer) error {
	for _, im := range r.Images {
		tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		who := im.File
		if im.Rank >= 0 {
			who = fmt.Sprintf("rank %d  %s", im.Rank, im.File)
		}
		shared := ""
		if im.Root.Shared > 0 { // the rest is in older epochs, or in the image of another rank
			shared = "SHARED\t"
		}
		_, _ = fmt.Fprintf(tw, "%s\n\tMAPPINGS\tMAPPED\tDATA\t%sSTORED\tRATIO\tADDRESSES\n", who, shared)
		im.Root.draw(tw, "", "", shared != "")
		if err := tw.Flush(); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(w)
	}
	return nil
}

func (n *treeNode) draw(w io.Writer, head, below string, withShared bool) {
	where := ""
	switch {
	case n.Start != "":
		where = fmt.Sprintf("%s-%s %s", n.Start, n.End, n.Prot)
	case len(n.Children) == 1 && n.Children[0].Start != "":
		c := &n.Children[0]
		where = fmt.Sprintf("%s-%s %s", c.Start, c.End, c.Prot)
	}
	shared := ""
	if withShared {
		shared = sizeText(n.Shared) + "\t"
	}
	_, _ = fmt.Fprintf(w, "%s%s\t%d\t%s\t%s\t%s%s\t%s\t%s\n", head, n.Name, n.Mappings, sizeText(n.Mapped), sizeText(n.Data),
		shared, sizeText(n.Stored), ratioText(n.Data-n.Shared, n.Stored), where)
	if len(n.Children) == 1 && n.Children[0].Start != "" {
		return
	}
	for i := range n.Children {
		branch, more := "├─ ", "│  "
		if i == len(n.Children)-1 {
			branch, more = "└─ ", "   "
		}
		n.Children[i].draw(w, below+branch, below+more, withShared)
	}
}

func runInspectTree(cmd *cobra.Command, spec string, ranks []int, all, asJSON bool) error {
	report, err := inspectTree(spec, ranks, all)
	switch {
	case err != nil:
		return err
	case asJSON:
		return printJSON(cmd.OutOrStdout(), report)
	}
	return report.print(cmd.OutOrStdout())
}
