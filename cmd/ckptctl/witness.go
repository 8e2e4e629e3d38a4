// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/internal/tap"
)

// witness watches the sockets of a job's processes while a checkpoint is made. It proves, or not, that no byte moved on
// the job's sockets from the end of the drain of messages until the program ran again: what an image holds of messages
// is then all there was.
type witness struct {
	ranks   []watchedRank
	sockets *tap.Sockets
	offset  int64 // of the clock of the day from the one of the kernel's records, in nanoseconds

	mu   sync.Mutex
	own  map[int]map[uint64]bool // by process: sockets of libckpt's own, over which ranks tell each other how far they are
	all  map[int]map[uint64]bool
	stop context.CancelFunc
	done chan struct{}
}

// witnessReport is what the witness has seen.
type witnessReport struct {
	Proven   bool          `json:"proven"`
	Epoch    int           `json:"epoch"`
	Ranks    []witnessRank `json:"ranks"`
	Problems []string      `json:"problems,omitempty"` // why it is not proven
}

type witnessRank struct {
	Rank    int     `json:"rank"`
	PID     int     `json:"pid"`
	Sockets int     `json:"sockets"` // of the job
	Own     int     `json:"own"`     // of libckpt, left out
	Before  uint64  `json:"before"`  // bytes that moved on the job's sockets before the window
	Moved   uint64  `json:"moved"`   // in the window
	After   uint64  `json:"after"`
	From    float64 `json:"from"` // the window, in seconds after the request
	Until   float64 `json:"until"`
}

// ownEvery is how often it is looked which sockets are libckpt's own: connections are made at any time.
const ownEvery = 20 * time.Millisecond

// maxDrift is by how much the clock of the day may be set, or run apart, while we watch.
const maxDrift = 100 * time.Microsecond

func newWitness(ctx context.Context, dir string) (*witness, error) {
	if err := tap.Allowed(); err != nil {
		return nil, fmt.Errorf("--witness: %w", err)
	}
	ranks, elsewhere, err := localRanks(ctx, dir)
	if err != nil {
		return nil, err
	}
	if len(elsewhere) > 0 {
		return nil, fmt.Errorf("--witness: ranks %s run on other hosts, whose sockets cannot be seen from here: no checkpoint was asked for", ranksText(elsewhere))
	}
	var pids []int
	for _, r := range ranks {
		pids = append(pids, r.pid)
	}
	w := &witness{ranks: ranks, own: map[int]map[uint64]bool{}, all: map[int]map[uint64]bool{}, done: make(chan struct{})}
	if err := w.look(); err != nil {
		return nil, err
	}
	if w.offset, err = clockOffset(); err != nil {
		return nil, err
	}
	if w.sockets, err = tap.WatchSockets(pids); err != nil {
		return nil, fmt.Errorf("--witness: %w", err)
	}
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(w.done)
		for ctx.Err() == nil {
			_ = w.look() // a process that has ended shows in the end
			select {
			case <-ctx.Done():
			case <-time.After(ownEvery):
			}
		}
	}()
	return w, nil
}

// look notes which sockets there are.
func (w *witness) look() error {
	for _, r := range w.ranks {
		own, err := tap.GoSocketsOf(r.pid)
		if err != nil {
			return fmt.Errorf("rank %d: %w", r.rank, err)
		}
		all, err := tap.SocketsOf(r.pid)
		if err != nil {
			return fmt.Errorf("rank %d: %w", r.rank, err)
		}
		w.mu.Lock()
		for _, m := range []map[int]map[uint64]bool{w.own, w.all} {
			if m[r.pid] == nil {
				m[r.pid] = map[uint64]bool{}
			}
		}
		maps.Copy(w.own[r.pid], own)
		maps.Copy(w.all[r.pid], all)
		w.mu.Unlock()
	}
	return nil
}

// clockOffset is by how much the clock of the day is ahead of the monotonic one.
func clockOffset() (int64, error) {
	best, offset := int64(1<<62), int64(0)
	for range 16 {
		var before, day, after unix.Timespec
		if err := errors.Join(unix.ClockGettime(unix.CLOCK_MONOTONIC, &before), unix.ClockGettime(unix.CLOCK_REALTIME, &day),
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &after)); err != nil {
			return 0, err
		}
		if took := after.Nano() - before.Nano(); took < best {
			best, offset = took, day.Nano()-before.Nano()-took/2
		}
	}
	return offset, nil
}

// end stops watching without a word.
func (w *witness) end() ([]tap.Moved, error) {
	w.stop()
	<-w.done
	return w.sockets.Stop()
}

// judge says what was seen of an epoch.
func (w *witness) judge(m *store.Manifest) (*witnessReport, error) {
	moved, err := w.end()
	r := &witnessReport{Epoch: m.Epoch}
	if errors.Is(err, tap.ErrLost) {
		r.Problems = append(r.Problems, err.Error())
	} else if err != nil {
		return nil, err
	}
	now, err := clockOffset()
	if err != nil {
		return nil, err
	}
	if drift := time.Duration(now - w.offset).Abs(); drift > maxDrift {
		r.Problems = append(r.Problems, fmt.Sprintf("the clock was set by %v meanwhile", drift))
	}
	w.weigh(r, m, moved)
	r.Proven = len(r.Problems) == 0
	return r, nil
}

// weigh sorts what moved by process and time.
func (w *witness) weigh(r *witnessReport, m *store.Manifest, moved []tap.Moved) {
	problem := func(format string, args ...any) { r.Problems = append(r.Problems, fmt.Sprintf(format, args...)) }
	for _, who := range w.ranks {
		line := witnessRank{Rank: who.rank, PID: who.pid, Own: len(w.own[who.pid])}
		for s := range w.all[who.pid] {
			if !w.own[who.pid][s] {
				line.Sockets++
			}
		}
		n := m.ImageOf(who.rank)
		if n < 0 {
			problem("rank %d is not in the epoch", who.rank)
			continue
		}
		var known bool
		if line.From, line.Until, known = window(&m.Images[n]); !known {
			problem("the manifest does not say when rank %d was drained and saved: an older libckpt runs the job", who.rank)
			continue
		}
		asked := m.Asked.UnixNano() - w.offset
		from, until := asked+int64(line.From*1e9), asked+int64(line.Until*1e9)
		in := map[uint64]uint64{}
		for _, x := range moved {
			at := int64(x.At)
			switch {
			case x.PID != who.pid || w.own[who.pid][x.Socket]:
			case at < asked:
			case at < from:
				line.Before += uint64(x.Bytes)
			case at <= until:
				in[x.Socket] += uint64(x.Bytes)
				line.Moved += uint64(x.Bytes)
			default:
				line.After += uint64(x.Bytes)
			}
		}
		for _, s := range slices.Sorted(maps.Keys(in)) {
			problem("rank %d: %d bytes moved on the socket with inode %d between drain and snapshot", who.rank, in[s], s)
		}
		r.Ranks = append(r.Ranks, line)
	}
}

// window is when nothing may move, in seconds after the request: from the end of the drain until the memory is safe. That
// is just before the program runs again, or, of one that does not, when its image is written.
func window(im *store.Image) (from, until float64, known bool) {
	drained, written := -1.0, -1.0
	for _, p := range im.Phases {
		switch p.Name {
		case "drain":
			drained = p.At + p.Seconds
		case "write":
			written = p.At + p.Seconds
		}
	}
	until = im.StillUntil
	if until == 0 {
		until = written
	}
	return drained, until, drained >= 0 && until >= drained
}

func (r *witnessReport) print(w io.Writer) {
	sockets, own, before, longest := 0, 0, uint64(0), 0.0
	for _, l := range r.Ranks {
		sockets, own, before, longest = sockets+l.Sockets, own+l.Own, before+l.Before, max(longest, l.Until-l.From)
	}
	if r.Proven {
		_, _ = fmt.Fprintf(w, "witness: no byte moved on the %d sockets of %d ranks between drain and snapshot (%s); %s did from the request to the drain; %d sockets of libckpt's own are left out\n",
			sockets, len(r.Ranks), durationText(secondsOf(longest)), sizeText(before), own)
		return
	}
	for _, p := range r.Problems {
		_, _ = fmt.Fprintf(w, "witness: %s\n", p)
	}
}

// errNotProven is the end of a checkpoint that was made, and whose witness cannot swear to it.
func (r *witnessReport) err() error {
	if r.Proven {
		return nil
	}
	return fmt.Errorf("epoch %d is committed; that no byte moved on the job's sockets between drain and snapshot is not proven", r.Epoch)
}
