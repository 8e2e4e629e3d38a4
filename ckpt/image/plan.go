// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// DefaultChunk is how much memory one chunk covers unless Options says otherwise. Measured: smaller
// chunks cost more system calls, larger ones leave the cache between reading, digest and writing.
const DefaultChunk = 512 << 10

// minZeroRun is the shortest run of zero bytes for which a chunk is cut in two. A shorter run costs
// less as data than as another chunk.
const minZeroRun = 4 * PageSize

// job is what a worker reads at a time: a range of one region that lies in one window. Windows begin
// at multiples of the chunk size, so that chunks of two images of a process have the same bounds.
type job struct {
	region     int
	start, end uint64
}

// plan lists what has to be read, in order of address, and how many bytes that is.
func plan(in *Input, window uint64) (jobs []job, total uint64, err error) {
	for i := range in.Regions {
		r := &in.Regions[i]
		if r.Flags&FlagNoData != 0 {
			continue
		}
		extents := []Extent{{Start: r.Start, End: r.End}}
		switch {
		case r.Copied != nil:
			extents, err = r.Copied.Present(r.Start, r.End)
		case r.Held != nil:
			extents = slices.Clone(r.Held)
		case r.Flags&(FlagFile|FlagShared) == 0: // the page tables of one process do not show the content of others
			extents, err = in.Memory.Present(r.Start, r.End)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("region %v: which pages hold data: %w", r, err)
		}
		extents = joinNear(extents)
		for _, e := range extents {
			if e.Start < r.Start || e.End > r.End || e.Start >= e.End {
				return nil, 0, fmt.Errorf("region %v: Present answers 0x%x-0x%x", r, e.Start, e.End)
			}
			for at := e.Start; at < e.End; {
				end := min(e.End, at-at%window+window)
				jobs = append(jobs, job{i, at, end})
				total += end - at
				at = end
			}
		}
	}
	return jobs, total, nil
}

// joinNear joins extents with only a few pages between them, because one read and one chunk are cheaper
// than two.
func joinNear(list []Extent) []Extent {
	out := list[:0]
	for _, e := range list {
		if n := len(out); n > 0 && e.Start >= out[n-1].End && e.Start-out[n-1].End < minZeroRun {
			out[n-1].End = e.End
		} else {
			out = append(out, e)
		}
	}
	return out
}

// cut calls f with the parts of p that are worth storing: it leaves out zero pages at both ends and
// runs of at least minZeroRun between. It returns how many bytes it left out.
func cut(p []byte, f func(from, to int) error) (zero int, err error) {
	from, to := -1, 0 // the part being built; -1 when there is none
	flush := func() error {
		if from < 0 {
			return nil
		}
		zero -= to - from
		return f(from, to)
	}
	zero = len(p)
	for at := 0; at < len(p); at += PageSize {
		if isZero(p[at : at+PageSize]) {
			continue
		}
		if from >= 0 && at-to >= minZeroRun {
			if err := flush(); err != nil {
				return 0, err
			}
			from = -1
		}
		if from < 0 {
			from = at
		}
		to = at + PageSize
	}
	return zero, flush()
}

// isZero tells whether all bytes are zero. len(p) is a multiple of 32.
func isZero(p []byte) bool {
	ne := binary.NativeEndian
	for len(p) >= 32 {
		if ne.Uint64(p)|ne.Uint64(p[8:])|ne.Uint64(p[16:])|ne.Uint64(p[24:]) != 0 {
			return false
		}
		p = p[32:]
	}
	return true
}
