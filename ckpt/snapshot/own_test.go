// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"reflect"
	"testing"

	"github.com/libckpt/libckpt/ckpt/image"
)

// Shared mappings that a runtime made for this rank are saved as its own memory; others stay what they are.
func TestOwn(t *testing.T) {
	file := image.Region{Start: 0x2000, End: 0x4000, Offset: 0x1000, Path: "/dev/shm/x (deleted)", Flags: image.FlagFile | image.FlagShared}
	private := file
	private.Flags = image.FlagFile
	longer := file
	longer.End = 0x5000
	own := image.Region{Start: 0x2000, End: 0x4000, Name: "[window]", Flags: image.FlagAnonymous | image.FlagShared}
	for name, c := range map[string]struct {
		region    image.Region
		addresses []uint64
		want      image.Region
	}{
		"nothing of the runtime's": {file, nil, file},
		"elsewhere":                {file, []uint64{0x4000, 0x8000}, file},
		"private":                  {private, []uint64{0x2000, 0x4000}, private},
		"more than it made":        {longer, []uint64{0x2000, 0x4000}, longer},
		"the second of two":        {file, []uint64{0x1000, 0x2000, 0x2000, 0x4000}, own},
	} {
		got := []image.Region{c.region}
		Own(got, c.addresses)
		if !reflect.DeepEqual(got[0], c.want) {
			t.Errorf("%s: %+v, expected %+v", name, got[0], c.want)
		}
	}
}
