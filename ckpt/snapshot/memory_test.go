// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"testing"
)

func TestField(t *testing.T) {
	const text = "Rss:   12 kB\nPrivate_Dirty:        40 kB\nBad: x kB\nHuge: 99999999999999999999 kB\nLarge: 18446744073709551615 kB\n"
	for name, want := range map[string]uint64{"Rss": 12 << 10, "Private_Dirty": 40 << 10} {
		if got, ok := field(text, name); got != want || !ok {
			t.Errorf("%s: %d, %v", name, got, ok)
		}
	}
	for _, name := range []string{"Bad", "Huge", "Large", "Private", "None"} {
		if got, ok := field(text, name); ok {
			t.Errorf("%s: %d", name, got)
		}
	}
}

func TestGroups(t *testing.T) {
	for text, want := range map[string][]string{
		"0::/a/b.scope\n":             {"/a/b.scope", "/a", "/"},
		"4:memory:/x\n0::/\n":         {"/"},
		"4:memory:/x\n":               nil,
		"":                            nil,
		"0::/../../etc/../a\n":        {"/a", "/"},
		"0::/one\n0::/never-looked\n": {"/one", "/"},
	} {
		var got []string
		for dir := range groups(text) {
			got = append(got, dir)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q", text, got)
		}
	}
	if n := cached("anon 5\ninactive_file 4096\n") + cached("inactive_file x\n") + cached(""); n != 4096 {
		t.Errorf("%d bytes of files", n)
	}
}

func FuzzMemoryTexts(f *testing.F) {
	f.Add("Rss: 12 kB\n", "0::/a\n", "inactive_file 1\n")
	f.Fuzz(func(t *testing.T, fields, cgroup, stat string) {
		_, _ = field(fields, "Rss")
		_ = cached(stat)
		n := 0
		for dir := range groups(cgroup) {
			if n++; dir == "" || dir[0] != '/' {
				t.Fatalf("a group %q", dir)
			}
			if n > len(cgroup)+1 {
				t.Fatal("more groups than letters")
			}
		}
	})
}

// This process has memory, and the machine has some left; a copy that is none has nothing to say.
func TestMemoryOfThisProcess(t *testing.T) {
	if n, err := OwnMemory(); err != nil || n == 0 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if n, err := Available(); err != nil || n == 0 {
		t.Errorf("%d bytes available, %v", n, err)
	}
	if _, err := CopyMemory(0); err == nil {
		t.Error("process 0 has memory")
	}
}
