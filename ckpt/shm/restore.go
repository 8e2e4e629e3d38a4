// SPDX-License-Identifier: Apache-2.0

package shm

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/internal/fault"
)

// How segments are made again, before any thread of the program runs. Each step is collective over all processes of
// the job, whether they have segments or not, and nobody begins one before all have ended the one before:
//
//	Compare   all tell their nodes; processes of one segment on two nodes are refused
//	Make      the first holder of each makes its file
//	Open      all holders open it
//	Unname    the names are taken away; the caller maps the files, and fills those that its image has content for

// RestoreBytes is the length of what a process tells the others in Compare.
const RestoreBytes = 512

// about is what a process tells.
type about struct {
	Node  Node   `json:"node"`
	Nonce string `json:"nonce"`
	Wrong string `json:"wrong,omitempty"`
}

// Restored are the segments of a process that is continued from an image.
type Restored struct {
	rank int
	mine about
	made []*remade
}

type remade struct {
	Saved
	path string
	file *os.File
}

// Restore begins to make the segments of an image again.
func Restore(saved []Saved, rank int) *Restored {
	r := &Restored{rank: rank}
	for _, one := range saved {
		r.made = append(r.made, &remade{Saved: one})
	}
	r.mine.Nonce = nonce()
	var err error
	if r.mine.Node, err = Here(); err != nil {
		r.mine.Wrong = err.Error()
	}
	return r
}

// Tell is this process's word for Compare, of RestoreBytes.
func (r *Restored) Tell() []byte {
	b, err := json.Marshal(r.mine)
	if err != nil || len(b) > RestoreBytes { // a host name, or an error, of more than a line
		b, _ = json.Marshal(about{Nonce: r.mine.Nonce, Wrong: "it cannot say which node it is on"})
	}
	return append(b, strings.Repeat(" ", RestoreBytes-len(b))...)
}

// Compare checks that the processes of each segment share a node, by the words of all.
func (r *Restored) Compare(words [][]byte) error {
	for _, one := range r.made {
		lead := one.Holders[0]
		var first about
		for _, p := range one.Holders {
			var w about
			if p >= len(words) || json.Unmarshal(words[p], &w) != nil {
				return failed(ErrSystem, one.Name, "process %d does not say which node it is on", p)
			}
			if w.Wrong != "" {
				return failed(ErrSystem, one.Name, "process %d: %s", p, w.Wrong)
			}
			if p == lead {
				first = w
			}
			if err := apart(&Spec{Name: one.Name, Processes: one.Holders}, lead, first.Node, p, w.Node); err != nil {
				return err
			}
		}
		one.path = path(first.Nonce, one.Name)
	}
	return nil
}

// Make makes the files of the segments that this process saves.
func (r *Restored) Make() error {
	for _, one := range r.made {
		if one.Holders[0] != r.rank {
			continue
		}
		f, err := create(&one.Spec, one.path)
		if err != nil {
			return r.here(err)
		}
		one.file = f
		if err := fault.Point("shm.remade"); err != nil {
			return r.here(err)
		}
	}
	return nil
}

// Open opens the files that others have made.
func (r *Restored) Open() error {
	for _, one := range r.made {
		if one.Holders[0] == r.rank {
			continue
		}
		f, err := open(&Spec{Name: one.Name, Processes: one.Holders}, one.path)
		if err != nil {
			return r.here(err)
		}
		one.file = f
	}
	return nil
}

// here adds who says so.
func (r *Restored) here(err error) error {
	kind := error(ErrSystem)
	if e := (*Error)(nil); errors.As(err, &e) {
		kind = e.Kind
	}
	return &Error{kind, fmt.Sprintf("%s (process %d, host %s)", err, r.rank, r.mine.Node.Host)}
}

// Unname takes the names away that there may be, whoever made the files.
func (r *Restored) Unname() {
	for _, one := range r.made {
		if one.path != "" {
			remove(one.path)
		}
	}
}

// File is the file that a region is to be mapped of; nil when the region is part of no segment.
func (r *Restored) File(region *image.Region) (*os.File, error) {
	name := RegionOf(region)
	if r == nil || name == "" {
		return nil, nil
	}
	i := slices.IndexFunc(r.made, func(one *remade) bool { return one.Name == name })
	if i < 0 || r.made[i].file == nil {
		return nil, fmt.Errorf("the image does not say what the shared segment %q is", name)
	}
	if size := r.made[i].mapped(); region.Offset > size || region.Bytes() > size-region.Offset {
		return nil, fmt.Errorf("shared segment %q has %d bytes, which end before this part of it", name, size)
	}
	return r.made[i].file, nil
}

// Close closes the files: what is mapped stays.
func (r *Restored) Close() {
	for _, one := range r.made {
		if one.file != nil {
			one.file.Close()
			one.file = nil
		}
	}
}
