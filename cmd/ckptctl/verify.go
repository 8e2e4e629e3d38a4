// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/ckpt/objects"
	"github.com/libckpt/libckpt/ckpt/store"
)

func init() { register(newVerifyCmd) }

func newVerifyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "verify DIR[@EPOCH] | IMAGE",
		GroupID: groupSaved,
		Short:   "Check that an epoch is what was written",
		Long: `Read an epoch and compare every byte with the digests made when it was written: the manifest, and the
header, sections, index and pages of each image, and the pages in older epochs that it refers to. Files that are kept beside the images, as clones or links,
are compared by length and samples of the content. With --quick the content of pages is left out, so that a
large epoch is checked in a moment. Metadata and sections are also checked for their meaning: whether this
libckpt can restart a rank of this job from them. Instead of a directory, the file of a single image may be
given.

With local directories (ckptrun --local) an epoch below level 4 is on nodes: set CKPT_LOCAL and call this on them.
All that this machine has of the epoch is checked: images, copies of other nodes' images, parities.

Exit status 1 when anything is damaged: the message names file, section and offset. Nothing is changed.` + objectsHelp + `
There every byte of each object is compared with the digest that the manifest has of it; with --quick only lengths are.`,
		Example: `  ckptctl verify ckpt
  ckptctl verify ckpt@3 --quick --json
  ckptctl verify ckpt/epoch-000003/rank-00000.ckpt`,
		Args: cobra.ExactArgs(1),
	}
	asJSON := addJSON(cmd)
	quick := cmd.Flags().Bool("quick", false, "leave out the content of pages")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		report, err := verify(cmd.Context(), args[0], *quick)
		if err != nil {
			return err
		}
		if *asJSON {
			err = printJSON(cmd.OutOrStdout(), report)
		} else {
			report.print(cmd.OutOrStdout())
		}
		if err == nil && report.Damaged > 0 {
			err = fmt.Errorf("%s: %d of %d images are damaged", args[0], report.Damaged, len(report.Images))
			if report.Elsewhere == report.Damaged {
				err = fmt.Errorf("%s: %d of %d images are not here, and were not checked", args[0], report.Elsewhere, len(report.Images))
			} else if report.Elsewhere > 0 {
				err = fmt.Errorf("%s: %d of %d images are damaged, and %d not here", args[0], report.Damaged-report.Elsewhere, len(report.Images), report.Elsewhere)
			}
		}
		return err
	}
	return cmd
}

// verifyReport is what `verify` prints.
type verifyReport struct {
	Path    string `json:"path"`
	Epoch   int    `json:"epoch,omitempty"`
	Quick   bool   `json:"quick"`
	Damaged int    `json:"damaged"`
	// Elsewhere are those of the damaged that other nodes may have, in their local directories.
	Elsewhere int           `json:"elsewhere,omitempty"`
	Kept      int           `json:"kept"` // files beside the images that were compared
	Images    []verifyImage `json:"images"`
	FoundLost string        `json:"foundLost,omitempty"` // why a restart has passed the epoch over
}

type verifyImage struct {
	Rank  int    `json:"rank"` // -1 for a single file
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	// Where the damage is, when it is damage and not an error of the disk.
	Section   string `json:"section,omitempty"`
	Offset    int64  `json:"offset,omitempty"`
	Elsewhere bool   `json:"elsewhere,omitempty"` // it is in the local directory of another node, or of this one
	Lost      string `json:"lost,omitempty"`      // an image that this one refers to, and that is not there
}

func verify(ctx context.Context, spec string, quick bool) (*verifyReport, error) {
	if objects.Is(spec) {
		return verifyObjects(ctx, spec, quick)
	}
	if isImageFile(spec) {
		r := &verifyReport{Path: spec, Quick: quick}
		f, err := image.Open(spec)
		if err == nil {
			if err = ckpt.CheckImage(f, nil, -1); err == nil && !quick {
				err = f.Verify(ctx, nil)
			}
			if err == nil {
				r.Kept, err = verifyKept(f, filepath.Dir(spec))
			}
			err = errors.Join(err, f.Close())
		}
		st, _ := os.Stat(spec)
		r.add(-1, spec, st.Size(), err)
		return r, ctx.Err()
	}
	s, epoch, err := store.Resolve(spec)
	if err != nil {
		return nil, err
	}
	s = s.WithLocal(os.Getenv(localName))
	m, err := s.Manifest(epoch)
	if err != nil {
		return nil, err
	}
	r := &verifyReport{Path: s.EpochDir(epoch), Epoch: epoch, Quick: quick, FoundLost: m.Lost()}
	for _, im := range m.Images {
		err := s.VerifyImage(ctx, m, im.Rank, quick, nil)
		if err == nil {
			err = r.checkMeaning(s, m, im.Rank)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		r.add(im.Rank, im.File, im.Bytes, err)
	}
	r.addLocal(ctx, s, m, quick)
	return r, nil
}

// localName is the variable that names the local directory, for jobs and for commands on a node.
const localName = "CKPT_LOCAL"

// addLocal checks what can be seen from here of an epoch in local directories: all copies, and parities.
func (r *verifyReport) addLocal(ctx context.Context, s *store.Store, m *store.Manifest, quick bool) {
	if m.Levels == nil {
		return
	}
	for _, place := range levels.Find(os.Getenv(localName), m.Levels.Set) {
		held, err := place.Inventory([]int{m.Epoch})
		if err != nil {
			r.add(-1, place.Dir, 0, err)
			continue
		}
		for _, h := range held {
			path := place.Path(h.Epoch, h.File)
			if rank := m.RankOf(h.File); rank >= 0 {
				if path != s.PathOf(m, h.File) { // that one was checked
					r.add(rank, path, h.Bytes, s.WithLocal("").VerifyCopy(ctx, m, rank, path, quick))
				}
			} else if parity := m.Levels.ParityOf(h.File); parity != nil {
				r.add(-1, path, h.Bytes, place.VerifyParity(m.Epoch, parity))
			}
		}
	}
}

// checkMeaning asks whether a rank can be restarted from its image, whose bytes are sound.
func (r *verifyReport) checkMeaning(s *store.Store, m *store.Manifest, rank int) error {
	f, err := s.OpenImage(m, rank)
	if err != nil {
		return err
	}
	err = ckpt.CheckImage(f, m, rank)
	if err == nil {
		var n int
		n, err = verifyKept(f, s.EpochDir(m.Epoch)) // also where the image is in a local directory
		r.Kept += n
	}
	return errors.Join(err, f.Close())
}

func (r *verifyReport) add(rank int, file string, bytes int64, err error) {
	line := verifyImage{Rank: rank, File: file, Bytes: bytes, OK: err == nil}
	if err != nil {
		r.Damaged++
		line.Error = err.Error()
		if c, ok := errors.AsType[*image.CorruptError](err); ok {
			line.Section, line.Offset = c.Section, c.Offset
		}
		if _, ok := errors.AsType[*store.ElsewhereError](err); ok {
			r.Elsewhere++
			line.Elsewhere = true
		}
		if c, ok := errors.AsType[*image.LostError](err); ok {
			line.Lost = c.Source
		}
	}
	r.Images = append(r.Images, line)
}

func (r *verifyReport) print(w io.Writer) {
	var total int64
	for _, im := range r.Images {
		total += im.Bytes
		if im.OK {
			_, _ = fmt.Fprintf(w, "%s: sound (%s)\n", im.File, sizeText(im.Bytes))
		} else {
			what := "DAMAGED"
			if im.Elsewhere {
				what = "NOT HERE"
			}
			_, _ = fmt.Fprintf(w, "%s: %s: %s\n", im.File, what, im.Error)
		}
	}
	if r.Damaged == 0 {
		what := "every byte"
		if r.Quick {
			what = "lengths and metadata (not the content of pages)"
		}
		_, _ = fmt.Fprintf(w, "%s: %d images, %s: checked %s, all sound\n", r.Path, len(r.Images), sizeText(total), what)
		if r.FoundLost != "" {
			_, _ = fmt.Fprintf(w, "%s: a restart has passed it over (%s); name it to have it tried again\n", r.Path, r.FoundLost)
		}
		if r.Kept > 0 {
			_, _ = fmt.Fprintf(w, "%s: %d files are kept beside them: lengths and samples of the content are as recorded\n", r.Path, r.Kept)
		}
	}
}

// isImageFile tells whether the argument names a file rather than a directory of checkpoints.
func isImageFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}
