// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/rails/signaling"
)

// writer takes a captured state to stable storage and, with the other ranks, to a committed epoch.
type writer struct {
	*attempt
	pid int // frozen child; 0: the stopped program itself
}

// imageReport is what a rank says of its image.
type imageReport struct {
	Error   string  `json:"error,omitempty"`
	Bytes   int64   `json:"bytes"`
	Digest  string  `json:"digest"`
	Payload uint64  `json:"payload"`
	Host    string  `json:"host"`
	Stop    float64 `json:"stop"`
}

// decision is what rank 0 tells after the commit.
type decision struct {
	Error   string   `json:"error,omitempty"`   // there is no epoch
	Refused []string `json:"refused,omitempty"` // the reasons, when it was refused
	Bytes   uint64   `json:"bytes"`
	Stop    float64  `json:"stop"`
}

// write returns when the epoch is committed, on all ranks, or given up. imaged is called once this
// rank's memory is not needed any more; unless the program is held, it goes on then.
func (w *writer) write(imaged func()) outcome {
	j := w.j
	w.phase("write")
	path := j.store.ImagePath(w.epoch, j.group.rank())
	sum, err := patiently(w.ctx, &j.slow, fmt.Sprintf("writing %s", path),
		func() (image.Summary, error) {
			defer w.capture.done()
			sum, err := w.writeImage(w.ctx)
			if err != nil && w.pid != 0 && hasEnded(w.pid) {
				err = fmt.Errorf("the frozen copy of the program, process %d, was killed before its image was written, as by the kernel for want of memory: %w", w.pid, err)
			}
			return sum, err
		},
		func(_ image.Summary, err error) {
			if err == nil {
				_ = os.Remove(path) // its epoch is given up, and the directory may be gone
			}
		})
	if w.pid != 0 {
		j.host.Thaw(w.pid)
		j.mu.Lock()
		delete(j.frozen, w.pid)
		j.mu.Unlock()
	} else if !w.held {
		w.allFrozen()
		w.goOn()
	}
	imaged()
	mine := imageReport{Host: j.meta.Host, Stop: w.stoppedFor.Seconds()}
	if err != nil {
		mine.Error = err.Error()
	} else {
		mine.Bytes, mine.Digest, mine.Payload = sum.Bytes, sum.Digest.String(), sum.PayloadBytes
	}
	if err == nil {
		w.phase("commit")
	}
	all, lost := step(w.attempt, stepCommit, nil, mine)
	if lost != nil && err != nil && w.ctx.Err() != nil { // this rank is the one that is late
		lost = err
	}
	if j.group.rank() == 0 {
		return w.decide(all, lost)
	}
	return w.learn(lost)
}

// fail lets the program go on and says why there is no epoch.
func (w *writer) fail(err error) outcome {
	if w.held {
		w.goOn()
	}
	return outcome{err: w.failure(err)}
}

func (w *writer) result(d decision) outcome {
	return outcome{result: control.Result{Epoch: w.epoch, Bytes: d.Bytes,
		Seconds: time.Since(w.asked).Seconds(), Safe: w.stoppedAt.Sub(w.asked).Seconds(), Stopped: d.Stop}}
}

// decide is rank 0's part: all images are on stable storage, or the epoch goes.
func (w *writer) decide(all []imageReport, err error) outcome {
	var d decision
	if err == nil {
		d, err = w.commit(all)
	}
	if err != nil {
		if w.held {
			w.goOn()
		}
		if aerr := w.abandon(w.epoch); aerr != nil {
			err = fmt.Errorf("%w; and its directory could not be removed: %w", err, aerr)
		}
		// Only then the others are told: their answer must not be taken for the reason.
		err = w.failure(err)
		if !w.announced {
			w.announce(noEpoch(err))
		}
		return outcome{err: err}
	}
	w.announce(d)
	return w.result(d)
}

// commit returns when the epoch is committed, or is not.
func (w *writer) commit(all []imageReport) (decision, error) {
	j := w.j
	var begun atomic.Bool // the manifest may be in place
	last := func() error {
		begun.Store(true)
		if w.ctx.Err() != nil {
			begun.Store(false)
			return context.Cause(w.ctx)
		}
		return nil
	}
	_, err := patiently(w.ctx, &j.slow, fmt.Sprintf("committing epoch %d", w.epoch),
		func() (struct{}, error) { return struct{}{}, w.commitManifest(all, last) },
		func(_ struct{}, err error) {
			if err != nil {
				j.abandon(w.epoch)
				return
			}
			j.log.Warn("an epoch is committed after its time: the disk has answered", zap.Int("epoch", w.epoch))
			j.mu.Lock()
			defer j.mu.Unlock()
			j.status.Epoch = max(j.status.Epoch, w.epoch)
		})
	if err != nil {
		if w.ctx.Err() != nil && begun.Load() {
			w.doubt = true
			err = fmt.Errorf("%w; whether epoch %d is committed is not known before it does: `ckptctl ls %s` will tell",
				err, w.epoch, j.store.Dir())
		}
		return decision{}, err
	}
	_, err = patiently(w.ctx, &j.slow, "removing old epochs",
		func() (struct{}, error) { _, err := j.store.Retire(j.options.Keep); return struct{}{}, err }, nil)
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

// learn is the part of the others: they wait for rank 0's word. One whose program is held waits for as long
// as there is a rank 0, since the epoch may be committed, and the program is to end then. Others need not
// know.
func (w *writer) learn(err error) outcome {
	j := w.j
	if err != nil {
		j.tell(0, kindSurrender, surrender{ID: w.id, Why: err.Error(), Stands: w.held})
	}
	ended := w.ctx.Done()
	if w.held {
		ended = nil
	}
	var limit <-chan time.Time
	for {
		select {
		case d := <-w.told:
			if d.Error != "" {
				return w.fail(d.err())
			}
			return w.result(d)
		case <-j.net.Failed():
			return w.fail(epochLost(j.net.Err()))
		case <-ended: // rank 0's word may be the reason, or on its way
			ended, limit = nil, time.After(surrenderWait)
		case <-limit:
			if err == nil {
				err = context.Cause(w.ctx)
			}
			return w.fail(fmt.Errorf("what became of epoch %d is not known here: %w", w.epoch, err))
		}
	}
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

// abandonWait is how long the answer waits for what was written of an epoch to be removed, when its time is
// over.
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

func (w *writer) writeImage(ctx context.Context) (image.Summary, error) {
	j := w.j
	c := w.capture
	if c.failed != nil {
		return image.Summary{}, c.failed
	}
	c.meta.Epoch = w.epoch
	c.meta.Time = w.stoppedAt.UTC()
	meta, err := json.Marshal(c.meta)
	if err != nil {
		return image.Summary{}, err
	}
	fileTable, err := c.table.Encode()
	if err != nil {
		return image.Summary{}, fmt.Errorf("open files: %w", err)
	}
	var memory *image.ProcessMemory
	if w.pid != 0 {
		memory, err = image.OpenProcess(w.pid)
	} else {
		memory, err = image.OpenSelf()
	}
	if err != nil {
		return image.Summary{}, fmt.Errorf("reading the program's memory: %w", err)
	}
	defer memory.Close()
	path := j.store.ImagePath(w.epoch, j.group.rank())
	last, begun := time.Time{}, time.Now()
	sections := append([]image.Section{{Name: sectionFiles, Data: fileTable}}, c.sections...)
	sum, err := image.Write(ctx, path,
		image.Input{Meta: meta, Sections: sections, Regions: c.regions, Memory: memory},
		image.Options{Compress: j.options.Compress, Progress: func(done, total uint64) {
			if now := time.Now(); now.Sub(last) > tellEvery || done == total {
				last = now
				w.progress(control.RankStatus{Phase: "write", Done: done, Total: total, Rate: float64(done) / now.Sub(begun).Seconds()})
			}
		}})
	if err != nil {
		return sum, err
	}
	// The image tells how much the files held, and a restart counts on it.
	return sum, c.held.Sync()
}

// commitManifest commits the epoch, unless last, which is called just before that cannot be undone any
// more, has an error.
func (w *writer) commitManifest(all []imageReport, last func() error) error {
	j := w.j
	m := &store.Manifest{Libckpt: Version, Ranks: len(all), MPI: j.meta.MPI, Program: j.meta.Program,
		Args: j.meta.Args, TotalSeconds: time.Since(w.asked).Seconds()}
	seen := map[string]bool{}
	for r, one := range all {
		if one.Error != "" {
			return fmt.Errorf("epoch %d given up: rank %d: %s", w.epoch, r, one.Error)
		}
		m.Images = append(m.Images, store.Image{Rank: r, File: store.ImageName(r), Bytes: one.Bytes,
			Digest: one.Digest, Payload: one.Payload, Host: one.Host})
		if !seen[one.Host] {
			seen[one.Host] = true
			m.Hosts = append(m.Hosts, one.Host)
		}
		m.StopSeconds = max(m.StopSeconds, one.Stop)
	}
	return j.store.Commit(w.epoch, m, last)
}

// beginEpoch makes the directory of the next epoch.
func (j *Job) beginEpoch() (int, error) {
	n, err := j.store.Next()
	if err != nil {
		return 0, err
	}
	return n, j.store.Begin(n)
}
