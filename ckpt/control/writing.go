// SPDX-License-Identifier: Apache-2.0

package control

import "time"

// phaseWrite is the phase of a rank that writes its image.
const phaseWrite = "write"

// Writing is how far the ranks that write are with their images, all together.
type Writing struct {
	Done  uint64     `json:"done"`          // bytes of memory ...
	Total uint64     `json:"total"`         // ... of so many
	Rate  float64    `json:"rate"`          // a second
	End   *time.Time `json:"end,omitempty"` // when the slowest is done at its rate; not given once all are
}

// WritingOf adds up what the ranks say; nil when none writes, or nothing is known yet.
func WritingOf(ranks []RankStatus, now time.Time) *Writing {
	var w Writing
	var left float64
	for _, r := range ranks {
		if r.Phase != phaseWrite || r.Total == 0 {
			continue
		}
		w.Done, w.Total = w.Done+r.Done, w.Total+r.Total
		if r.Rate > 0 {
			w.Rate += r.Rate
			left = max(left, float64(r.Total-min(r.Done, r.Total))/r.Rate)
		}
	}
	if w.Total == 0 || w.Rate == 0 {
		return nil
	}
	if w.Done < w.Total {
		const most = 100 * 365 * 24 * 3600 // of seconds, so that a time can be made of it
		end := now.Add(time.Duration(min(left, most) * float64(time.Second)).Round(time.Second))
		w.End = &end
	}
	return &w
}
