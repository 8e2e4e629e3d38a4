// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/image"
)

// filesSection is where an image has the table of open files.
const filesSection = "files"

// openFiles reads the table of open files; nil when the image has none.
func openFiles(f *image.File) (*files.Table, error) {
	b, err := f.Section(filesSection)
	if errors.Is(err, image.ErrNoSection) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t, err := files.Decode(b)
	if err != nil {
		return nil, fmt.Errorf("%s: section %q: %w", f.Name(), filesSection, err)
	}
	return &t, nil
}

// outputReport is a file that the program was writing, and how it is kept.
type outputReport struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	Kept   string `json:"kept"`             // files.Keep*; "" when nobody tried
	File   string `json:"file,omitempty"`   // beside the image
	KeptBy *int   `json:"keptBy,omitempty"` // the rank that keeps it, when that is another one
	Why    string `json:"why,omitempty"`    // why it is not kept as a copy or clone
}

func outputs(t *files.Table) []outputReport {
	var list []outputReport
	for i := range t.Files {
		f := &t.Files[i]
		if f.Kind != files.KindRegular || !f.Written {
			continue
		}
		o := outputReport{Path: string(f.Path), Bytes: f.Inode.Size, KeptBy: f.KeptBy}
		if f.Kept != nil {
			k := &t.Kept[*f.Kept]
			o.Kept, o.File, o.Why = k.How, k.File, k.Why
		}
		if !slices.ContainsFunc(list, func(e outputReport) bool { return e.Path == o.Path }) {
			list = append(list, o)
		}
	}
	return list
}

// keptText says it in words.
func (o *outputReport) keptText() string {
	switch {
	case o.KeptBy != nil:
		return fmt.Sprintf("by rank %d", *o.KeptBy)
	case o.Kept == files.KeepCopy:
		return "copied into the image"
	case o.Kept == files.KeepClone:
		return "cloned as " + o.File
	case o.Kept == files.KeepLink:
		return fmt.Sprintf("linked as %s: %s", o.File, o.Why)
	case o.Kept == files.KeepNot:
		return "not: " + o.Why
	}
	return "not (--files)"
}

// verifyKept checks what is kept of files, in that folder, for the image of a rank.
func verifyKept(f *image.File, folder string) (int, error) {
	t, err := openFiles(f)
	if err != nil || t == nil {
		return 0, err
	}
	return files.CheckKept(*t, folder)
}
