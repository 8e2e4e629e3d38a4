// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"slices"
	"testing"
)

func TestAgain(t *testing.T) {
	none := func(string) string { return "" }
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"nothing", []string{"app"}, []string{"--dir", "/there"}},
		{"a folder relative to where it started", []string{"--keep", "3", "--dir", "x", "app", "--dir", "y"}, []string{"--keep", "3", "--dir", "/there"}},
		{"one word", []string{"--dir=x", "--interval=1m", "--", "app"}, []string{"--interval=1m", "--dir", "/there"}},
		{"three words", []string{"--full", "every", "8", "--dir", "x", "app"}, []string{"--full", "every", "8", "--dir", "/there"}},
		{"continued", []string{"--restart", "x@3", "--log", "info"}, []string{"--log", "info", "--dir", "/there"}},
		{"a program that replaced another", []string{"--keep", "3", "--dir", "x", "--argv0", "--keep", "--", "app"}, []string{"--keep", "3", "--dir", "/there"}},
	} {
		o, _, own, err := Parse(c.args, none)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		o.Dir = "/there"
		got := Again(c.args[:own], o)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, expected %q", c.name, got, c.want)
		}
		if _, _, _, err := Parse(append(got, "other"), none); err != nil {
			t.Errorf("%s: %q are no options: %v", c.name, got, err)
		}
	}
}
