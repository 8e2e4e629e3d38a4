// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// Listed is an object of an epoch, as the store lists it.
type Listed struct {
	Name    string
	Bytes   int64
	Changed time.Time
}

// Epochs lists the numbers of epochs of which there is anything, ascending.
func (s *Store) Epochs(ctx context.Context) (list []int, err error) {
	err = s.request(ctx, "list "+s.place.String(), func(ctx context.Context, touch moved) error {
		list = nil
		for o := range s.core.ListObjectsIter(ctx, s.place.Bucket, minio.ListObjectsOptions{Prefix: s.root()}) {
			if o.Err != nil {
				return o.Err
			}
			touch()
			if n, ok := epochNumber(strings.TrimPrefix(o.Key, s.root())); ok {
				list = append(list, n)
			}
		}
		return ctx.Err()
	})
	slices.Sort(list)
	return slices.Compact(list), err
}

// epochNumber reads the name of an epoch's folder; only the form that folder writes counts.
func epochNumber(name string) (int, bool) {
	name, ok := strings.CutSuffix(name, "/")
	digits, ok2 := strings.CutPrefix(name, "epoch-")
	n, err := strconv.Atoi(digits)
	if !ok || !ok2 || err != nil || n < 1 || n > 1<<31-1 || fmt.Sprintf("%06d", n) != digits {
		return 0, false
	}
	return n, true
}

// Files lists what there is of an epoch.
func (s *Store) Files(ctx context.Context, epoch int) (list []Listed, err error) {
	folder := s.folder(epoch)
	err = s.request(ctx, "list "+s.URL(epoch, ""), func(ctx context.Context, touch moved) error {
		list = nil
		for o := range s.core.ListObjectsIter(ctx, s.place.Bucket, minio.ListObjectsOptions{Prefix: folder, Recursive: true}) {
			if o.Err != nil {
				return o.Err
			}
			touch()
			list = append(list, Listed{strings.TrimPrefix(o.Key, folder), o.Size, o.LastModified})
		}
		return ctx.Err()
	})
	return list, err
}

// Remove removes all there is of an epoch: first the object of that name, without which the epoch counts for nothing,
// then the others, and what uploads that did not come to their end have left.
func (s *Store) Remove(ctx context.Context, epoch int, first string) error {
	if err := s.removeKey(ctx, s.key(epoch, first)); err != nil {
		return err
	}
	list, err := s.Files(ctx, epoch)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range list {
		errs = append(errs, s.removeKey(ctx, s.key(epoch, f.Name)))
	}
	return errors.Join(errors.Join(errs...), s.removeBegun(ctx, epoch))
}

func (s *Store) removeKey(ctx context.Context, key string) error {
	return s.request(ctx, "remove "+scheme+s.place.Bucket+"/"+key, func(ctx context.Context, _ moved) error {
		err := s.core.RemoveObject(ctx, s.place.Bucket, key, minio.RemoveObjectOptions{})
		if minio.ToErrorResponse(err).Code == "NoSuchKey" {
			return nil
		}
		return err
	})
}

// removeBegun gives up uploads of an epoch that are not complete: their parts cost room, and nobody sees them.
func (s *Store) removeBegun(ctx context.Context, epoch int) error {
	type upload struct{ key, id string }
	var begun []upload
	err := s.request(ctx, "list uploads of "+s.URL(epoch, ""), func(ctx context.Context, touch moved) error {
		begun = nil
		for o := range s.core.ListIncompleteUploads(ctx, s.place.Bucket, s.folder(epoch), true) {
			if o.Err != nil {
				return o.Err
			}
			touch()
			begun = append(begun, upload{o.Key, o.UploadID})
		}
		return ctx.Err()
	})
	for _, u := range begun {
		s.abort(ctx, u.key, u.id)
	}
	return err
}
