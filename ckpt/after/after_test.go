// SPDX-License-Identifier: Apache-2.0

package after

import "testing"

func TestParse(t *testing.T) {
	for _, a := range []Action{Continue, Exit, Kill} {
		if got, err := Parse(string(a)); got != a || err != nil {
			t.Errorf("%q: %q, %v", a, got, err)
		}
	}
	for _, s := range []string{"", "Exit", "exit ", "stop"} {
		if got, err := Parse(s); got != "" || err == nil {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
}
