// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/objectstore"
)

// rig is a store that is reached through a proxy, and a file to be put there.
type rig struct {
	server  *objectstore.Server
	proxy   *objectstore.Proxy
	store   *Store
	path    string
	content []byte
}

// Stalls: one that a loaded machine does not reach, and one for faults in which nothing moves.
const (
	testStall  = 30 * time.Second
	shortStall = time.Second
)

func newRig(t *testing.T, bytes int) *rig {
	t.Helper()
	r := &rig{server: objectstore.Start(t)}
	r.proxy = r.server.Proxy(t)
	objectstore.Setenv(t, r.proxy.Endpoint)
	p, err := ParsePlace("s3://" + objectstore.Bucket + "/jobs/one")
	if err != nil {
		t.Fatal(err)
	}
	if r.store, err = Open(p, Options{Stall: testStall, Tries: 3}); err != nil {
		t.Fatal(err)
	}
	r.store.part = 5 << 20
	r.content = make([]byte, bytes)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(r.content)
	r.path = filepath.Join(t.TempDir(), "rank-00000.ckpt")
	if err := os.WriteFile(r.path, r.content, 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// stored is the content of the object, nil: there is none.
func (r *rig) stored(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(r.server.Path("jobs/one/epoch-000003/" + name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return b
}

// Sizes of a file in one request, and of one in several parts.
const (
	oneRequest = 1<<20 + 17
	manyParts  = 11<<20 + 5
)

func TestPutAndGet(t *testing.T) {
	for _, size := range []int{0, 1, oneRequest, manyParts} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			r := newRig(t, size)
			ctx := t.Context()
			f, err := r.store.Put(ctx, 3, r.path)
			if err != nil || f.Bytes != int64(size) || f.Check() != nil {
				t.Fatalf("%+v, %v", f, err)
			}
			if !bytes.Equal(r.stored(t, f.Name), r.content) {
				t.Error("the object is not what was put")
			}
			before := len(r.proxy.Seen())
			if again, err := r.store.Put(ctx, 3, r.path); err != nil || again != f || len(r.proxy.Seen()) != before+1 {
				t.Errorf("put again: %+v, %v, %q", again, err, r.proxy.Seen()[before:])
			}
			dest := filepath.Join(t.TempDir(), "back")
			if err := r.store.Get(ctx, 3, f, dest); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(dest); err != nil || !bytes.Equal(got, r.content) {
				t.Errorf("got something else, %v", err)
			}
			if err := r.store.Verify(ctx, 3, f); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestListAndRemove looks at epochs with and without a manifest, and at an upload that did not come to its end.
func TestListAndRemove(t *testing.T) {
	r := newRig(t, oneRequest)
	ctx := t.Context()
	if list, err := r.store.Epochs(ctx); err != nil || len(list) != 0 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, n := range []int{3, 12} {
		if _, err := r.store.Put(ctx, n, r.path); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.store.PutBytes(ctx, 3, "manifest.json", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.core.NewMultipartUpload(ctx, objectstore.Bucket, r.store.key(3, "rank-00001.ckpt"), File{}.options()); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(t.TempDir(), "epoch-x")
	if err := os.WriteFile(foreign, []byte("not ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.core.FPutObject(ctx, objectstore.Bucket, "jobs/one/notes/epoch-000004/x", foreign, File{}.options()); err != nil {
		t.Fatal(err)
	}
	if list, err := r.store.Epochs(ctx); err != nil || !slices.Equal(list, []int{3, 12}) {
		t.Fatalf("%v, %v", list, err)
	}
	if files, err := r.store.Files(ctx, 3); err != nil || len(files) != 2 || files[0].Name != "manifest.json" || files[1].Bytes != oneRequest {
		t.Errorf("%+v, %v", files, err)
	}
	before := len(r.proxy.Seen())
	if err := r.store.Remove(ctx, 3, "manifest.json"); err != nil {
		t.Fatal(err)
	}
	if first := r.proxy.Seen()[before]; !strings.HasPrefix(first, "DELETE ") || !strings.Contains(first, "manifest.json") {
		t.Errorf("the manifest does not go first: %q", first)
	}
	if list, err := r.store.Epochs(ctx); err != nil || !slices.Equal(list, []int{12}) {
		t.Errorf("%v, %v", list, err)
	}
	for u := range r.store.core.ListIncompleteUploads(ctx, objectstore.Bucket, "jobs/one/", true) {
		t.Errorf("left: %+v", u)
	}
	if _, err := r.store.GetBytes(ctx, 3, "manifest.json", 100); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a manifest that was removed: %v", err)
	}
}

// TestPutFaults spoils requests that put. What is said to be put is there, and else there is none.
func TestPutFaults(t *testing.T) {
	status := func(code int, word string, times int) objectstore.Fault {
		return objectstore.Fault{Do: objectstore.Status, Method: "PUT", Code: code, Word: word, Times: times}
	}
	for _, c := range []struct {
		name  string
		fault objectstore.Fault
		size  int
		says  string // "": it is put all the same
	}{
		{"late", objectstore.Fault{Do: objectstore.Late, Method: "PUT", Wait: time.Second / 4}, oneRequest, ""},
		{"silent once", objectstore.Fault{Do: objectstore.Silent, Method: "PUT", Times: 1}, oneRequest, ""},
		{"silent", objectstore.Fault{Do: objectstore.Silent, Method: "PUT"}, oneRequest, "no byte moved for 1s"},
		{"changed once", objectstore.Fault{Do: objectstore.Changed, Method: "PUT", Times: 1}, oneRequest, ""},
		{"changed", objectstore.Fault{Do: objectstore.Changed, Method: "PUT"}, oneRequest, "what arrives is not what was sent"},
		{"changed part", objectstore.Fault{Do: objectstore.Changed, Method: "PUT", Has: "partNumber=2", Times: 1}, manyParts, ""},
		{"part never arrives", objectstore.Fault{Do: objectstore.Changed, Method: "PUT", Has: "partNumber=2"}, manyParts, "part 2 of 3"},
		{"cut once", objectstore.Fault{Do: objectstore.CutOff, Method: "PUT", Times: 1}, oneRequest, ""},
		{"cut", objectstore.Fault{Do: objectstore.CutOff, Method: "PUT"}, oneRequest, "put s3://"},
		{"errors once", status(500, "InternalError", 2), oneRequest, ""},
		{"errors", status(503, "SlowDown", 0), oneRequest, "SlowDown made up (status 503)"},
		{"no room", status(507, "XMinioStorageFull", 0), oneRequest, "no room left"},
		{"denied", status(403, "AccessDenied", 0), oneRequest, "does not allow it"},
		{"answer lost", objectstore.Fault{Do: objectstore.Lost, Method: "PUT", Times: 1}, oneRequest, ""},
		{"answers lost", objectstore.Fault{Do: objectstore.Lost, Method: "PUT"}, oneRequest, ""},
		{"twice", objectstore.Fault{Do: objectstore.Twice, Method: "PUT"}, oneRequest, ""},
		{"begin twice", objectstore.Fault{Do: objectstore.Twice, Method: "POST", Has: "uploads="}, manyParts, ""},
		{"complete lost", objectstore.Fault{Do: objectstore.Lost, Method: "POST", Has: "uploadId="}, manyParts, ""},
		{"complete twice", objectstore.Fault{Do: objectstore.Twice, Method: "POST", Has: "uploadId="}, manyParts, ""},
		{"said and not done", objectstore.Fault{Do: objectstore.Nothing, Method: "PUT"}, oneRequest, "it is not there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.size)
			r.proxy.Set(c.fault)
			if c.fault.Do == objectstore.Silent {
				r.store.stall = shortStall
			}
			f, err := r.store.Put(t.Context(), 3, r.path)
			there := r.stored(t, "rank-00000.ckpt")
			switch {
			case c.says == "" && (err != nil || !bytes.Equal(there, r.content)):
				t.Errorf("%v; %d bytes are there", err, len(there))
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || there != nil):
				t.Errorf("says %v; %d bytes are there", err, len(there))
			}
			if c.says == "" {
				r.proxy.Set()
				if err := r.store.Verify(t.Context(), 3, f); err != nil {
					t.Error(err)
				}
				return
			}
			r.proxy.Set() // when all is well again, so is this
			if _, err := r.store.Put(t.Context(), 3, r.path); err != nil || !bytes.Equal(r.stored(t, "rank-00000.ckpt"), r.content) {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// TestGetFaults spoils requests that get. Either the file is there and sound, or none is.
func TestGetFaults(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault objectstore.Fault
		says  string
	}{
		{"late", objectstore.Fault{Do: objectstore.Late, Method: "GET", Wait: time.Second / 4}, ""},
		{"silent once", objectstore.Fault{Do: objectstore.Silent, Method: "GET", Times: 1}, ""},
		{"silent", objectstore.Fault{Do: objectstore.Silent, Method: "GET"}, "no byte moved for 1s"},
		{"wrong once", objectstore.Fault{Do: objectstore.Wrong, Method: "GET", Times: 1}, ""},
		{"wrong", objectstore.Fault{Do: objectstore.Wrong, Method: "GET"}, "is damaged: digest"},
		{"short twice", objectstore.Fault{Do: objectstore.Short, Method: "GET", Times: 2}, ""},
		{"short", objectstore.Fault{Do: objectstore.Short, Method: "GET"}, "get s3://"},
		{"errors once", objectstore.Fault{Do: objectstore.Status, Method: "GET", Code: 500, Word: "InternalError", Times: 1}, ""},
		{"errors", objectstore.Fault{Do: objectstore.Status, Method: "GET", Code: 500, Word: "InternalError"}, "InternalError"},
		{"denied", objectstore.Fault{Do: objectstore.Status, Method: "GET", Code: 403, Word: "AccessDenied"}, "does not allow it"},
		{"lost", objectstore.Fault{Do: objectstore.Lost, Method: "GET", Times: 1}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, oneRequest)
			f, err := r.store.Put(t.Context(), 3, r.path)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			dest := filepath.Join(dir, "back")
			r.proxy.Set(c.fault)
			if c.fault.Do == objectstore.Silent {
				r.store.stall = shortStall
			}
			err = r.store.Get(t.Context(), 3, f, dest)
			got, rerr := os.ReadFile(dest)
			left, _ := os.ReadDir(dir)
			switch {
			case c.says == "" && (err != nil || rerr != nil || !bytes.Equal(got, r.content)):
				t.Errorf("%v, %v", err, rerr)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || len(left) > 0):
				t.Errorf("says %v; %v is left", err, left)
			}
		})
	}
}

// TestDamagedObject changes, cuts and removes an object in the store.
func TestDamagedObject(t *testing.T) {
	r := newRig(t, oneRequest)
	f, err := r.store.Put(t.Context(), 3, r.path)
	if err != nil {
		t.Fatal(err)
	}
	object := r.server.Path("jobs/one/epoch-000003/rank-00000.ckpt")
	changed := bytes.Clone(r.content)
	changed[oneRequest/2] ^= 4
	var damaged *DamagedError
	for what, content := range map[string][]byte{"digest": changed, "length": r.content[:1000]} {
		if err := os.WriteFile(object, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.store.Verify(t.Context(), 3, f); !errors.As(err, &damaged) || damaged.What != what {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := os.Remove(object); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Verify(t.Context(), 3, f); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an object that is gone: %v", err)
	}
}

// TestSmallObjects spoils the object that makes an epoch exist.
func TestSmallObjects(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault objectstore.Fault
		good  bool
	}{
		{"", objectstore.Fault{}, true},
		{"answer lost", objectstore.Fault{Do: objectstore.Lost, Method: "PUT"}, true},
		{"twice", objectstore.Fault{Do: objectstore.Twice, Method: "PUT"}, true},
		{"changed", objectstore.Fault{Do: objectstore.Changed, Method: "PUT"}, false},
		{"not done", objectstore.Fault{Do: objectstore.Nothing, Method: "PUT"}, false},
		{"errors", objectstore.Fault{Do: objectstore.Status, Method: "PUT", Code: 500, Word: "InternalError"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 0)
			r.proxy.Set(c.fault)
			err := r.store.PutBytes(t.Context(), 3, "manifest.json", []byte("the manifest"))
			if there := r.stored(t, "manifest.json"); (err == nil) != c.good || (string(there) == "the manifest") != c.good {
				t.Errorf("%v; %q is there", err, there)
			}
		})
	}
}

// TestRefused has the store refuse who asks, and checks that the user is told what to do, at once.
func TestRefused(t *testing.T) {
	r := newRig(t, 1)
	bad := func(name, value, place, says string) {
		t.Helper()
		if name != "" {
			t.Setenv(name, value)
		}
		p, err := ParsePlace(place)
		if err != nil {
			t.Fatal(err)
		}
		began := len(r.proxy.Seen())
		s, err := Open(p, Options{Stall: testStall})
		if err == nil {
			_, err = s.Put(t.Context(), 3, r.path)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("says %v, want %q", err, says)
		}
		if n := len(r.proxy.Seen()) - began; n > 2+defaultTries {
			t.Errorf("%s: %d requests were made", says, n)
		}
	}
	bad("", "", "s3://no-such-bucket/x", "there is no bucket no-such-bucket")
	t.Run("secret", func(*testing.T) {
		bad("AWS_SECRET_ACCESS_KEY", "another", r.store.String(), "does not accept the keys")
	})
	t.Run("key", func(*testing.T) { bad("AWS_ACCESS_KEY_ID", "another", r.store.String(), "does not accept the keys") })
	bad("AWS_ENDPOINT_URL", "http://store.example.org", r.store.String(), "without TLS")
	bad("AWS_ENDPOINT_URL", "ftp://127.0.0.1", r.store.String(), "want http://")
	t.Setenv("AWS_ENDPOINT_URL", r.proxy.Endpoint)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
	bad("AWS_ACCESS_KEY_ID", "", r.store.String(), "no credentials")
}

// TestGivenUp ends a context in the middle of a request.
func TestGivenUp(t *testing.T) {
	r := newRig(t, oneRequest)
	r.proxy.Set(objectstore.Fault{Do: objectstore.Paused, Method: "PUT"})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-r.proxy.Met()
		cancel(errors.New("the job is ending"))
	}()
	if _, err := r.store.Put(ctx, 3, r.path); err == nil || !strings.Contains(err.Error(), "the job is ending") {
		t.Errorf("says %v", err)
	}
}

func TestPlaces(t *testing.T) {
	for text, want := range map[string]Place{
		"s3://abc": {"abc", ""}, "s3://abc/": {"abc", ""}, "s3://a-b.c3/x/y/": {"a-b.c3", "x/y"}, "s3://abc/a b": {"abc", "a b"},
	} {
		if p, err := ParsePlace(text); err != nil || p != want {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
	}
	for _, bad := range []string{"", "abc", "s3:/abc", "s3://", "s3://ab", "s3://ABC/x", "s3://abc//x//y", "s3://abc/../x", "s3://abc/x/./y",
		"s3://-abc/", "s3://a..b", "s3://abc/\x01", "s3://abc/x\\y", "s3://" + strings.Repeat("a", 64), "s3://abc/" + strings.Repeat("x", 600), "https://abc/x"} {
		if p, err := ParsePlace(bad); !errors.Is(err, ErrPlace) {
			t.Errorf("%q is taken as %+v, %v", bad, p, err)
		}
	}
}

func FuzzPlace(f *testing.F) {
	f.Add("s3://bucket/prefix")
	f.Add("s3://bucket")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePlace(text)
		if err != nil {
			return
		}
		if again, err := ParsePlace(p.String()); err != nil || again != p {
			t.Errorf("%q: %+v, %v", text, again, err)
		}
	})
}
