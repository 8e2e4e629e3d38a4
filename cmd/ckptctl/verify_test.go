// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/store"
)

// TestVerifyMeaning: an image may be what was written, byte for byte, and still be nothing that a rank can be
// restarted from.
func TestVerifyMeaning(t *testing.T) {
	good := ckpt.Meta{Version: 1, Epoch: 1, Rank: 0, Ranks: 1, MPI: store.MPI{Name: "mpich", ABI: "mpich"}, Program: "./heat", Dir: "/"}
	meta := func(change func(*ckpt.Meta)) []byte {
		m := good
		change(&m)
		return testMeta(t, m)
	}
	region := image.Region{Start: 0x102000000000, End: 0x102000001000, Prot: 3, Flags: image.FlagAnonymous}
	outside := image.Region{Start: 0x7f0000000000, End: 0x7f0000001000, Prot: 3, Flags: image.FlagAnonymous}
	without := func(name string) []image.Section {
		return slices.DeleteFunc(testSections(t), func(s image.Section) bool { return s.Name == name })
	}
	for _, c := range []struct {
		name string
		in   image.Input
		says []string // none: it is sound
	}{
		{"sound", image.Input{Meta: testMeta(t, good), Sections: testSections(t), Regions: []image.Region{region}}, nil},
		{"empty metadata", image.Input{Meta: nil, Sections: testSections(t)}, []string{`section "meta"`}},
		{"blank metadata", image.Input{Meta: []byte("{}"), Sections: testSections(t)}, []string{"version 0"}},
		{"blanks", image.Input{Meta: []byte("      "), Sections: testSections(t)}, []string{`section "meta"`}},
		{"only a version", image.Input{Meta: []byte(`{"version":1}`), Sections: testSections(t)}, []string{`section "meta"`, "rank 0 of 0"}},
		{"later version", image.Input{Meta: meta(func(m *ckpt.Meta) { m.Version = 2 }), Sections: testSections(t)}, []string{"version 2"}},
		{"another rank", image.Input{Meta: meta(func(m *ckpt.Meta) { m.Rank, m.Ranks = 1, 2 }), Sections: testSections(t)}, []string{"rank 1 of 2", "manifest"}},
		{"another epoch", image.Input{Meta: meta(func(m *ckpt.Meta) { m.Epoch = 7 }), Sections: testSections(t)}, []string{"epoch 7", "manifest"}},
		{"no MPI", image.Input{Meta: meta(func(m *ckpt.Meta) { m.MPI.Name = "" }), Sections: testSections(t)}, []string{"MPI"}},
		{"another MPI", image.Input{Meta: meta(func(m *ckpt.Meta) { m.MPI.Name = "none" }), Sections: testSections(t)}, []string{`"none"`, `"mpich"`}},
		{"no program", image.Input{Meta: meta(func(m *ckpt.Meta) { m.Program = "" }), Sections: testSections(t)}, []string{"program"}},
		{"relative directory", image.Input{Meta: meta(func(m *ckpt.Meta) { m.Dir = "here" }), Sections: testSections(t)}, []string{`"here"`}},
		{"umask", image.Input{Meta: meta(func(m *ckpt.Meta) { m.Umask = 0o1000 }), Sections: testSections(t)}, []string{"umask"}},
		{"no threads", image.Input{Meta: testMeta(t, good), Sections: without("threads")}, []string{`"threads"`}},
		{"no files", image.Input{Meta: testMeta(t, good), Sections: without("files")}, []string{`"files"`}},
		{"no objects", image.Input{Meta: testMeta(t, good), Sections: without("objects")}, []string{`"objects"`}},
		{"no messages", image.Input{Meta: testMeta(t, good), Sections: without("messages")}, []string{`"messages"`}},
		{"damaged files", image.Input{Meta: testMeta(t, good), Sections: append(without("files"), image.Section{Name: "files", Data: []byte("CKPFILES")})}, []string{`"files"`, "cut short"}},
		{"damaged messages", image.Input{Meta: testMeta(t, good), Sections: append(without("messages"), image.Section{Name: "messages", Data: []byte("x")})}, []string{`"messages"`}},
		{"memory elsewhere", image.Input{Meta: testMeta(t, good), Sections: testSections(t), Regions: []image.Region{region, outside}}, []string{"0x7f0000000000", "outside"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := store.Create(filepath.Join(t.TempDir(), "ckpt"))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Begin(1); err != nil {
				t.Fatal(err)
			}
			for i := range c.in.Regions {
				r := &c.in.Regions[i]
				r.Copied = image.CopiedAt(r.Start, make([]byte, r.Bytes()))
			}
			sum, err := image.Write(t.Context(), s.ImagePath(1, 0), c.in, image.Options{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			m := &store.Manifest{Ranks: 1, Program: "./heat", MPI: good.MPI, Images: []store.Image{{Rank: 0, File: store.ImageName(0),
				Bytes: sum.Bytes, Digest: sum.Digest.String(), Payload: sum.PayloadBytes}}}
			if err := s.Commit(1, m, nil); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{s.Dir()}, {s.Dir(), "--quick"}, {s.ImagePath(1, 0)}} {
				manifest := slices.Contains(c.says, "manifest") || slices.Contains(c.says, `"none"`)
				if args[0] == s.ImagePath(1, 0) && manifest {
					continue // by itself it is sound
				}
				status, out, _ := ctl(t, append([]string{"verify"}, args...)...)
				if c.says == nil {
					if status != exitOK || !strings.Contains(out, "sound") {
						t.Errorf("%v: %d, %s", args, status, out)
					}
					continue
				}
				if status != exitFailed || !strings.Contains(out, "DAMAGED") || !strings.Contains(out, s.ImagePath(1, 0)) {
					t.Errorf("%v: %d, %s", args, status, out)
				}
				for _, word := range c.says {
					if !strings.Contains(out, word) {
						t.Errorf("%v does not say %q: %s", args, word, out)
					}
				}
			}
		})
	}
}
