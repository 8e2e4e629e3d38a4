// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/lazy"
	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/ckpt/snapshot"
	"github.com/libckpt/libckpt/ckpt/where"
	"github.com/libckpt/libckpt/internal/userfault"
)

// lazyFrom is how much memory an image has, before compression, from which auto is lazy. Filling less takes about as long as
// what else a restart does, and then a damaged image is found before the program continues. It is not the size of the file
// that counts: a gibibyte that is kept in 27 MiB takes 0.4 s to fill, or 3 s where a virtual machine's memory is dear to touch.
const lazyFrom = 64 << 20

// lazily prepares for memory of f that comes while the program runs, unless settle has read it. It returns which regions
// do, and the loader, not begun, is j.loader.
//
// Not in whole mode: calls of the runtime give libckpt addresses of the program's memory, which Go must not touch
// while it is missing (package lazy).
func (j *Job) lazily(r *Restart, f *image.File) (func(*image.Region) bool, error) {
	if r.ready.filled {
		j.tellForbidden(r.ready.forbidden)
		return nil, nil
	}
	l, err := lazy.New(f, lazy.Options{
		Failed: func(err error) { j.memoryLost(r, f, err) },
		Loaded: func() {
			j.host.Lazy(false)
			go func() {
				<-j.restored
				_ = f.Close()
			}()
		},
		Huge: func(i int) bool { return snapshot.Huge(f, i) },
	})
	if errors.Is(err, userfault.ErrForbidden) { // since the image was checked
		j.tellForbidden(err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	j.loader = l
	return l.Has, nil
}

// tellForbidden says why memory does not come while the program runs. nil: nobody wanted it to.
func (j *Job) tellForbidden(err error) {
	if err != nil && j.meta.Rank == 0 {
		j.log.Warn("memory is read before the program continues, not on first touch: "+userfault.Advice+"; or choose --restart-mode eager", zap.Error(err))
	}
}

// comesLater tells whether the memory of an image is to come while the program runs, or why the kernel forbids that.
func (r *Restart) comesLater(o launch.Options, f *image.File) (later bool, forbidden error) {
	if _, err := f.Section(sectionVerbs); err == nil { // an adapter wants memory, and does not fault
		return false, nil
	}
	if wants := r.wantsLazy(o); wants == nil || !wants(f.MemoryBytes()) {
		return false, nil
	}
	fd, err := userfault.Open()
	if errors.Is(err, userfault.ErrForbidden) {
		return false, err
	}
	if err == nil { // any other error is said when it is used
		_ = unix.Close(fd)
	}
	return true, nil
}

// wantsLazy tells whether that much memory of an image is to come while the program runs; nil: none is.
func (r *Restart) wantsLazy(o launch.Options) func(memory int64) bool {
	if o.Restarts == "eager" || r.Whole() {
		return nil
	}
	return func(memory int64) bool { return o.Restarts != "auto" || memory >= lazyFrom }
}

// later is wantsLazy where the kernel lets it.
func (r *Restart) later(o launch.Options) func(memory int64) bool {
	wants := r.wantsLazy(o)
	if wants == nil {
		return nil
	}
	fd, err := userfault.Open()
	if err != nil {
		return nil
	}
	_ = unix.Close(fd)
	return wants
}

// beginLazily serves the memory that the mapping has left out. threads is the section of that name.
func (j *Job) beginLazily(threads []byte) error {
	if j.loader == nil {
		return nil
	}
	j.host.Lazy(true)
	j.loaderRuns = true
	return j.loader.Begin(j.host.Stands(threads))
}

// doneWith closes an image unless the loader needs it.
func (j *Job) doneWith(f *image.File) {
	if j.loaderRuns { // which closes it
		close(j.restored)
		return
	}
	if j.loader != nil {
		j.loader.Close()
	}
	_ = f.Close()
}

// memoryLost ends the job: memory of the program cannot be had. Threads that have touched it stand still, and none
// has seen anything else.
func (j *Job) memoryLost(r *Restart, f *image.File, err error) {
	why := err.Error()
	corrupt, ok := errors.AsType[*image.CorruptError](err)
	if ok {
		why = corrupt.Where()
	}
	what := fmt.Sprintf("the job ends: a part of the program's memory cannot be restored, and nothing of it was used: %s; continue from another epoch (`ckptctl ls %s` lists them)",
		why, r.store.Dir())
	file := f.Name()
	if ok {
		file = corrupt.File
	}
	older := r.older(corrupt)
	switch {
	case ok && r.putAside(corrupt.File):
		what += "; the damaged image is put aside: the same restart gets it from another level, or takes an older epoch"
		older = ""
	case suspect(file, err) != nil:
	case older != "" && !r.named() && j.options.Fallback:
		what += "; this is noted beside the image: the same restart reads all of it first, and takes an older epoch if it is damaged"
	default:
		what += "; this is noted beside the image: the next restart reads all of it before it continues the program"
	}
	if older != "" {
		what += "; " + older
	}
	if !j.host.Say(fmt.Sprintf("ckptrun: rank %d: %s", j.meta.Rank, what)) {
		j.log.Error(what, zap.Int("rank", j.meta.Rank))
	}
	j.host.Fail(1)
}

// putAside has an image in this node's local directory count as missing.
func (r *Restart) putAside(path string) bool {
	return r.aside != "" && filepath.Dir(filepath.Dir(path)) == r.aside && levels.Aside(path)
}

// loading is what a rank does whose program runs while its memory comes.
const loading = "loading"

// tellEveryLoaded is how often rank 0 hears how much has come.
const tellEveryLoaded = 300 * time.Millisecond

// tellLoading keeps the status while memory is missing. The job serves requests.
func (j *Job) tellLoading() {
	if j.loader == nil {
		return
	}
	look := time.NewTicker(tellEveryLoaded)
	defer look.Stop()
	begun := time.Now()
	for {
		select {
		case <-j.loader.Closed():
			j.tellStatus(control.RankStatus{Phase: where.Computing})
			return
		case <-j.done:
			return
		case <-look.C:
			done, total := j.loader.Progress()
			j.tellStatus(control.RankStatus{Phase: loading, Detail: "memory from the image", Done: done, Total: total, Rate: float64(done) / time.Since(begun).Seconds()})
		}
	}
}

// finishLoading returns when all memory is there: a copy of the process would lack what is missing.
func (j *Job) finishLoading(ctx context.Context) error {
	if j.loader == nil {
		return nil
	}
	select {
	case <-j.loader.Closed():
		return nil
	default:
	}
	begun := time.Now()
	err := j.loader.Finish(ctx)
	if err != nil {
		done, total := j.loader.Progress()
		return fmt.Errorf("memory is still being read from the image that the program was continued from (%d of %d MiB): %w", done>>20, total>>20, err)
	}
	j.log.Info("the rest of the memory was read for a checkpoint", zap.Duration("took", time.Since(begun)))
	return nil
}

// MemoryChange is what a thread of the program does with memory.
type MemoryChange int

// Changes, as enum memory_change numbers them.
const (
	MemoryMoves  MemoryChange = 0 // all of it must be there
	MemoryGone   MemoryChange = 1 // what is missing is not wanted
	MemoryCopied MemoryChange = 2 // all memory must be there
)

// Memory is told of a change to the mappings of a program whose memory is not all there. When that memory cannot be
// had, it does not return: the process is ending.
func (p *Process) Memory(start, end uint64, change MemoryChange) {
	if p.Job == nil || p.Job.loader == nil {
		return
	}
	l := p.Job.loader
	var err error
	switch change {
	case MemoryMoves:
		err = l.Fill(start, end)
	case MemoryGone:
		err = l.Drop(start, end)
	case MemoryCopied:
		err = l.Finish(context.Background())
	}
	if err != nil {
		select {}
	}
}
