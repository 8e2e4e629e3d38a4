// SPDX-License-Identifier: Apache-2.0

package vid

import "fmt"

// Real returns the real handle of a live object.
func (t *Tables) Real(id ID) (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.live(id) {
		return 0, fmt.Errorf("vid: %v %#x: %w", id.Kind(), uint32(id), ErrStale)
	}
	return t.mem.slot(id).real, nil
}

// Live counts the live objects of a kind that Go gave out, predefined ones excluded.
func (t *Tables) Live(k Kind) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for id, o := range t.objects {
		if o.live && id.Kind() == k && !id.IsPredefined() {
			n++
		}
	}
	return n
}
