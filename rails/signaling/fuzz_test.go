// SPDX-License-Identifier: Apache-2.0

package signaling

import "testing"

// FuzzLost: a report of a lost rank names ranks of the job, or is none.
func FuzzLost(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 2, 'g', 'o', 'n', 'e'}, 3)
	f.Add([]byte{255, 255, 255, 255, 0, 0, 0, 0}, 1)
	f.Fuzz(func(t *testing.T, b []byte, ranks int) {
		e, err := decodeLost(b, max(ranks, 1))
		if err == nil && (e.Rank < 0 || e.Rank >= max(ranks, 1) || e.By < 0 || e.By >= max(ranks, 1)) {
			t.Errorf("%x: %+v", b, e)
		}
	})
}
