// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/libckpt/libckpt/ckpt/control"
)

// newScreen redraws lines on a terminal.
func newScreen(f *os.File) *mpb.Progress {
	return mpb.New(mpb.WithOutput(f), mpb.WithAutoRefresh())
}

// row is a line of a terminal that is redrawn: text, a bar when the total is known, and more text.
type row struct {
	bar          *mpb.Bar
	before, more atomic.Pointer[string]
}

// newRow adds a line below those that are there.
func newRow(p *mpb.Progress) *row {
	r := &row{}
	r.set("", 0, 0, "")
	text := func(s *atomic.Pointer[string]) decor.Decorator {
		return decor.Any(func(decor.Statistics) string { return *s.Load() })
	}
	style := mpb.BarStyle().Build()
	filler := mpb.BarFillerFunc(func(w io.Writer, s decor.Statistics) error {
		if s.Total <= 0 {
			return nil
		}
		return style.Fill(w, s)
	})
	r.bar = p.MustAdd(0, filler, mpb.BarWidth(24), mpb.PrependDecorators(text(&r.before)), mpb.AppendDecorators(text(&r.more)))
	return r
}

// set changes the line; total 0 means no bar.
func (r *row) set(before string, done, total uint64, more string) {
	r.before.Store(&before)
	r.more.Store(&more)
	if r.bar == nil {
		return
	}
	r.bar.SetTotal(clampInt64(total), false)
	r.bar.SetCurrent(clampInt64(min(done, total)))
}

// freeze leaves the line on the screen as it is.
func (r *row) freeze() { r.bar.Abort(false) }

func clampInt64(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// phases shows the phases of a checkpoint, a line each. On what is not a terminal it shows nothing.
type phases struct {
	progress *mpb.Progress
	row      *row
	last     control.Event
}

func newPhases(w io.Writer) *phases {
	f, ok := terminal(w)
	if !ok {
		return &phases{}
	}
	return &phases{progress: newScreen(f)}
}

// event shows news.
func (p *phases) event(e control.Event) {
	if p.progress == nil {
		return
	}
	if p.row == nil || e.Phase != p.last.Phase || e.Epoch != p.last.Epoch {
		p.leave(true)
		p.row = newRow(p.progress)
	}
	p.last = e
	done, total, more := eventText(e)
	p.row.set(fmt.Sprintf("%-12s ", e.Phase), done, total, more)
}

// leave is the end of the phase that is shown.
func (p *phases) leave(done bool) {
	if p.row == nil {
		return
	}
	if done {
		_, total, more := eventText(p.last)
		if total == 0 {
			more += " done"
		}
		p.row.set(fmt.Sprintf("%-12s ", p.last.Phase), total, total, more)
	}
	p.row.freeze()
	p.row = nil
}

// end is the end of the checkpoint.
func (p *phases) end(committed bool) {
	if p.progress == nil {
		return
	}
	p.leave(committed)
	p.progress.Wait()
}

// eventText is what a line says of an event: how far the bar goes, and what stands after it.
func eventText(e control.Event) (done, total uint64, more string) {
	switch {
	case e.Total > 0:
		done, total = e.Done, e.Total
		more = fmt.Sprintf(" %s of %s", sizeText(e.Done), sizeText(e.Total))
	case e.Of > 0:
		done, total = uint64(max(e.Ranks, 0)), uint64(e.Of)
	}
	if e.Of > 0 {
		more += fmt.Sprintf(" %d of %d ranks", e.Ranks, e.Of)
	}
	if e.Detail != "" {
		more += " " + e.Detail
	}
	return done, total, more
}
