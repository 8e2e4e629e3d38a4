// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestFull: "every N" is one value however it is written, and never a part of the program's command line.
func TestFull(t *testing.T) {
	for _, c := range []struct {
		args string // words separated by bars
		env  string
		want int // 0: wrong usage
		rest string
	}{
		{"app", "", 1, "app"},
		{"--full|every|8|app|x", "", 8, "app|x"},
		{"--full|every|8|--|app|x", "", 8, "app|x"},
		{"--keep|3|--full|every|8|--log|info|app", "", 8, "app"},
		{"--whole|--full|every|8|app", "", 8, "app"},
		{"--full=every 8|app", "", 8, "app"},
		{"--full|every 8|app", "", 8, "app"},
		{"--full|8|app|9", "", 8, "app|9"},
		{"--full=8|app", "", 8, "app"},
		{"app", "every 4", 4, "app"},
		{"app", "4", 4, "app"},
		{"--full|every|1|app", "every 4", 1, "app"},
		{"app|--full|every|8", "", 1, "app|--full|every|8"},
		{"--|app|--full|every|8", "", 1, "app|--full|every|8"},
		{"--dir|--full|every|8", "", 1, "every|8"}, // a directory of that name
		{"--full|every|app", "", 0, "every app"},
		{"--full|every", "", 0, `"every"`},
		{"--full|0|app", "", 0, `"0"`},
		{"--full|every|1001|app", "", 0, "1000"},
		{"--full|every|-1|app", "", 0, "-1"},
		{"--full=|app", "", 0, `""`},
		{"--full|every 8 9|app", "", 0, "every 8 9"},
		{"app", "always", 0, "CKPT_FULL"},
	} {
		args := strings.Split(c.args, "|")
		o, rest, own, err := Parse(args, environment(map[string]string{"CKPT_FULL": c.env}))
		if c.want == 0 {
			var e *Error
			if !errors.As(err, &e) || e.Status != ExitUsage || !strings.Contains(err.Error(), c.rest) {
				t.Errorf("%s: %v", c.args, err)
			}
			continue
		}
		if err != nil || o.Full != c.want || strings.Join(rest, "|") != c.rest {
			t.Errorf("%s with %q: every %d, program %q, %v", c.args, c.env, o.Full, rest, err)
			continue
		}
		// What this program starts gets the same.
		if o, _, _, err := Parse(append(Again(args[:own], o), "other"), environment(map[string]string{"CKPT_FULL": c.env})); err != nil || o.Full != c.want {
			t.Errorf("%s, again: every %d, %v", c.args, o.Full, err)
		}
	}
	o := defaults()
	for _, text := range []string{"full = 'every 6'", "full = 6"} {
		if err := o.takeFile("ckpt.toml", []byte(text)); err != nil || o.Full != 6 {
			t.Errorf("%s: every %d, %v", text, o.Full, err)
		}
	}
	for _, text := range []string{"full = 0", "full = [6]", "full = true"} {
		if err := o.takeFile("ckpt.toml", []byte(text)); err == nil {
			t.Error(fmt.Errorf("%s is taken as every %d", text, o.Full))
		}
	}
}
