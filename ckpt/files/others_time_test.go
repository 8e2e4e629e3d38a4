// SPDX-License-Identifier: Apache-2.0

package files

import (
	"testing"
	"time"
)

// TestMayHaveWritten: a launcher that is started at once after the last writing has not written; a script may have.
func TestMayHaveWritten(t *testing.T) {
	const at = time.Hour
	for _, c := range []struct {
		name    string
		started time.Duration
		want    bool
	}{
		{"mpiexec", at - time.Second, true},
		{"mpiexec", at - 5*time.Millisecond, false},
		{"bash", at - 5*time.Millisecond, true},
		{"python3", at - 5*time.Millisecond, true},
		{"bash", at + time.Millisecond, false},
		{"mpiexec", at + time.Second, false},
	} {
		if got := (&process{name: c.name, started: c.started}).mayHaveWritten(at); got != c.want {
			t.Errorf("%s, started %v after: %v", c.name, c.started-at, got)
		}
	}
}
