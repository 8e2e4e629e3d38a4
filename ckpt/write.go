// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/rails/signaling"
)

// writer takes a captured state to stable storage and, with the other ranks, to a committed epoch.
type writer struct {
	*attempt
	pid int // frozen child; 0: the stopped program itself
}

// written is what a rank says of its image.
type written struct {
	Error   string  `json:"error,omitempty"`
	Bytes   int64   `json:"bytes"`
	Digest  string  `json:"digest"`
	Payload uint64  `json:"payload"`
	Host    string  `json:"host"`
	Stop    float64 `json:"stop"`
}

// decision is what rank 0 tells after the commit.
type decision struct {
	Error string  `json:"error,omitempty"`
	Bytes uint64  `json:"bytes"`
	Stop  float64 `json:"stop"`
}

// write returns when the epoch is committed, on all ranks, or given up. imaged is called once this
// rank's memory is not needed any more.
func (w *writer) write(imaged func()) outcome {
	j := w.j
	ctx := context.Background()
	w.phase("write")
	sum, err := w.writeImage(ctx)
	if w.pid != 0 {
		j.host.Thaw(w.pid)
		j.mu.Lock()
		delete(j.frozen, w.pid)
		j.mu.Unlock()
	}
	imaged()
	mine := written{Host: j.meta.Host, Stop: w.stop.Seconds()}
	if err != nil {
		mine.Error = err.Error()
	} else {
		mine.Bytes, mine.Digest, mine.Payload = sum.Bytes, sum.Digest.String(), sum.PayloadBytes
	}
	w.phase("commit")
	all, err := exchange(ctx, j.group, w.tag(stepCommit), nil, mine)
	var d decision
	if j.group.rank() == 0 {
		d = w.commit(all, err)
	}
	if err != nil {
		return outcome{err: lost(err)}
	}
	told, err := exchange(ctx, j.group, w.tag(stepOutcome), nil, d)
	if err != nil && j.group.rank() != 0 {
		return outcome{err: lost(err)}
	}
	if j.group.rank() != 0 {
		d = told[0]
	}
	if d.Error != "" {
		return outcome{err: errors.New(d.Error)}
	}
	return outcome{result: control.Result{Epoch: w.epoch, Bytes: d.Bytes,
		Seconds: time.Since(w.asked).Seconds(), Safe: w.stopped.Sub(w.asked).Seconds(), Stopped: d.Stop}}
}

// lost turns the end of the signaling network into a sentence about the epoch.
func lost(err error) error {
	var l *signaling.LostError
	if errors.As(err, &l) {
		return fmt.Errorf("epoch given up: %w", err)
	}
	return err
}

func (w *writer) writeImage(ctx context.Context) (image.Summary, error) {
	j := w.j
	c := w.capture
	c.meta.Epoch = w.epoch
	c.meta.Time = w.stopped.UTC()
	meta, err := json.Marshal(c.meta)
	if err != nil {
		return image.Summary{}, err
	}
	if err := files.SyncNamed(c.named); err != nil {
		return image.Summary{}, err
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
	return image.Write(ctx, path,
		image.Input{Meta: meta, Sections: c.sections, Regions: c.regions, Memory: memory},
		image.Options{Compress: j.options.Compress, Progress: func(done, total uint64) {
			if now := time.Now(); now.Sub(last) > tellEvery || done == total {
				last = now
				w.progress(control.RankStatus{Phase: "write", Done: done, Total: total, Rate: float64(done) / now.Sub(begun).Seconds()})
			}
		}})
}

// commit is rank 0's part: all images are on stable storage, or the epoch goes.
func (w *writer) commit(all []written, err error) decision {
	j := w.j
	if err == nil {
		err = w.commitManifest(all)
	}
	if err != nil {
		if aerr := j.store.Abandon(w.epoch); aerr != nil {
			err = fmt.Errorf("%w; and its directory could not be removed: %w", err, aerr)
		}
		return decision{Error: err.Error()}
	}
	if _, err := j.store.Retire(j.options.Keep); err != nil {
		j.log.Warn("old epochs could not be removed", zap.Error(err))
	}
	d := decision{}
	for _, one := range all {
		d.Bytes += uint64(one.Bytes)
		d.Stop = max(d.Stop, one.Stop)
	}
	return d
}

func (w *writer) commitManifest(all []written) error {
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
	return j.store.Commit(w.epoch, m)
}

// beginEpoch makes the directory of the next epoch.
func (j *Job) beginEpoch() (int, error) {
	n, err := j.store.Next()
	if err != nil {
		return 0, err
	}
	return n, j.store.Begin(n)
}
