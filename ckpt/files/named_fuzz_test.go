// SPDX-License-Identifier: Apache-2.0

package files

import (
	"slices"
	"testing"
)

// FuzzNamed: what the runtime says of its files becomes pairs, or an error.
func FuzzNamed(f *testing.F) {
	f.Add("wo\x00/a/b\x00d\x00/c\x00")
	f.Add("\x00\x00")
	f.Add("w")
	f.Fuzz(func(t *testing.T, list string) {
		all, own, err := ParseNamed(list)
		if err != nil && (all != nil || own != nil) {
			t.Errorf("%q: both", list)
		}
		for _, n := range own {
			if !slices.Contains(all, n) {
				t.Errorf("%q: %+v is not among all", list, n)
			}
		}
	})
}
