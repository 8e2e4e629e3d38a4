// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"strings"
	"testing"
)

// TestOvercommit: a value that the kernel knows is explained, and what is none stays what it was.
func TestOvercommit(t *testing.T) {
	for _, value := range []string{"0", "1", "2"} {
		if text := overcommit(value); !strings.HasPrefix(text, value+": ") {
			t.Errorf("%s: %q", value, text)
		}
	}
	if text := overcommit("no such file"); text != "no such file" {
		t.Errorf("an error became %q", text)
	}
}
