// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/zeebo/blake3"

	"github.com/libckpt/libckpt/internal/fault"
)

// Get brings a file of an epoch to dest, for good: it has this name when every byte was compared with the digest. On
// failure nothing is left; *DamagedError when the object is not what was put.
func (s *Store) Get(ctx context.Context, epoch int, f File, dest string) (err error) {
	if err := f.Check(); err != nil {
		return err
	}
	if err := fault.Point("objects.create"); err != nil {
		return err
	}
	out, err := os.CreateTemp(filepath.Dir(dest), filepath.Base(dest)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = out.Close()
			_ = os.Remove(out.Name())
		}
	}()
	for try := range 2 { // bytes may have been changed on their way
		if _, err = out.Seek(0, io.SeekStart); err == nil {
			err = out.Truncate(0)
		}
		if err == nil {
			err = s.stream(ctx, epoch, f, out)
		}
		var damaged *DamagedError
		if try > 0 || !errors.As(err, &damaged) {
			break
		}
	}
	if err != nil {
		return err
	}
	if err := out.Sync(); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	if err := os.Rename(out.Name(), dest); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(dest))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Verify reads a file of an epoch and compares every byte with its digest.
func (s *Store) Verify(ctx context.Context, epoch int, f File) error {
	if err := f.Check(); err != nil {
		return err
	}
	return s.stream(ctx, epoch, f, io.Discard)
}

// stream writes a file of an epoch to w, once. A connection that is cut is gone on with where it ended.
func (s *Store) stream(ctx context.Context, epoch int, f File, w io.Writer) error {
	key, url := s.key(epoch, f.Name), s.URL(epoch, f.Name)
	sum, at, tag := blake3.New(), int64(0), ""
	to := &local{w}
	err := s.request(ctx, "get "+url, func(ctx context.Context, touch moved) error {
		var o minio.GetObjectOptions
		if at > 0 {
			if at == f.Bytes {
				return nil
			}
			if err := errors.Join(o.SetRange(at, f.Bytes-1), o.SetMatchETag(tag)); err != nil {
				return &localError{err}
			}
		}
		body, info, head, err := s.core.GetObject(ctx, s.place.Bucket, key, o)
		if err != nil {
			return err
		}
		defer func() { _ = body.Close() }()
		in := &reader{body, touch}
		switch {
		case at == 0 && info.Size != f.Bytes:
			return &DamagedError{url, "length", fmt.Sprint(f.Bytes), fmt.Sprint(info.Size)}
		case at == 0:
			tag = info.ETag
		case !strings.HasPrefix(head.Get("Content-Range"), fmt.Sprintf("bytes %d-", at)): // it sends all of it
			if _, err := io.CopyN(io.Discard, in, at); err != nil {
				return err
			}
		}
		n, err := io.Copy(io.MultiWriter(sum, to), io.LimitReader(in, f.Bytes-at))
		at += n
		if err == nil && at < f.Bytes {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	if err != nil {
		return err
	}
	if found := digestText(sum); found != f.Digest {
		return &DamagedError{url, "digest", f.Digest, found}
	}
	return nil
}

// local marks errors as those of this machine.
type local struct{ w io.Writer }

func (l *local) Write(p []byte) (int, error) {
	if err := fault.Point("objects.write"); err != nil {
		return 0, &localError{err}
	}
	n, err := l.w.Write(p)
	if err != nil {
		err = &localError{err}
	}
	return n, err
}

// GetBytes gets a small object of at most so many bytes. The error wraps fs.ErrNotExist when there is none.
func (s *Store) GetBytes(ctx context.Context, epoch int, name string, most int64) (b []byte, err error) {
	if !validFile(name) {
		return nil, fmt.Errorf("%q is not the name of a file", name)
	}
	url := s.URL(epoch, name)
	err = s.request(ctx, "get "+url, func(ctx context.Context, touch moved) error {
		body, info, _, err := s.core.GetObject(ctx, s.place.Bucket, s.key(epoch, name), minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		defer func() { _ = body.Close() }()
		if info.Size > most {
			return &DamagedError{url, "length", fmt.Sprintf("at most %d", most), fmt.Sprint(info.Size)}
		}
		b, err = io.ReadAll(&reader{io.LimitReader(body, most+1), touch})
		if err == nil && int64(len(b)) != info.Size {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	return b, err
}
