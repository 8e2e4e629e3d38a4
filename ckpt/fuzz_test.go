// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/snapshot"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/drain"
)

var goodMeta = Meta{Version: metaVersion, Epoch: 1, Ranks: 2, Rank: 1, MPI: store.MPI{Name: "mpich", ABI: "mpich"},
	Program: "/bin/app", Args: []string{"app"}, Dir: "/tmp", Umask: 0o22}

func goodSections(f *testing.F) (meta, open, messages []byte) {
	f.Helper()
	meta, err := json.Marshal(goodMeta)
	if err != nil {
		f.Fatal(err)
	}
	if open, err = (&files.Table{}).Encode(); err != nil {
		f.Fatal(err)
	}
	return meta, open, (&drain.Section{}).Append(nil)
}

// FuzzMeta: metadata that pass belong to a rank.
func FuzzMeta(f *testing.F) {
	meta, _, _ := goodSections(f)
	f.Add(meta)
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil {
			return
		}
		listed := &store.Manifest{Epoch: 1, Ranks: 2, MPI: goodMeta.MPI}
		if m.check(listed, 1) == nil && (m.Rank != 1 || m.Ranks != 2 || m.Epoch != 1 || !filepath.IsAbs(m.Dir)) {
			t.Errorf("%s is taken as %+v", b, m)
		}
	})
}

// FuzzSections: an image with any sections and a region anywhere passes as a whole, or is refused with its name.
func FuzzSections(f *testing.F) {
	meta, open, messages := goodSections(f)
	f.Add(meta, []byte("threads"), open, messages, uint64(snapshot.ArenaStart+1<<30))
	f.Add([]byte("{}"), []byte{}, []byte("CKPFILES"), []byte{1}, uint64(0x7f0000000000))
	path := filepath.Join(f.TempDir(), "image")
	f.Fuzz(func(t *testing.T, meta, threads, open, messages []byte, start uint64) {
		start &^= image.PageSize - 1
		in := image.Input{Meta: meta, Sections: []image.Section{{Name: sectionThreads, Data: threads}, {Name: sectionFiles, Data: open},
			{Name: sectionMessages, Data: messages}, {Name: sectionObjects}, {Name: sectionRuntime}},
			Regions: []image.Region{{Start: start, End: start + image.PageSize, Flags: image.FlagAnonymous | image.FlagNoData}}}
		if _, err := image.Write(t.Context(), path, in, image.Options{NoSync: true}); err != nil {
			return
		}
		img, err := image.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer img.Close()
		err = CheckImage(img, nil, -1)
		if err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%v does not name the image", err)
		}
		if err == nil && (len(threads) == 0 || start >= snapshot.LowEnd && start < snapshot.ArenaStart) {
			t.Errorf("taken: %d bytes of threads, memory at 0x%x", len(threads), start)
		}
	})
}

// FuzzProgress takes a message as what a rank says of its progress: whatever it says, rank 0 goes on.
func FuzzProgress(f *testing.F) {
	status, err := json.Marshal(control.RankStatus{Rank: 1, Phase: "write"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(status)
	f.Add([]byte(`{"rank":-1}`))
	f.Fuzz(func(t *testing.T, progress []byte) {
		const ranks = 3
		j := &Job{}
		j.status.Ranks = make([]control.RankStatus, ranks)
		j.heard(1, progress)
		if len(j.status.Ranks) != ranks {
			t.Errorf("%d ranks", len(j.status.Ranks))
		}
	})
}
