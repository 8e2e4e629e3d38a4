// SPDX-License-Identifier: Apache-2.0

package regions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"unsafe"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/regions"
	"github.com/libckpt/libckpt/rails/signaling"
)

// ErrNone says that there is nothing to be loaded: a fresh start. It may be wrapped.
var ErrNone = ckpt.ErrNoneSaved

// Block says which part of an array that is spread over all ranks a piece holds: elements First to First+Count of Whole
// in each dimension, the last one running fastest, of Element bytes. Without dimensions all ranks have the same content.
// Pieces with a block are loaded in any number of ranks.
type Block = regions.Block

// Options of a job; the zero value serves. Others, such as how many epochs are kept, are those of ckptrun, from the
// environment (CKPT_KEEP) and DIR/ckpt.toml.
type Options struct {
	// Epoch to be loaded; 0: the newest whole one.
	Epoch int
}

// Job is one rank of a job that saves what its ranks protect. One goroutine at a time calls its methods; those that are
// collective are called by all ranks, in one order.
type Job struct {
	job   *ckpt.Job
	list  []piece // by id
	level int
	lost  []string
}

type piece struct {
	id    int
	data  []byte
	block *Block
	save  func(io.Writer) error // instead of data
	load  func(io.Reader) error
}

// Open begins a job in dir; "" is CKPT_DIR, or "ckpt". Collective. It fails when another job has the directory.
func Open(ctx context.Context, dir string, c Comm, opt Options) (*Job, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if opt.Epoch < 0 {
		return nil, fmt.Errorf("there is no epoch %d", opt.Epoch)
	}
	o, err := ckpt.NamedOptions(dir, os.Getenv)
	if err != nil {
		return nil, err
	}
	if opt.Epoch > 0 {
		o.Restart = fmt.Sprintf("%s@%d", o.Dir, opt.Epoch)
	}
	level, err := ckpt.DefaultLevel(o, os.Getenv)
	if err != nil {
		return nil, err
	}
	job, err := ckpt.OpenNamed(c, "none", "", nil, o, zap.NewNop())
	if err != nil {
		return nil, err
	}
	return &Job{job: job, level: level}, nil
}

// Protect makes p a piece of this rank's state, under a number of the program's own. p is read in Checkpoint and
// written in Recover; its memory stays where it is. Again with the same number: it is p from now on, which may have
// another length.
func (j *Job) Protect(id int, p []byte) error {
	return j.put(piece{id: id, data: p})
}

// ProtectFunc makes a piece of what save writes; load reads it back, up to EOF.
func (j *Job) ProtectFunc(id int, save func(io.Writer) error, load func(io.Reader) error) error {
	if save == nil || load == nil {
		return fmt.Errorf("piece %d: it needs both functions", id)
	}
	return j.put(piece{id: id, save: save, load: load})
}

func (j *Job) put(p piece) error {
	if p.id < 0 {
		return fmt.Errorf("piece %d: a number is 0 or greater", p.id)
	}
	for _, o := range j.list {
		if o.id != p.id && overlap(p.data, o.data) {
			return fmt.Errorf("piece %d overlaps piece %d", p.id, o.id)
		}
	}
	i, there := j.find(p.id)
	if there {
		j.list[i] = p
	} else {
		j.list = slices.Insert(j.list, i, p)
	}
	return nil
}

func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}

func (j *Job) find(id int) (int, bool) {
	return slices.BinarySearchFunc(j.list, id, func(p piece, id int) int { return p.id - id })
}

// Distribute says that a piece is a part of an array that is spread over all ranks, see Block. Protect of the same
// number takes it back.
func (j *Job) Distribute(id int, b Block) error {
	i, there := j.find(id)
	if !there {
		return fmt.Errorf("piece %d is not protected", id)
	}
	if j.list[i].save != nil {
		if len(b.Whole) != 0 {
			return fmt.Errorf("piece %d is written by a function: it can be the same on all ranks, but not a part of an array", id)
		}
	} else if err := b.Check(uint64(len(j.list[i].data))); err != nil {
		return fmt.Errorf("piece %d: %w", id, err)
	}
	b.Whole, b.First, b.Count = slices.Clone(b.Whole), slices.Clone(b.First), slices.Clone(b.Count)
	j.list[i].block = &b
	return nil
}

// Unprotect takes a piece out of the state.
func (j *Job) Unprotect(id int) error {
	i, there := j.find(id)
	if !there {
		return fmt.Errorf("piece %d is not protected", id)
	}
	j.list = slices.Delete(j.list, i, i+1)
	return nil
}

// Level says which failures the next epochs survive: 1 (of a process), 2 and 3 (of some nodes) to 4 (of all nodes). All
// ranks say the same. 1 to 3 need CKPT_LOCAL. Without a word CKPT_LEVEL holds; without that CKPT_LEVELS, or 4.
func (j *Job) Level(level int) error {
	if err := j.job.CheckLevel(level); err != nil {
		return err
	}
	j.level = level
	return nil
}

// Saved looks what there is to be loaded, and loads nothing. Collective when it or Recover is called first. ErrNone:
// there is nothing. Damaged epochs are passed over; Lost says which.
func (j *Job) Saved(ctx context.Context) (epoch int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	epoch, j.lost, err = j.job.Look()
	return epoch, err
}

// Lost says, a line each, which newer epochs could not be loaded when Saved looked, and why.
func (j *Job) Lost() []string { return j.lost }

// SavedBytes is the length of a piece of this rank in what Saved found.
func (j *Job) SavedBytes(id int) (int, error) {
	n, err := j.job.SavedBytes(id)
	return int(n), err
}

// Recover loads what was saved into all that is protected, on all ranks, or on none. Collective, and before the first
// Checkpoint. The epoch has what is protected now, with the same lengths; with another number of ranks all pieces have
// blocks. ErrNone: nothing was saved.
func (j *Job) Recover(ctx context.Context) (epoch int, err error) {
	epoch, err = j.Saved(ctx)
	if err != nil {
		return 0, err
	}
	list, streams := j.targets(func(id int) int {
		n, err := j.SavedBytes(id)
		if err != nil {
			return 0 // LoadNamed says so
		}
		return n
	})
	if err := j.job.LoadNamed(list); err != nil {
		return 0, err
	}
	return epoch, streams()
}

// targets is where pieces are loaded to; those of functions are read by them afterwards.
func (j *Job) targets(bytesOf func(id int) int) (list []ckpt.Protected, streams func() error) {
	list = make([]ckpt.Protected, len(j.list))
	for i, p := range j.list {
		if p.load != nil {
			p.data = make([]byte, bytesOf(p.id))
		}
		list[i] = ckpt.Protected{ID: p.id, Data: p.data, Block: p.block}
	}
	return list, func() error {
		for i, p := range j.list {
			if p.load == nil {
				continue
			}
			if err := p.load(bytes.NewReader(list[i].Data)); err != nil {
				return fmt.Errorf("piece %d: %w", p.id, err)
			}
		}
		return nil
	}
}

// RecoverOne loads one piece, of this rank alone; Saved has found the epoch.
func (j *Job) RecoverOne(id int) error {
	i, there := j.find(id)
	if !there {
		return fmt.Errorf("piece %d is not protected", id)
	}
	p := j.list[i]
	if p.load != nil {
		n, err := j.SavedBytes(id)
		if err != nil {
			return err
		}
		p.data = make([]byte, n)
	}
	if err := j.job.LoadOne(ckpt.Protected{ID: p.id, Data: p.data, Block: p.block}); err != nil || p.load == nil {
		return err
	}
	return p.load(bytes.NewReader(p.data))
}

// Checkpoint saves what is protected, and returns when the epoch is committed. Collective. On error there is none: the
// last one is whole, the job goes on, and may try again. ctx is looked at before anything is done: once begun, all ranks
// come to the end.
func (j *Job) Checkpoint(ctx context.Context) (epoch int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	list := make([]ckpt.Protected, len(j.list))
	var failed error
	for i, p := range j.list {
		if p.save != nil {
			var b bytes.Buffer
			if err := p.save(&b); err != nil && failed == nil {
				failed = fmt.Errorf("piece %d: %w", p.id, err)
			}
			p.data = b.Bytes()
		}
		list[i] = ckpt.Protected{ID: p.id, Data: p.data, Block: p.block}
	}
	state, epoch, err := j.job.SaveNamed(list, j.level, failed)
	if err == nil && state != ckpt.StateCheckpoint {
		err = errors.New("nothing was saved")
	}
	return epoch, err
}

// Network is the ranks' own network, which notices when one is lost. Kinds of messages from 0x1000 on are the program's, and
// tags of its collectives from 1<<63 on.
func (j *Job) Network() *signaling.Network { return j.job.Network() }

// Close ends the job and gives the directory back. Collective. Epochs stay.
func (j *Job) Close(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return j.job.Close()
}
