// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/zeebo/blake3"
)

// FuzzJob: what is read as a job's record is read the same when it is written again.
func FuzzJob(f *testing.F) {
	good, err := json.Marshal(Job{Format: JobFormat, Program: "/bin/app", Args: []string{"app", "-x"}, Ranks: 4,
		MPI: MPI{Name: "mpich", ABI: "mpich"}, Host: "node1", PID: 77, Control: "id@127.0.0.1:99 10.0.0.1:98", Key: strings.Repeat("0a", 32)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"format":1}`))
	f.Add([]byte(`{"format":2,"ranks":-1}`))
	f.Fuzz(func(t *testing.T, p []byte) {
		j, err := decodeJob("job.json", p)
		if err != nil {
			return
		}
		again, err := json.Marshal(j)
		if err != nil {
			return // a time that JSON cannot hold
		}
		k, err := decodeJob("job.json", again)
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if d := cmp.Diff(j, k, cmpopts.EquateEmpty()); d != "" {
			t.Error(d)
		}
	})
}

// FuzzManifestContent gives what it makes up the right digest: the content alone is to blame.
func FuzzManifestContent(f *testing.F) {
	whole, err := encodeManifest(&Manifest{Format: 1, Epoch: 2, Parent: 1, Ranks: 1, Images: []Image{{File: "a", Bytes: 1, Digest: "blake3:00"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole[:len(whole)-64-len(digestTail)-len(digestHead)])
	f.Add([]byte(`{"format":1,"epoch":9,"parent":4,"needs":[1,4],"ranks":1,"images":[{"rank":0,"file":"a","bytes":1,"digest":"blake3:","shared":9}]`))
	f.Add([]byte(`{"format":1,"epoch":1,"ranks":1,"images":[{"rank":0,"file":"..","bytes":1,"digest":"blake3:"}]`))
	f.Fuzz(func(t *testing.T, p []byte) {
		p = append(p[:len(p):len(p)], digestHead...)
		d := blake3.Sum256(p)
		p = append(append(p, []byte(strings.ToLower(hexOf(d[:])))...), digestTail...)
		m, err := decodeManifest("m", p)
		if (m == nil) == (err == nil) {
			t.Fatal("neither manifest nor error, or both")
		}
		if m == nil {
			return
		}
		for _, n := range m.Depends() {
			if n < 1 || n >= m.Epoch {
				t.Errorf("epoch %d depends on %d", m.Epoch, n)
			}
		}
		for i := range m.Images {
			if name := m.Images[i].File; filepath.Base(name) != name || name == ".." {
				t.Errorf("image %q is not in its directory", name)
			}
		}
	})
}

func hexOf(b []byte) string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	for _, c := range b {
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}
	return s.String()
}

// FuzzSpec: a text is a directory, with or without an epoch, or refused.
func FuzzSpec(f *testing.F) {
	f.Add("ckpt@3")
	f.Add("@1")
	f.Add("a@b/c@12345678901234567890")
	f.Fuzz(func(t *testing.T, spec string) {
		dir, epoch, err := SplitSpec(spec)
		if err == nil && (epoch < 0 || epoch > MaxEpoch || !strings.HasPrefix(spec, dir)) {
			t.Errorf("%q: %q, %d", spec, dir, epoch)
		}
	})
}
