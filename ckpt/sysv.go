// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/snapshot"
	"github.com/libckpt/libckpt/ckpt/sysv"
)

// System V shared memory, semaphores and message queues of the program (ckpt/sysv). Who shares what is found out together, while
// all programs are stopped.

// SysVHost is a Host that translates ids of System V objects.
type SysVHost interface {
	SysV() sysv.Table
	SetSysV(sysv.Table)
}

// lookSysV finds this rank's objects, and tells whether there are any. The program is stopped.
func (a *attempt) lookSysV(maps []byte) bool {
	h, ok := a.j.host.(SysVHost)
	if !ok {
		return false
	}
	a.shared, a.sysvError = sysv.Look(maps, h.SysV(), snapshot.Upper)
	return a.sysvError != nil || a.shared.Any()
}

// matchSysV finds out who shares what. Collective.
func (a *attempt) matchSysV() {
	var mine sysv.Report
	if a.shared != nil {
		mine = a.shared.Report()
	}
	reports, err := gather(a, stepSysV, mine)
	if err == nil {
		err = a.sysvError
	}
	if err != nil {
		a.state.Failure = err.Error()
		return
	}
	if a.shared != nil {
		found := a.shared.Match(a.j.group.rank(), reports)
		a.state.Obstacles = append(a.state.Obstacles, found...)
		a.state.Lasting = append(a.state.Lasting, found...)
	}
}

// sharedHere are the segments of this rank when some rank has any.
func (a *attempt) sharedHere() *sysv.Here {
	if !a.sysv {
		return nil
	}
	return a.shared
}

// withoutSegments leaves the segments out of a copy of the process, until the function that it returns is called: the
// program sees how many have a segment attached.
func (a *attempt) withoutSegments() func() {
	pieces := a.sharedHere().Pieces()
	for _, p := range pieces {
		advisePiece(p, unix.MADV_DONTFORK)
	}
	return func() {
		for _, p := range pieces {
			advisePiece(p, unix.MADV_DOFORK)
		}
	}
}

func advisePiece(p sysv.Piece, advice int) {
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(p.Start), uintptr(p.End-p.Start), uintptr(advice))
}

func readSysV(f *image.File, rank, ranks int) (sysv.Section, error) {
	b, err := f.Section(sysv.SectionName)
	if err != nil {
		return sysv.Section{}, err
	}
	s, err := sysv.Decode(b, rank, ranks)
	if err != nil {
		err = fmt.Errorf("%s: section %q: %w", f.Name(), sysv.SectionName, err)
	}
	return s, err
}

// makeSysV makes the objects of an image again; nil when there are none, on all ranks. Collective.
func (j *Job) makeSysV(r *Restart, f *image.File, agree func(error) error, gather func([]byte) ([][]byte, error)) (*sysv.Restored, error) {
	section, err := readSysV(f, j.meta.Rank, j.meta.Ranks)
	if errors.Is(err, image.ErrNoSection) {
		return nil, nil
	}
	if err := agree(err); err != nil {
		return nil, err
	}
	made := sysv.Restore(section, j.meta.Rank, f.Take, filepath.Join(r.store.Dir(), fmt.Sprintf(".sysv-%d", j.meta.Rank)))
	words, err := gatherAs(gather, made.Word())
	if err == nil {
		err = made.Compare(words)
	}
	if err := agree(err); err != nil {
		return nil, err
	}
	mine, err := made.Make()
	if err := agree(err); err != nil {
		_ = made.Done(false)
		return nil, err
	}
	all, err := gatherAs(gather, mine)
	if err != nil {
		_ = made.Done(false)
		return nil, err
	}
	made.Take(all)
	err = agree(made.Undo())
	if err == nil {
		err = agree(made.Settle())
	}
	if err != nil {
		_ = made.Done(false)
		return nil, err
	}
	return made, nil
}

// endSysV ends it when all ranks have attached what they need.
func (j *Job) endSysV(made *sysv.Restored) error {
	if h, ok := j.host.(SysVHost); ok && made != nil {
		h.SetSysV(made.Table())
	}
	return made.Done(true)
}

// gatherAs is gather for values; nil is that of a process by itself.
func gatherAs[T any](gather func([]byte) ([][]byte, error), mine T) ([]T, error) {
	b, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all := [][]byte{b}
	if gather != nil {
		if all, err = gatherWith(gather, b); err != nil {
			return nil, err
		}
	}
	out := make([]T, len(all))
	for r, b := range all {
		if err := json.Unmarshal(b, &out[r]); err != nil {
			return nil, fmt.Errorf("what rank %d says: %w", r, err)
		}
	}
	return out, nil
}
