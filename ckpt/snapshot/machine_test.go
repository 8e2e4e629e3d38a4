// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// TestFlagsOfOneProcessor: of a file about many processors only the first is read.
func TestFlagsOfOneProcessor(t *testing.T) {
	first := "processor\t: 0\nmodel name\t: a: b\nflags\t\t: sse2 fpu avx\nvmx flags\t: vnmi\n"
	more := strings.Repeat(first, 100) // what a buffer may take too much
	flags, err := cpuFlags(io.MultiReader(strings.NewReader(more), iotest.ErrReader(errors.New("read to the end"))))
	if err != nil || !slices.Equal(flags, []string{"avx", "fpu", "sse2"}) {
		t.Errorf("%q, %v", flags, err)
	}
	if flags, err := cpuFlags(strings.NewReader("processor: 0\n")); err != nil || flags != nil {
		t.Errorf("%q, %v", flags, err)
	}
	if here, err := CPUFlags(); err != nil || len(here) == 0 {
		t.Errorf("%q, %v", here, err)
	}
}
