// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"os"
	"slices"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/posixshm"
	"github.com/libckpt/libckpt/ckpt/snapshot"
)

// lookPosix says which files this rank writes to through its memory. The program is stopped. Without a report this rank, and
// the others, save more than they have to; why there is none ends the attempt where memory is looked at.
func lookPosix(maps []byte) *posixshm.Report {
	report, err := posixshm.Look(maps, snapshot.Upper)
	if err != nil {
		return nil
	}
	return report
}

// posixWord is what a rank says before a restart.
type posixWord struct {
	posixshm.Word
	Failed bool `json:"failed,omitempty"`
}

// makePosix makes the files again that the program has mapped as shared memory and that are not there (ckpt/posixshm), before
// any file is looked at. why is what is wrong with this rank already. Collective.
func (j *Job) makePosix(f *image.File, why error, agree func(error) error, gather func([]byte) ([][]byte, error)) (*posixshm.Restored, error) {
	made, err := posixshm.Restore(f, j.meta.Rank)
	if why != nil {
		err = why
	}
	mine := posixWord{Failed: err != nil}
	if err == nil {
		mine.Word = made.Word()
	}
	all, lost := gatherAs(gather, mine)
	if lost != nil {
		return nil, lost
	}
	if slices.ContainsFunc(all, func(w posixWord) bool { return w.Failed }) {
		return nil, agree(err)
	}
	words := make([]posixshm.Word, len(all))
	for r := range all {
		words[r] = all[r].Word
	}
	err = made.Compare(words)
	if !made.Any() { // on any rank: there is nothing to agree about
		return made, nil
	}
	if err = agree(err); err == nil {
		err = agree(made.Make())
	}
	if err != nil {
		made.Done(false)
		return nil, err
	}
	return made, nil
}

// openPosix opens them, when files that were kept are in their places. Collective.
func openPosix(made *posixshm.Restored, agree func(error) error) error {
	if !made.Any() {
		return nil
	}
	defer made.Unname() // whatever becomes of the others
	if err := agree(made.Open()); err != nil {
		return err
	}
	return agree(made.Clear())
}

// sharedFile is the file that a region of shared memory is mapped of.
func (j *Job) sharedFile(mapped *posixshm.Restored) func(*image.Region) (*os.File, error) {
	return func(r *image.Region) (*os.File, error) {
		if file, err := mapped.File(r); file != nil || err != nil {
			return file, err
		}
		return j.remade.File(r)
	}
}
