// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt/image"
)

func init() { register(newExportCmd) }

// exportOptions are the flags of `export`.
type exportOptions struct {
	out, format, dtype string
	shape              []int
	ranks              []int
	ranges, mappings   []string

	met, names map[string]bool // mappings that were found, and all names that there are
}

func newExportCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "export DIR[@EPOCH] | IMAGE",
		GroupID: groupSaved,
		Short:   "Write memory of an epoch to raw or NumPy files",
		Long: `Write memory of an epoch to files, one for each piece, into a new directory. Of an epoch in regions mode these
are the pieces that the ranks have named, unless --range or --mapping asks for others. An image of a whole process
has many mappings: say which. ` + "`ckptctl inspect --tree`" + ` lists them.

--format raw writes the bytes as they were in memory; zero pages take no space on disk. --format npy puts a header of
NumPy before them, for numpy.load: an array of the type --dtype, of one dimension or of --shape, or with the dimensions
that the program gave when it named the memory as a part of a distributed array. Memory of a runtime's ranks is made of
whole pages, so it may be longer than the array: --shape takes the first bytes.

Each page is checked against its digest. The directory appears when all files in it are complete; one that is
there already is refused. index.json in it says what each file is.`,
		Example: `  ckptctl export ckpt --out arrays --format npy --dtype f8
  ckptctl export ckpt@3 --rank 2 --range 0x102001000000-0x102001100000 --out part
  ckptctl export ckpt/epoch-000003/rank-00000.ckpt --mapping '[heap]' --out heap
  python3 -c 'import numpy; print(numpy.load("arrays/rank-00000-000.npy", mmap_mode="r").mean())'`,
		Args: cobra.ExactArgs(1),
	}
	asJSON := addJSON(cmd)
	var o exportOptions
	f := cmd.Flags()
	f.StringVarP(&o.out, "out", "o", "", "`directory` to make; it must not be there")
	f.StringVar(&o.format, "format", "raw", "what the files are: `raw|npy`")
	f.StringVar(&o.dtype, "dtype", "", "with npy: the `type` of an element, as NumPy names it: f8, f4, i4, i8, u1, c16, ... (default u1); big-endian is >f8")
	f.IntSliceVar(&o.shape, "shape", nil, "with npy: the `dimensions`, e.g. 1000,200; they must fit into each piece")
	f.IntSliceVar(&o.ranks, "rank", nil, "ranks to export (default: all)")
	f.StringArrayVar(&o.ranges, "range", nil, "an address range, `START-END`, in hexadecimal; may be given several times")
	f.StringArrayVar(&o.mappings, "mapping", nil, "all mappings of that `name` or file, e.g. [heap]; may be given several times")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		report, err := export(cmd.Context(), args[0], o)
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

// exportReport is what `export` prints, and index.json.
type exportReport struct {
	From  string         `json:"from"`
	Dir   string         `json:"dir"`
	Files []exportedFile `json:"files"`
}

type exportedFile struct {
	File  string `json:"file"`
	Rank  int    `json:"rank"` // -1 for a single image
	Name  string `json:"name,omitempty"`
	Start string `json:"start"`
	End   string `json:"end"`
	Bytes uint64 `json:"bytes"`
	Dtype string `json:"dtype,omitempty"`
	Shape []int  `json:"shape,omitempty"`

	Block *protectedBlock `json:"block,omitempty"` // the part that it is of an array that is spread over all ranks
}

// piece is memory of a rank that becomes a file.
type piece struct {
	name       string
	start, end uint64
	file       string          // what distinguishes its file; "": its number
	block      *protectedBlock // what it is of a distributed array
}

// element is the type of the elements of an array.
type element struct {
	descr string
	size  uint64
}

// parseElement understands NumPy's short names of numbers.
func parseElement(text string) (element, error) {
	order, kind := "<", text
	if text != "" && strings.ContainsRune("<>|=", rune(text[0])) {
		order, kind = text[:1], text[1:]
	}
	sizes := map[string][]uint64{"f": {2, 4, 8, 16}, "i": {1, 2, 4, 8}, "u": {1, 2, 4, 8}, "c": {8, 16, 32}, "b": {1}, "S": nil}
	if len(kind) >= 2 {
		n, err := strconv.ParseUint(kind[1:], 10, 16)
		if list, ok := sizes[kind[:1]]; err == nil && n > 0 && ok && (list == nil || slices.Contains(list, n)) {
			if n == 1 || kind[0] == 'S' {
				order = "|"
			} else if order == "=" || order == "|" {
				order = "<"
			}
			return element{order + kind, n}, nil
		}
	}
	return element{}, usagef("--dtype %q: want f2, f4, f8, i1 to i8, u1 to u8, c8, c16, b1 or S and a length, with > before it for big-endian", text)
}

func (o *exportOptions) check() (element, error) {
	var none element
	switch {
	case o.out == "":
		return none, usagef("--out DIRECTORY says where the files shall be")
	case o.format != "raw" && o.format != "npy":
		return none, usagef("--format %q: want raw or npy", o.format)
	case o.format == "raw" && (len(o.shape) > 0 || o.dtype != ""):
		return none, usagef("--dtype and --shape go with --format npy")
	}
	for _, n := range o.shape {
		if n < 1 {
			return none, usagef("--shape: %d is no dimension", n)
		}
	}
	if o.format == "raw" {
		return none, nil
	}
	return parseElement(cmp.Or(o.dtype, "u1"))
}

func export(ctx context.Context, spec string, o exportOptions) (*exportReport, error) {
	el, err := o.check()
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(o.out); err == nil {
		return nil, fmt.Errorf("%s: %w", o.out, errThere)
	}
	temp, err := os.MkdirTemp(filepath.Dir(filepath.Clean(o.out)), filepath.Base(filepath.Clean(o.out))+".*.tmp")
	if err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	o.met, o.names = map[string]bool{}, map[string]bool{}
	r := &exportReport{From: spec, Dir: o.out, Files: []exportedFile{}}
	err = exportEach(spec, o.ranks, func(rank int, f *image.File) error {
		pieces, err := o.pieces(rank, f)
		if err != nil {
			return err
		}
		for n, p := range pieces {
			file, err := exportPiece(ctx, temp, f, rank, n, p, o, el)
			if err != nil {
				return err
			}
			r.Files = append(r.Files, file)
		}
		return nil
	})
	if err == nil {
		err = o.missing()
	}
	if err == nil && len(r.Files) == 0 {
		err = errors.New("nothing to export: no image has such memory; `ckptctl inspect --tree` lists what there is")
	}
	if err != nil {
		return nil, err
	}
	if err := writeIndex(filepath.Join(temp, "index.json"), r); err != nil {
		return nil, err
	}
	if err := os.Chmod(temp, 0o755&^umask()); err != nil {
		return nil, err
	}
	return r, place(temp, o.out, false, func(err error) error { return fmt.Errorf("%s: %w", o.out, err) })
}

// exportEach calls do for the ranks asked for. In regions mode an image has several.
func exportEach(spec string, ranks []int, do func(rank int, f *image.File) error) error {
	if isImageFile(spec) {
		if len(ranks) > 0 {
			return eachImage(spec, nil, false, func(_ int, f *image.File) error { return eachTask(f, ranks, do) })
		}
		return eachImage(spec, nil, false, func(_ int, f *image.File) error { return eachTask(f, nil, do) })
	}
	e, err := resolveEpoch(spec)
	if err != nil {
		return err
	}
	m := e.manifest
	for _, rank := range ranks {
		if m.ImageOf(rank) < 0 {
			return usagef("--rank %d: epoch %d has ranks 0 to %d", rank, m.Epoch, m.Ranks-1)
		}
	}
	for n := range m.Images {
		mine := m.Images[n].Tasks
		if len(mine) == 0 {
			mine = []int{n}
		}
		if len(ranks) > 0 {
			mine = slices.DeleteFunc(slices.Clone(mine), func(r int) bool { return !slices.Contains(ranks, r) })
		}
		if len(mine) == 0 {
			continue
		}
		f, err := e.store.OpenImage(m, n)
		if err != nil {
			return err
		}
		if m.Mode == "" { // an image of a process, whoever lives in it
			mine = []int{n}
		}
		for _, rank := range mine {
			if err = do(rank, f); err != nil {
				break
			}
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// eachTask is for a single image: of all its ranks, of those given, or of a process.
func eachTask(f *image.File, ranks []int, do func(rank int, f *image.File) error) error {
	t, err := tasksOf(f)
	switch {
	case err != nil:
		return err
	case t == nil && len(ranks) > 0:
		return usagef("--rank goes with a directory: %s is one process", f.Name())
	case t == nil:
		return do(-1, f)
	}
	for _, rank := range t.Ranks() {
		if len(ranks) == 0 || slices.Contains(ranks, rank) {
			if err := do(rank, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// pieces is what is asked for of a rank.
func (o *exportOptions) pieces(rank int, f *image.File) ([]piece, error) {
	var list []piece
	for _, text := range o.ranges {
		p, err := parseRange(text)
		if err != nil {
			return nil, err
		}
		if err := covered(f, p); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	for i := range f.Regions() {
		r := &f.Regions()[i]
		name := cmp.Or(r.Name, r.Path)
		if r.Flags&image.FlagNoData != 0 || name == "" {
			continue
		}
		o.names[name] = true
		if slices.Contains(o.mappings, name) || r.Path != "" && slices.Contains(o.mappings, r.Path) {
			o.met[r.Name], o.met[r.Path] = true, true
			list = append(list, piece{name: name, start: r.Start, end: r.End})
		}
	}
	if len(o.ranges)+len(o.mappings) > 0 {
		return list, nil
	}
	if named, ok, err := protectedOf(f); ok || err != nil {
		return piecesOf(named), err
	}
	tasks, err := tasksOf(f)
	if err != nil {
		return nil, err
	}
	if tasks == nil {
		return nil, usagef("%s is the image of a whole process: --range or --mapping says what of it (`ckptctl inspect --tree` lists it)", f.Name())
	}
	for _, s := range tasks.Spans(rank) {
		list = append(list, piece{name: fmt.Sprintf("[rank %d]", rank), start: s.Base, end: s.End()})
	}
	return list, nil
}

// missing wants each mapping that was asked for to be in one of the images.
func (o *exportOptions) missing() error {
	for _, m := range o.mappings {
		if !o.met[m] {
			return fmt.Errorf("nothing to export: no image has a mapping %q; those with a name are %s (`ckptctl inspect --tree` lists all memory)", m,
				strings.Join(slices.Sorted(maps.Keys(o.names)), ", "))
		}
	}
	return nil
}

func parseRange(text string) (piece, error) {
	a, b, ok := strings.Cut(text, "-")
	start, err1 := strconv.ParseUint(strings.TrimPrefix(a, "0x"), 16, 63)
	end, err2 := strconv.ParseUint(strings.TrimPrefix(b, "0x"), 16, 63)
	if !ok || err1 != nil || err2 != nil || start >= end {
		return piece{}, usagef("--range %q: want START-END in hexadecimal, with the end behind the start", text)
	}
	return piece{start: start, end: end}, nil
}

// covered wants each byte to be of a mapping whose content the image has.
func covered(f *image.File, p piece) error {
	for at := p.start; at < p.end; {
		r := regionAt(f, at)
		if r == nil {
			return fmt.Errorf("%s: nothing is mapped at 0x%x of the range 0x%x-0x%x", f.Name(), at, p.start, p.end)
		}
		if r.Flags&image.FlagNoData != 0 {
			return fmt.Errorf("%s: the mapping %v has no content in an image", f.Name(), r)
		}
		at = r.End
	}
	return nil
}

// exportPiece writes one file.
func exportPiece(ctx context.Context, dir string, f *image.File, rank, n int, p piece, o exportOptions, el element) (exportedFile, error) {
	e := exportedFile{Rank: rank, Name: p.name, Start: fmt.Sprintf("0x%x", p.start), End: fmt.Sprintf("0x%x", p.end), Bytes: p.end - p.start}
	e.Block = p.block
	which := cmp.Or(p.file, fmt.Sprintf("%03d", n))
	e.File = fmt.Sprintf("rank-%05d-%s.%s", rank, which, o.format)
	if rank < 0 {
		e.File = fmt.Sprintf("memory-%s.%s", which, o.format)
	}
	var head []byte
	if o.format == "npy" {
		e.Dtype, e.Shape = el.descr, o.shape
		if len(e.Shape) == 0 {
			e.Shape = p.block.shape(el.size, e.Bytes)
		}
		if len(e.Shape) == 0 {
			if e.Bytes < el.size {
				return e, fmt.Errorf("memory 0x%x-0x%x is shorter than one %s", p.start, p.end, el.descr)
			}
			e.Shape = []int{int(e.Bytes / el.size)}
		}
		want := el.size
		for _, d := range e.Shape {
			if want > e.Bytes/uint64(d) {
				return e, fmt.Errorf("--shape %v of %s does not fit into the %d bytes of memory 0x%x-0x%x of rank %d", e.Shape, el.descr, e.Bytes, p.start, p.end, rank)
			}
			want *= uint64(d)
		}
		e.Bytes = want
		head = npyHeader(el.descr, e.Shape)
	}
	out, err := os.OpenFile(filepath.Join(dir, e.File), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return e, err
	}
	err = func() error {
		if _, err := out.Write(head); err != nil {
			return err
		}
		if err := writeMemory(ctx, out, int64(len(head)), f, p.start, e.Bytes); err != nil {
			return err
		}
		if err := out.Truncate(int64(len(head)) + int64(e.Bytes)); err != nil {
			return err
		}
		return out.Sync() // a full disk may say so only now
	}()
	return e, errors.Join(err, out.Close())
}

// writeMemory writes what has content; the rest of the file stays a hole.
func writeMemory(ctx context.Context, w io.WriterAt, at int64, f *image.File, start, bytes uint64) error {
	extents, err := f.Present(start, start+bytes)
	if err != nil {
		return err
	}
	buf := make([]byte, image.MaxChunk)
	for _, e := range extents {
		for a := e.Start; a < e.End; {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			// Up to where a chunk may begin, so that each is read once.
			n := min(e.End, (a/image.MaxChunk+1)*image.MaxChunk) - a
			if err := f.ReadAt(buf[:n], a); err != nil {
				return err
			}
			if _, err := w.WriteAt(buf[:n], at+int64(a-start)); err != nil {
				return err
			}
			a += n
		}
	}
	return nil
}

// npyHeader begins a file of NumPy's format 1.0: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
func npyHeader(descr string, shape []int) []byte {
	var dims strings.Builder
	for _, n := range shape {
		fmt.Fprintf(&dims, "%d,", n)
	}
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, dims.String())
	const before = 10
	length := (before+len(dict)+1+63)/64*64 - before // the data begin at a multiple of 64
	p := append([]byte("\x93NUMPY\x01\x00"), 0, 0)
	binary.LittleEndian.PutUint16(p[8:], uint16(length))
	p = append(p, dict...)
	p = append(p, strings.Repeat(" ", length-len(dict)-1)...)
	return append(p, '\n')
}

func writeIndex(path string, r *exportReport) error {
	p, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(p, '\n'), 0o666)
}

func (r *exportReport) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "FILE\tRANK\tBYTES\tADDRESSES\tTYPE\tNAME")
	for _, f := range r.Files {
		kind := ""
		if f.Dtype != "" {
			kind = fmt.Sprintf("%s %v", f.Dtype, f.Shape)
		}
		_, _ = fmt.Fprintf(tw, "%s\t%d\t%d\t%s-%s\t%s\t%s\n", filepath.Join(r.Dir, f.File), f.Rank, f.Bytes, f.Start, f.End, kind, f.Name)
	}
	return tw.Flush()
}
