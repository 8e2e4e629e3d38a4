// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/internal/written"
	"github.com/libckpt/libckpt/rails/signaling"
)

// imageReport is what a rank says of its image.
type imageReport struct {
	Error   string  `json:"error,omitempty"`
	Bytes   int64   `json:"bytes"`
	Digest  string  `json:"digest"`
	Payload uint64  `json:"payload"`
	Host    string  `json:"host"`
	Stop    float64 `json:"stop"`
	Tasks   []int   `json:"tasks,omitempty"` // ranks in it, where that is another number than one
	// Passages are the stages up to the image.
	Passages []passage `json:"passages,omitempty"`
	WentOn   int64     `json:"wentOn,omitempty"` // when the program ran again, as in Passages
	// AllStopped is when this rank heard that all were stopped, by the same clock.
	AllStopped int64  `json:"allStopped,omitempty"`
	Shared     uint64 `json:"shared,omitempty"`
	Unread     uint64 `json:"unread,omitempty"` // of Shared, known to be as it was without being read
	Same       uint64 `json:"same,omitempty"`   // of Shared, by the image of another rank
	Others     []int  `json:"others,omitempty"` // ranks whose images it refers to
	Upon       int    `json:"upon,omitempty"`   // epoch upon which it was written
	Needs      []int  `json:"needs,omitempty"`  // epochs that it refers to

	next ancestor // for this rank's next image, once the epoch is committed
}

// writePatiently writes this rank's image. When the time is over, the writing is left to itself, with all that it
// needs of the capture.
func (a *attempt) writePatiently() error {
	j, c := a.j, a.capture
	a.capture = nil // undo leaves it alone
	path := j.imagePath(a.epoch)
	type outcome struct {
		image.Summary
		upon ancestor
		mark written.Mark
	}
	sum, err := patiently(a.ctx, &j.slow, fmt.Sprintf("writing %s", path),
		func() (outcome, error) {
			defer c.done()
			upon := j.upon()
			sum, err := a.writeImage(a.ctx, c, upon)
			if err != nil && a.copy != 0 && hasEnded(a.copy) {
				err = fmt.Errorf("the frozen copy of the program, process %d, was killed before its image was written, perhaps by the kernel for lack of memory: %w", a.copy, err)
			}
			return outcome{sum, upon, c.writes.mark}, err
		},
		func(_ outcome, err error) {
			if err == nil {
				_ = os.Remove(path) // its epoch is given up, and the directory may be gone
			}
		})
	if err == nil {
		err = a.image.take(&sum.Summary, a.epoch, a.j.group.rank(), sum.upon)
		a.image.next.mark = sum.mark
	}
	return err
}

// commitAll is rank 0's part of the commit: all images are on stable storage, or there is no epoch.
func (a *attempt) commitAll(all []imageReport) (decision, error) {
	j := a.j
	var begun atomic.Bool // the manifest may be in place
	last := func() error {
		begun.Store(true)
		if a.ctx.Err() != nil {
			begun.Store(false)
			return context.Cause(a.ctx)
		}
		return nil
	}
	_, err := patiently(a.ctx, &j.slow, fmt.Sprintf("committing epoch %d", a.epoch),
		func() (struct{}, error) { return struct{}{}, a.commitManifest(all, last) },
		func(_ struct{}, err error) {
			if err != nil {
				j.abandon(a.epoch)
				return
			}
			j.log.Warn("an epoch is committed after its time: the disk has answered", zap.Int("epoch", a.epoch))
			j.mu.Lock()
			defer j.mu.Unlock()
			j.status.Epoch = max(j.status.Epoch, a.epoch)
		})
	if err != nil {
		if a.ctx.Err() != nil && begun.Load() {
			a.doubt = true
			err = fmt.Errorf("%w; whether epoch %d is committed is not known before it does: `ckptctl ls %s` will tell",
				err, a.epoch, j.store.Dir())
		}
		return decision{}, err
	}
	_, err = patiently(a.ctx, &j.slow, "removing old epochs",
		func() (struct{}, error) { return struct{}{}, j.retire() }, nil)
	if err != nil {
		j.log.Warn("old epochs could not be removed", zap.Error(err))
	}
	d := decision{}
	for _, one := range all {
		d.Bytes += uint64(one.Bytes)
		d.Stop = max(d.Stop, one.Stop)
	}
	return d, nil
}

// abandon removes an epoch that was begun, now, or when the disk answers.
func (a *attempt) abandon(epoch int) error {
	if a.doubt {
		return nil
	}
	if a.j.slow.obstacle() != "" {
		go a.j.abandon(epoch)
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), abandonWait, control.ErrTimeout)
	defer cancel()
	if a.ctx.Err() == nil {
		ctx = context.Background() // nobody is in a hurry
	}
	_, err := patiently(ctx, &a.j.slow, fmt.Sprintf("removing epoch %d", epoch),
		func() (struct{}, error) { return struct{}{}, a.j.store.Abandon(epoch) }, nil)
	return err
}

// abandonWait is how long an answer whose time is over waits until the files of the epoch are removed.
const abandonWait = time.Second

func (j *Job) abandon(epoch int) {
	if err := j.store.Abandon(epoch); err != nil {
		j.log.Warn("an epoch that was given up could not be removed", zap.Error(err))
	}
}

// epochLost turns the end of the signaling network into a sentence about the epoch.
func epochLost(err error) error {
	var l *signaling.LostError
	if errors.As(err, &l) {
		return fmt.Errorf("epoch given up: %w", err)
	}
	return err
}

// hasEnded tells whether a child of this process is no more than an exit status.
func hasEnded(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" Z"))
}

func (a *attempt) writeImage(ctx context.Context, c *capture, upon ancestor) (image.Summary, error) {
	j := a.j
	if c.failed != nil {
		return image.Summary{}, c.failed
	}
	c.meta.Epoch = a.epoch
	c.meta.Time = a.stoppedAt.UTC()
	c.meta.Chain = upon.chain + 1
	meta, err := json.Marshal(c.meta)
	if err != nil {
		return image.Summary{}, err
	}
	sections := c.sections
	if j.regional == nil {
		fileTable, err := c.table.Encode()
		if err != nil {
			return image.Summary{}, fmt.Errorf("open files: %w", err)
		}
		sections = append([]image.Section{{Name: sectionFiles, Data: fileTable}}, sections...)
	}
	memory, closeMemory, err := a.memory(c)
	if err != nil {
		return image.Summary{}, fmt.Errorf("reading the program's memory: %w", err)
	}
	defer closeMemory()
	path := j.imagePath(a.epoch)
	if err := j.beginLocal(a.epoch); err != nil {
		return image.Summary{}, err
	}
	last, begun := time.Time{}, time.Now()
	how := image.Options{Compress: j.options.Compress, Model: &j.written, Track: j.tracks(), ReadSoon: j.levels != nil, Progress: func(done, total uint64) {
		if now := time.Now(); now.Sub(last) > tellEvery || done == total {
			last = now
			a.progress(control.RankStatus{Phase: stageWrite.String(), Done: done, Total: total, Rate: float64(done) / now.Sub(begun).Seconds()})
		}
	}}
	if a.copy != 0 && !a.held {
		// The program runs. One thread is as good as any of the program's, or there would never be an epoch of a program
		// that uses all processors; the others take what is left.
		how.Workers, how.Helpers = 1, min(runtime.GOMAXPROCS(0)-1, mostHelpers)
		how.Limit = j.options.WriteLimit
	}
	if f := a.same.feed; f != nil {
		how.Tell = f.tell
	}
	j.madeAt(a.epoch, c.meta.Made)
	synced := syncing(c.held)
	sum, err := image.Write(ctx, path,
		image.Input{Meta: meta, Sections: sections, Regions: c.regions, Memory: memory, Parent: upon.parent, Elder: a.same.elder,
			Unwritten: j.unwritten(c, upon)}, how)
	// The image says how much the files held, and a restart relies on that. Whatever became of the image, the files stay
	// open until they are not used any more.
	closed, e := synced()
	switch {
	case err != nil:
	case e != nil:
		err = e
	case c.held != nil:
		j.host.ClosedSafe(closed)
	}
	return sum, err
}

// syncing makes the program's files durable while the image is written: the commit waits for the slower of the two. The result
// waits for the end, and returns what Sync does.
func syncing(held *files.Held) func() (closed uint64, err error) {
	if held == nil {
		return func() (uint64, error) { return 0, nil }
	}
	var closed uint64
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		closed, err = held.Sync()
	}()
	return func() (uint64, error) {
		<-done
		return closed, err
	}
}

// mostHelpers bounds the memory that writing takes, a few MiB for each.
const mostHelpers = 15

// memory is where the pages of the image come from.
func (a *attempt) memory(c *capture) (m image.Memory, done func(), err error) {
	if c.memory != nil {
		return c.memory, func() {}, nil
	}
	var p *image.ProcessMemory
	if a.copy != 0 {
		p, err = image.OpenProcess(a.copy)
	} else {
		p, err = image.OpenSelf()
	}
	if err != nil {
		if errors.Is(err, fs.ErrPermission) && a.copy != 0 {
			err = fmt.Errorf("%w: the kernel keeps this process from the memory of its children; where kernel.yama.ptrace_scope is 2 or 3, --snapshot stop does without", err)
		}
		return nil, nil, err
	}
	return p, func() { p.Close() }, nil
}

// commitManifest commits the epoch. last is called just before the commit can no longer be undone; if it returns an
// error, there is no commit.
func (a *attempt) commitManifest(all []imageReport, last func() error) error {
	j := a.j
	m := &store.Manifest{Libckpt: Version, Ranks: j.rankCount(), MPI: j.meta.MPI, Program: j.meta.Program,
		Args: j.meta.Args, TotalSeconds: time.Since(a.asked).Seconds(), Asked: a.asked.UTC()}
	if m.Ranks != len(all) {
		m.Processes = len(all)
	}
	seen := map[string]bool{}
	asked := a.allStopped.Add(a.asked.Sub(a.allStopped)) // by the clock as it was then
	for r, one := range all {
		one.byOurClock(all[0].AllStopped)
		if one.Error != "" {
			return fmt.Errorf("epoch %d given up: rank %d: %s", a.epoch, r, one.Error)
		}
		m.Images = append(m.Images, store.Image{Rank: r, Tasks: j.tasksOf(r), File: store.ImageName(r), Bytes: one.Bytes,
			Digest: one.Digest, Payload: one.Payload, Shared: one.Shared, Same: one.Same, Others: one.Others, Unread: one.Unread, Host: one.Host, StopSeconds: one.Stop, Phases: phasesOf(one.Passages, asked),
			StillUntil: stillUntil(one.WentOn, asked)})
		if !seen[one.Host] {
			seen[one.Host] = true
			m.Hosts = append(m.Hosts, one.Host)
		}
		m.StopSeconds = max(m.StopSeconds, one.Stop)
	}
	describeLineage(m, all)
	switch {
	case j.regional == nil:
	case j.regional.named != nil:
		m.Mode, m.Level = modeRegions, a.state.Level
	default:
		describeTasks(m, all)
	}
	j.recordLevels(m)
	m.Chosen = j.chosen()
	if err := j.store.Commit(a.epoch, m, last); err != nil {
		return err
	}
	if err := j.store.AppendHistory(m); err != nil {
		j.log.Warn("what the epoch cost is not kept beyond its manifest", zap.Error(err))
	}
	return nil
}

// beginEpoch has rank 0 make the directory of the next epoch.
func (a *attempt) beginEpoch() error {
	j := a.j
	n, err := patiently(a.ctx, &j.slow, "making the directory of an epoch", j.nextEpoch, func(n int, err error) {
		if err == nil {
			j.abandon(n)
		}
	})
	if err == nil {
		a.begun, a.epoch, a.state.Epoch = true, n, n
	}
	return err
}

func (j *Job) nextEpoch() (int, error) {
	n, err := j.store.Next()
	if err != nil {
		return 0, err
	}
	n = j.afterObjects(n)
	return n, j.store.Begin(n)
}
