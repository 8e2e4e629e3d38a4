// SPDX-License-Identifier: Apache-2.0

package snapshot

import "testing"

// What an image lists must be a program's memory: nothing else is hidden by a restart.
func TestHiddenCheck(t *testing.T) {
	good := HiddenRange{Start: ArenaStart + 0x400000, End: ArenaStart + 0x500000, Gone: true}
	if err := (Hidden{good}).Check(); err != nil {
		t.Error(err)
	}
	for _, r := range []HiddenRange{
		{Start: good.End, End: good.Start},
		{Start: 0, End: 4096},
		{Start: ArenaEnd, End: ArenaEnd + 4096},
		{Start: Tables, End: Tables + 4096},
		{Start: good.Start, End: good.Start},
	} {
		if (Hidden{good, r}).Check() == nil {
			t.Errorf("0x%x-0x%x is taken for a program's memory", r.Start, r.End)
		}
	}
}
