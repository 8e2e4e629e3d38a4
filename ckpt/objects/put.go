// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/zeebo/blake3"
	"golang.org/x/sync/errgroup"

	"github.com/libckpt/libckpt/internal/regular"
)

// File is a file of an epoch.
type File struct {
	Name   string
	Bytes  int64
	Digest string // of the whole file: "blake3:" and hexadecimal digits
}

// Check says what is wrong with a file that somebody else names.
func (f File) Check() error {
	digits, ok := strings.CutPrefix(f.Digest, digestPrefix)
	if !validFile(f.Name) || f.Bytes < 0 || !ok || len(digits) != 64 || strings.Trim(digits, "0123456789abcdef") != "" {
		return fmt.Errorf("%q of %d bytes with digest %q is no file of an epoch", f.Name, f.Bytes, f.Digest)
	}
	return nil
}

const (
	digestPrefix = "blake3:"
	// digestMeta is the name under which the store keeps the digest with the object.
	digestMeta = "Ckpt-Blake3"
	// partBytes is how much is sent in one request; S3 wants 5 MiB at least, and 10000 parts at most.
	partBytes = 32 << 20
	mostParts = 9000
	// parallel is how many requests of one call are under way.
	parallel = 3
)

// part is a piece of a file that is sent in one request.
type part struct {
	at, bytes   int64
	md5, sha256 string
}

// Put brings a file to the store under its own name, unless the same is there already. On failure the store has no
// object of that name, or an older one, or the whole file.
func (s *Store) Put(ctx context.Context, epoch int, path string) (File, error) {
	in, err := regular.Open(path, os.O_RDONLY)
	if err != nil {
		return File{}, err
	}
	defer func() { _ = in.Close() }()
	f, parts, err := s.sums(in, filepath.Base(path))
	if err != nil {
		return f, err
	}
	if err := f.Check(); err != nil {
		return f, err
	}
	key, url := s.key(epoch, f.Name), s.URL(epoch, f.Name)
	if s.has(ctx, key, f) {
		return f, nil
	}
	if len(parts) == 1 {
		err = s.request(ctx, "put "+url, func(ctx context.Context, touch moved) error {
			_, err := s.core.PutObject(ctx, s.place.Bucket, key, section(in, parts[0], touch), f.Bytes, parts[0].md5, parts[0].sha256, f.options())
			return sent(err)
		})
	} else {
		err = s.putParts(ctx, key, url, in, f, parts)
	}
	if err != nil && ctx.Err() == nil && s.has(ctx, key, f) {
		err = nil // it was done, and the answer was lost
	}
	if err != nil {
		return f, err
	}
	return f, s.request(ctx, "look at "+url, func(ctx context.Context, _ moved) error {
		o, err := s.core.StatObject(ctx, s.place.Bucket, key, minio.StatObjectOptions{})
		if err != nil {
			return err
		}
		return f.compare(o, url)
	})
}

func section(in io.ReaderAt, p part, touch moved) io.Reader {
	return &reader{io.NewSectionReader(in, p.at, p.bytes), touch}
}

func (f File) options() minio.PutObjectOptions {
	return minio.PutObjectOptions{ContentType: "application/octet-stream", UserMetadata: map[string]string{digestMeta: f.Digest}}
}

// compare says whether an object is this file, by what the store tells of it.
func (f File) compare(o minio.ObjectInfo, url string) error {
	if o.Size != f.Bytes {
		return &DamagedError{url, "length", fmt.Sprint(f.Bytes), fmt.Sprint(o.Size)}
	}
	for name, found := range o.UserMetadata { // stores write names in their own way
		if http.CanonicalHeaderKey(name) == digestMeta && found != f.Digest {
			return &DamagedError{url, "digest", f.Digest, found}
		}
	}
	return nil
}

// has tells whether the store has the whole file: an object appears in one step.
func (s *Store) has(ctx context.Context, key string, f File) bool {
	found := false
	_ = s.once(ctx, func(ctx context.Context, _ moved) error { // if it cannot be asked, the file is put
		o, err := s.core.StatObject(ctx, s.place.Bucket, key, minio.StatObjectOptions{})
		if err != nil || o.Size != f.Bytes {
			return err
		}
		for name, have := range o.UserMetadata {
			found = found || http.CanonicalHeaderKey(name) == digestMeta && have == f.Digest
		}
		return nil
	})
	return found
}

// sums reads a file once.
func (s *Store) sums(in *os.File, name string) (f File, parts []part, err error) {
	st, err := in.Stat()
	if err != nil {
		return f, nil, err
	}
	f = File{Name: name, Bytes: st.Size()}
	size := max(s.part, (f.Bytes/mostParts+1<<20)&^(1<<20-1))
	whole := blake3.New()
	for at := int64(0); at < f.Bytes || at == 0; at += size {
		p := part{at: at, bytes: min(size, f.Bytes-at)}
		m, h := md5.New(), sha256.New()
		if _, err := io.CopyN(io.MultiWriter(whole, m, h), in, p.bytes); err != nil {
			return f, nil, fmt.Errorf("%s: %w", in.Name(), err)
		}
		p.md5, p.sha256 = base64.StdEncoding.EncodeToString(m.Sum(nil)), hex.EncodeToString(h.Sum(nil))
		parts = append(parts, p)
	}
	f.Digest = digestText(whole)
	return f, parts, nil
}

func digestText(h hash.Hash) string { return digestPrefix + hex.EncodeToString(h.Sum(nil)) }

// putParts sends a large file. Parts that were sent are of no use without the last request, and are given up when it
// is not made.
func (s *Store) putParts(ctx context.Context, key, url string, in io.ReaderAt, f File, parts []part) error {
	var id string
	err := s.request(ctx, "begin "+url, func(ctx context.Context, _ moved) (err error) {
		id, err = s.core.NewMultipartUpload(ctx, s.place.Bucket, key, f.options())
		return err
	})
	if err != nil {
		return err
	}
	done := make([]minio.CompletePart, len(parts))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, p := range parts {
		g.Go(func() error {
			return s.request(gctx, fmt.Sprintf("put part %d of %d of %s", i+1, len(parts), url), func(ctx context.Context, touch moved) error {
				o, err := s.core.PutObjectPart(ctx, s.place.Bucket, key, id, i+1, section(in, p, touch), p.bytes, minio.PutObjectPartOptions{Md5Base64: p.md5, Sha256Hex: p.sha256})
				done[i] = minio.CompletePart{PartNumber: i + 1, ETag: o.ETag}
				return sent(err)
			})
		})
	}
	err = g.Wait()
	if err == nil {
		err = s.request(ctx, "complete "+url, func(ctx context.Context, _ moved) error {
			_, err := s.core.CompleteMultipartUpload(ctx, s.place.Bucket, key, id, done, minio.PutObjectOptions{})
			if err != nil && s.has(ctx, key, f) {
				return nil // it was carried out before
			}
			return err
		})
	}
	if err != nil {
		s.abort(context.WithoutCancel(ctx), key, id)
	}
	return err
}

// abort gives up what was sent; Remove finds what is left.
func (s *Store) abort(ctx context.Context, key, id string) {
	_ = s.once(ctx, func(ctx context.Context, _ moved) error {
		return s.core.AbortMultipartUpload(ctx, s.place.Bucket, key, id)
	})
}

// PutBytes puts a small object, such as a manifest, and reads it back.
func (s *Store) PutBytes(ctx context.Context, epoch int, name string, b []byte) error {
	if !validFile(name) {
		return fmt.Errorf("%q is not the name of a file", name)
	}
	m, h := md5.Sum(b), sha256.Sum256(b)
	key, url := s.key(epoch, name), s.URL(epoch, name)
	err := s.request(ctx, "put "+url, func(ctx context.Context, touch moved) error {
		_, err := s.core.PutObject(ctx, s.place.Bucket, key, &reader{bytes.NewReader(b), touch}, int64(len(b)),
			base64.StdEncoding.EncodeToString(m[:]), hex.EncodeToString(h[:]), minio.PutObjectOptions{ContentType: "application/json"})
		return sent(err)
	})
	back, gerr := s.GetBytes(ctx, epoch, name, int64(len(b)))
	switch {
	case gerr == nil && bytes.Equal(back, b):
		return nil // whatever was answered before
	case err != nil:
		return err
	case gerr != nil:
		return gerr
	}
	return errors.Join(&DamagedError{url, "content", "what was put", "something else"}, s.removeKey(ctx, key))
}
