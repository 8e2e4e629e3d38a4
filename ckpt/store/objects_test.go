// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/ckpt/objects"
	"github.com/libckpt/libckpt/internal/objectstore"
)

func newObjects(t *testing.T) (*objects.Store, *objectstore.Server, *objectstore.Proxy) {
	t.Helper()
	server := objectstore.Start(t)
	proxy := server.Proxy(t)
	objectstore.Setenv(t, proxy.Endpoint)
	place, err := objects.ParsePlace("s3://" + objectstore.Bucket + "/one")
	if err != nil {
		t.Fatal(err)
	}
	s, err := objects.Open(place, objects.Options{Tries: 2})
	if err != nil {
		t.Fatal(err)
	}
	return s, server, proxy
}

// TestCopyToObjects copies a chain of epochs with a file beside, there and back.
func TestCopyToObjects(t *testing.T) {
	ctx := t.Context()
	far, server, proxy := newObjects(t)
	from, back := newStore(t), newStore(t)
	mustCommit(t, from, 1, 0)
	mustCommit(t, from, 2, 1)
	beside := ImagePrefix(0) + ".out-0"
	if err := os.WriteFile(filepath.Join(from.EpochDir(2), beside), []byte("output"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 2} {
		if _, err := from.CopyToObjects(ctx, n, far, CopyOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if last := slices.DeleteFunc(proxy.Seen(), func(r string) bool { return !strings.HasPrefix(r, "PUT ") }); !strings.HasSuffix(strings.Split(last[len(last)-1], "?")[0], manifestName) {
		t.Errorf("the manifest is not put last: %q", last)
	}
	if done, err := from.CopyToObjects(ctx, 2, far, CopyOptions{}); err != nil || !done.Already {
		t.Errorf("again: %+v, %v", done, err)
	}
	other := newStore(t)
	mustCommit(t, other, 1, 0)
	if _, err := other.CopyToObjects(ctx, 1, far, CopyOptions{}); !errors.Is(err, ErrExists) {
		t.Errorf("another epoch of the number: %v", err)
	}
	chain, err := ObjectChain(ctx, far, 2)
	if err != nil || len(chain) != 2 || chain[1].RankOf(beside) >= 0 {
		t.Fatalf("%v, %v", chain, err)
	}
	for _, m := range chain {
		if _, err := back.CopyFromObjects(ctx, far, m, CopyOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := back.Verify(ctx, 2, nil); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(back.EpochDir(2), beside)); string(b) != "output" {
		t.Errorf("beside: %q, %v", b, err)
	}
	// A damaged object leaves nothing.
	image := server.Path("one/epoch-000001/" + ImageName(0))
	b, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(image, b, 0o600); err != nil {
		t.Fatal(err)
	}
	bad := newStore(t)
	var damaged *objects.DamagedError
	if _, err := bad.CopyFromObjects(ctx, far, chain[0], CopyOptions{}); !errors.As(err, &damaged) {
		t.Errorf("a damaged object: %v", err)
	}
	noEpochs(t, bad)
}

// TestImport brings manifests to directories that have nothing, the same epoch, another one, or what was left of one.
func TestImport(t *testing.T) {
	ctx := t.Context()
	far, _, _ := newObjects(t)
	from := newStore(t)
	mustCommit(t, from, 1, 0)
	if _, err := from.CopyToObjects(ctx, 1, far, CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	m, err := ObjectManifest(ctx, far, 1)
	if err != nil {
		t.Fatal(err)
	}
	empty, left, damaged, other := newStore(t), newStore(t), newStore(t), newStore(t)
	if err := left.Begin(1); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, damaged, 1, 0)
	if err := os.WriteFile(filepath.Join(damaged.EpochDir(1), manifestName), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Store{"empty": empty, "again": empty, "left": left, "damaged": damaged, "the same": from} {
		if err := s.Import(m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if have, err := s.Manifest(1); err != nil || have.Objects == nil || !have.Same(m) {
			t.Errorf("%s: %+v, %v", name, have, err)
		}
	}
	if _, err := empty.OpenImage(m, 0); err == nil || !strings.Contains(err.Error(), far.String()) {
		t.Errorf("an image that is in the object store alone: %v", err)
	}
	mustCommit(t, other, 1, 0)
	if err := other.Import(m); !errors.Is(err, ErrExists) {
		t.Errorf("over another epoch: %v", err)
	}
	if have, err := other.Manifest(1); err != nil || have.Objects != nil {
		t.Errorf("the other epoch is %+v, %v", have, err)
	}
}

// TestRetireObjects removes old epochs and what is left of incomplete ones, and never the newest.
func TestRetireObjects(t *testing.T) {
	ctx := t.Context()
	far, server, _ := newObjects(t)
	from := newStore(t)
	for n := 1; n <= 4; n++ {
		mustCommit(t, from, n, 0)
		if _, err := from.CopyToObjects(ctx, n, far, CopyOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(server.Path("one/epoch-000002/" + manifestName)); err != nil { // an upload that was killed
		t.Fatal(err)
	}
	if err := RemoveObjects(ctx, far, 4); err == nil || !strings.Contains(err.Error(), "newest") {
		t.Errorf("the newest can be removed: %v", err)
	}
	if err := RemoveObjects(ctx, far, 9); !errors.Is(err, ErrNone) {
		t.Errorf("one that is not there: %v", err)
	}
	if removed, err := RetireObjects(ctx, far, 2); err != nil || !slices.Equal(removed, []int{1, 2}) {
		t.Errorf("removed %v, %v", removed, err)
	}
	if removed, err := RetireObjects(ctx, far, 0); err != nil || !slices.Equal(removed, []int{3}) {
		t.Errorf("removed %v, %v", removed, err)
	}
	if list, err := ObjectEpochs(ctx, far); err != nil || len(list) != 1 || !list[0].Committed() {
		t.Errorf("left: %v, %v", list, err)
	}
}
