// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/store"
)

func init() { register(newInspectCmd) }

func newInspectCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "inspect DIR[@EPOCH] | IMAGE",
		GroupID: groupSaved,
		Short:   "Show what is in an epoch",
		Long: `Show the manifest of an epoch, a line for each rank's image, and details of the image of rank 0 or of the
ranks given with --rank: sections, metadata, memory regions, sizes and compression, the files that were being
written, and how these are kept. Instead of a directory, the file of a single image may be given. The content
of pages is not read.

With --tree, show whose memory it is instead: by kind (program, libraries, heap, stacks, shared memory, anonymous),
below that by file or object, below that by mapping, the largest first. MAPPED is what the program reserved,
DATA is what of it has content, STORED is what that takes in the image.`,
		Example: `  ckptctl inspect ckpt
  ckptctl inspect ckpt@3 --rank 2 --rank 3
  ckptctl inspect ckpt --all --json
  ckptctl inspect ckpt/epoch-000003/rank-00000.ckpt
  ckptctl inspect ckpt --tree`,
		Args: cobra.ExactArgs(1),
	}
	asJSON := addJSON(cmd)
	ranks := cmd.Flags().IntSlice("rank", []int{0}, "ranks to show in detail")
	all := cmd.Flags().Bool("all", false, "show every rank in detail")
	tree := cmd.Flags().Bool("tree", false, "show the memory by kind, file or object, and mapping")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *tree {
			return runInspectTree(cmd, args[0], *ranks, *all, *asJSON)
		}
		report, err := inspect(args[0], *ranks, *all)
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

// inspectReport is what `inspect` prints.
type inspectReport struct {
	Path     string          `json:"path"`
	Manifest *store.Manifest `json:"manifest,omitempty"`
	Images   []imageReport   `json:"images"`
}

type imageReport struct {
	Rank     int             `json:"rank"` // -1 for a single file
	File     string          `json:"file"`
	Bytes    int64           `json:"bytes"`
	Digest   string          `json:"digest"`
	Memory   uint64          `json:"memory"`            // bytes that the regions span
	Payload  uint64          `json:"payload"`           // bytes of memory stored, before compression
	Stored   uint64          `json:"stored"`            // bytes of memory stored
	Shared   uint64          `json:"shared"`            // bytes of memory in other images
	Chunks   map[string]int  `json:"chunks"`            // by kind
	Sources  []string        `json:"sources,omitempty"` // those images
	Sections []sectionReport `json:"sections"`
	Regions  []regionReport  `json:"regions"`
	Outputs  []outputReport  `json:"outputs,omitempty"`
	Meta     json.RawMessage `json:"meta"`
}

type sectionReport struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

type regionReport struct {
	Start   string `json:"start"`
	End     string `json:"end"`
	Bytes   uint64 `json:"bytes"`
	Payload uint64 `json:"payload"`
	Stored  uint64 `json:"stored"`
	Shared  uint64 `json:"shared"`
	Prot    string `json:"prot"`
	Flags   string `json:"flags"`
	Name    string `json:"name,omitempty"`
	Path    string `json:"path,omitempty"`
	Offset  uint64 `json:"offset,omitempty"`
}

func inspect(spec string, ranks []int, all bool) (*inspectReport, error) {
	if isImageFile(spec) {
		f, err := image.Open(spec)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		im, err := describeImage(-1, f)
		return &inspectReport{Path: spec, Images: []imageReport{im}}, err
	}
	s, epoch, err := store.Resolve(spec)
	if err != nil {
		return nil, err
	}
	m, err := s.Manifest(epoch)
	if err != nil {
		return nil, err
	}
	r := &inspectReport{Path: s.EpochDir(epoch), Manifest: m, Images: []imageReport{}}
	if all {
		ranks = nil
		for i := range m.Images {
			ranks = append(ranks, i)
		}
	}
	for _, rank := range ranks {
		if rank < 0 || rank >= len(m.Images) {
			return nil, usagef("--rank %d: epoch %d has images of 0 to %d", rank, epoch, len(m.Images)-1)
		}
		f, err := s.OpenImage(m, rank)
		if err != nil {
			return nil, err
		}
		im, err := describeImage(rank, f)
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		r.Images = append(r.Images, im)
	}
	return r, nil
}

func describeImage(rank int, f *image.File) (imageReport, error) {
	im := imageReport{Rank: rank, File: f.Name(), Bytes: f.Bytes(), Digest: f.Digest().String(),
		Chunks: map[string]int{}, Regions: []regionReport{}}
	for _, s := range f.Sections() {
		im.Sections = append(im.Sections, sectionReport{s.Name, s.Bytes})
	}
	for i := range f.Regions() {
		r := &f.Regions()[i]
		line := regionReport{Start: fmt.Sprintf("0x%x", r.Start), End: fmt.Sprintf("0x%x", r.End),
			Bytes: r.Bytes(), Prot: protText(r.Prot), Flags: flagsText(r.Flags), Name: r.Name, Path: r.Path,
			Offset: r.Offset}
		for _, c := range f.RegionChunks(i) {
			if c.Source != 0 {
				im.Chunks["in other images"]++
				line.Shared += uint64(c.Bytes)
				continue
			}
			im.Chunks[c.Kind.String()]++
			line.Payload += uint64(c.Bytes)
			line.Stored += uint64(c.Stored)
		}
		im.Memory += line.Bytes
		im.Payload += line.Payload
		im.Stored += line.Stored
		im.Shared += line.Shared
		im.Regions = append(im.Regions, line)
	}
	for i := range f.Sources() {
		im.Sources = append(im.Sources, f.SourcePath(i))
	}
	table, err := openFiles(f)
	if err != nil {
		return im, err
	}
	if table != nil {
		im.Outputs = outputs(table)
	}
	meta, err := f.Meta()
	if err != nil {
		return im, err
	}
	if !json.Valid(meta) { // shown as text then
		meta, err = json.Marshal(string(meta))
	}
	im.Meta = meta
	return im, err
}

// ranksText is a short list: "0-15 20".
func ranksText(ranks []int) string {
	var out []string
	for i := 0; i < len(ranks); {
		end := i + 1
		for end < len(ranks) && ranks[end] == ranks[end-1]+1 {
			end++
		}
		text := fmt.Sprint(ranks[i])
		if end-i > 1 {
			text = fmt.Sprintf("%d-%d", ranks[i], ranks[end-1])
		}
		out = append(out, text)
		i = end
	}
	return strings.Join(out, " ")
}

func protText(prot uint32) string {
	b := []byte("---")
	for i, c := range []byte("rwx") {
		if prot&(1<<i) != 0 {
			b[i] = c
		}
	}
	return string(b)
}

func flagsText(flags uint32) string {
	var list []string
	for _, f := range []struct {
		bit  uint32
		name string
	}{
		{image.FlagShared, "shared"}, {image.FlagAnonymous, "anonymous"}, {image.FlagFile, "file"},
		{image.FlagStack, "stack"}, {image.FlagNoData, "no-data"}, {image.FlagMayWrite, "may-write"},
	} {
		if flags&f.bit != 0 {
			list = append(list, f.name)
		}
	}
	return strings.Join(list, ",")
}

func (r *inspectReport) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(tw, format, args...) }
	if m := r.Manifest; m != nil {
		p("epoch\t%d\n", m.Epoch)
		p("committed\t%s\n", m.Time.Local().Format("2006-01-02 15:04:05"))
		p("program\t%s\n", strings.Join(append([]string{m.Program}, m.Args...), " "))
		ranks := fmt.Sprint(m.Ranks)
		if m.Processes != 0 {
			ranks = fmt.Sprintf("%d in %d processes", m.Ranks, m.Processes)
		}
		p("ranks\t%s on %s\n", ranks, strings.Join(m.Hosts, ", "))
		if m.Mode != "" {
			p("mode\t%s: memory of ranks, apart from each other, and no processes\n", m.Mode)
		}
		p("MPI\t%s (application: %s ABI)\n", mpiText(m.MPI), m.MPI.ABI)
		p("libckpt\t%s\n", m.Libckpt)
		if m.Parent != 0 {
			p("built upon\tepoch %d, with content in epochs %s\n", m.Parent, needsText(m.Needs))
		}
		if m.TotalSeconds > 0 {
			p("cost\t%.3g s, of which the application stood still for %.3g s\n", m.TotalSeconds, m.StopSeconds)
		}
		who := "RANK"
		if m.Processes != 0 {
			who = "PROCESS\tRANKS"
		}
		p("\n%s\tFILE\tSIZE\tMEMORY STORED\tHOST\tDIGEST\n", who)
		for _, im := range m.Images {
			who := fmt.Sprint(im.Rank)
			if m.Processes != 0 {
				who += "\t" + ranksText(im.Tasks)
			}
			p("%s\t%s\t%s\t%s\t%s\t%.23s...\n", who, im.File, sizeText(im.Bytes), sizeText(im.Payload), im.Host, im.Digest)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	for i := range r.Images {
		if err := r.Images[i].print(w); err != nil {
			return err
		}
	}
	return nil
}

func (im *imageReport) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(tw, format, args...) }
	p("\n%s\n", im.File)
	p("size\t%s\n", sizeText(im.Bytes))
	p("digest\t%s\n", im.Digest)
	p("memory\t%s mapped, %s with data, stored as %s (%s)\n", sizeText(im.Memory), sizeText(im.Payload),
		sizeText(im.Stored), ratioText(im.Payload, im.Stored))
	if im.Shared > 0 {
		p("shared\t%s with data more, in %s\n", sizeText(im.Shared), strings.Join(im.Sources, ", "))
	}
	var kinds []string
	for k, n := range im.Chunks {
		kinds = append(kinds, fmt.Sprintf("%d %s", n, k))
	}
	slices.Sort(kinds)
	p("chunks\t%s\n", strings.Join(kinds, ", "))
	p("\nSECTION\tSIZE\n")
	for _, s := range im.Sections {
		p("%s\t%s\n", s.Name, sizeText(s.Bytes))
	}
	if len(im.Outputs) > 0 {
		p("\nFILE BEING WRITTEN\tSIZE\tKEPT\n")
		for i := range im.Outputs {
			p("%s\t%s\t%s\n", im.Outputs[i].Path, sizeText(im.Outputs[i].Bytes), im.Outputs[i].keptText())
		}
	}
	p("\nREGION\tPROT\tMAPPED\tDATA\tRATIO\tSHARED\tFLAGS\tNAME\n")
	for _, r := range im.Regions {
		p("%s-%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Start, r.End, r.Prot, sizeText(r.Bytes), sizeText(r.Payload),
			ratioText(r.Payload, r.Stored), sizeText(r.Shared), r.Flags, strings.TrimSpace(r.Name+" "+r.Path))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, im.Meta, "", "  "); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nmetadata\n%s\n", pretty.Bytes())
	return err
}
