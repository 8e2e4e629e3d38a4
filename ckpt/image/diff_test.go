// SPDX-License-Identifier: Apache-2.0

package image

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	in, mem := sample()
	first, _ := mustWrite(t, in, Options{Compress: CompressSnappy, Chunk: 8 * PageSize})
	a := mustOpen(t, first)

	// The same memory, cut and compressed otherwise.
	again, _ := mustWrite(t, in, Options{Compress: CompressZstd, Chunk: PageSize})
	got, err := Diff(t.Context(), a, mustOpen(t, again))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Difference{Same: 9 * PageSize}, got); diff != "" {
		t.Errorf("the same memory (-want +got):\n%s", diff)
	}

	// One page changed, one became zero, one began to hold data; a region more, a region less.
	at := func(i int) uint64 { return testBase + uint64(i)*PageSize }
	other := fakeMemory{}
	for k, v := range mem {
		other[k] = append([]byte{}, v...)
	}
	other[at(0)][5]++
	clear(other[at(1)])
	other[at(15)] = append([]byte{}, mem[at(0)]...)
	other[at(60)] = append([]byte{}, mem[at(0)]...)
	in.Memory = other
	in.Regions = append([]Region{}, in.Regions[0], in.Regions[2], in.Regions[3],
		Region{Start: at(60), End: at(64), Flags: FlagAnonymous})
	in.Sections = []Section{{"threads", []byte("four threads")}, {"new", nil}}
	second, _ := mustWrite(t, in, Options{Chunk: 8 * PageSize})
	got, err = Diff(t.Context(), a, mustOpen(t, second))
	if err != nil {
		t.Fatal(err)
	}
	want := Difference{Same: 6 * PageSize, Changed: 3 * PageSize, Added: PageSize, Removed: PageSize,
		Sections: []SectionChange{{"regions", got.Sections[0].Before, got.Sections[0].After},
			{"threads", 13, 12}, {"empty", 0, -1}, {"new", -1, 0}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other memory (-want +got):\n%s", diff)
	}
}
