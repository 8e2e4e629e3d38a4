// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/lease"
	"github.com/libckpt/libckpt/ckpt/objects"
	"github.com/libckpt/libckpt/ckpt/store"
)

// Epochs in an object store: s3://BUCKET/PREFIX stands where a directory does in ls, verify, copy and gc.

// objectsHelp is said in the help of those commands.
const objectsHelp = `

Instead of DIR there may be s3://BUCKET/PREFIX, a place in an object store (ckptrun --object). Keys are in AWS_ACCESS_KEY_ID
and AWS_SECRET_ACCESS_KEY or the file of AWS_SHARED_CREDENTIALS_FILE; CKPT_OBJECT_ENDPOINT or AWS_ENDPOINT_URL says where it answers.`

// openObjects opens the place that a text names; epoch is 0 when none is given. The settings are those of ckptrun, from the
// environment.
func openObjects(spec string) (s *objects.Store, epoch int, err error) {
	place, epoch, err := launch.SplitObject(spec)
	if err != nil {
		return nil, 0, usageError{err}
	}
	o := objects.Options{Endpoint: os.Getenv("CKPT_OBJECT_ENDPOINT")}
	switch v := os.Getenv("CKPT_OBJECT_HTTP"); v {
	case "", "no":
	case "yes":
		o.Plain = true
	default:
		return nil, 0, usagef("CKPT_OBJECT_HTTP=%q is not one of no, yes", v)
	}
	if v := os.Getenv("CKPT_OBJECT_TIMEOUT"); v != "" {
		if o.Stall, err = time.ParseDuration(v); err != nil || o.Stall < objects.LeastStall || o.Stall > objects.MostStall {
			return nil, 0, usagef("CKPT_OBJECT_TIMEOUT=%q is not between %v and %v", v, objects.LeastStall, objects.MostStall)
		}
	}
	s, err = objects.Open(place, o)
	return s, epoch, err
}

// resolveObjects finds the epoch, or the newest one.
func resolveObjects(ctx context.Context, spec string) (*objects.Store, *store.Manifest, error) {
	s, epoch, err := openObjects(spec)
	if err != nil {
		return nil, nil, err
	}
	if epoch != 0 {
		m, err := store.ObjectManifest(ctx, s, epoch)
		return s, m, err
	}
	list, err := store.ObjectEpochs(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	for i := len(list) - 1; i >= 0; i-- {
		switch e := &list[i]; {
		case e.Committed():
			return s, e.Manifest, nil
		case e.Err != nil:
			return nil, nil, fmt.Errorf("%w; name an older epoch, as %s@N (`ckptctl ls %s` lists them)", e.Err, s, s)
		}
	}
	return nil, nil, fmt.Errorf("%s: %w (%d incomplete)", s, store.ErrNone, len(list))
}

// listObjects is `ls` of an object store.
func listObjects(ctx context.Context, spec string) (*epochList, error) {
	s, only, err := openObjects(spec)
	if err != nil {
		return nil, err
	}
	epochs, err := store.ObjectEpochs(ctx, s)
	if err != nil {
		return nil, err
	}
	list := &epochList{Dir: s.String(), Epochs: []epochLine{}}
	neededBy := neededBy(epochs)
	for i := range epochs {
		e := &epochs[i]
		if only != 0 && e.Number != only {
			continue
		}
		line := describeEpoch(e)
		line.NeededBy = neededBy[e.Number]
		if e.Committed() {
			if err := allListed(ctx, s, e.Manifest); err != nil {
				line.State, line.Lost = stateLost, err.Error()
			}
		}
		list.Epochs = append(list.Epochs, line)
	}
	return list, nil
}

// allListed compares what a manifest lists with what the store does.
func allListed(ctx context.Context, s *objects.Store, m *store.Manifest) error {
	there, err := s.Files(ctx, m.Epoch)
	if err != nil {
		return err
	}
	bytes := map[string]int64{}
	for _, f := range there {
		bytes[f.Name] = f.Bytes
	}
	for _, f := range m.Objects.Files {
		switch n, is := bytes[f.Name]; {
		case !is:
			return fmt.Errorf("%s is not there", s.URL(m.Epoch, f.Name))
		case n != f.Bytes:
			return fmt.Errorf("%s has %d bytes, expected %d", s.URL(m.Epoch, f.Name), n, f.Bytes)
		}
	}
	return nil
}

// verifyObjects is `verify` of an object store: every byte is read, and compared with the digest of its file.
func verifyObjects(ctx context.Context, spec string, quick bool) (*verifyReport, error) {
	s, m, err := resolveObjects(ctx, spec)
	if err != nil {
		return nil, err
	}
	r := &verifyReport{Path: s.URL(m.Epoch, ""), Epoch: m.Epoch, Quick: quick}
	var lost error
	if quick {
		lost = allListed(ctx, s, m)
	}
	for _, f := range m.Objects.Files {
		rank := m.RankOf(f.Name)
		err := lost
		if !quick {
			err = s.Verify(ctx, m.Epoch, store.AsObject(f))
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if rank >= 0 || err != nil {
			r.add(rank, f.Name, f.Bytes, err)
		} else {
			r.Kept++
		}
	}
	return r, nil
}

// copyObjects is `copy` where one end is an object store.
func copyObjects(ctx context.Context, spec, dest string, show *phases) (r *copyReport, err error) {
	if objects.Is(spec) && objects.Is(dest) {
		return nil, usagef("%s and %s are both in object stores: copy to a directory, and from there", spec, dest)
	}
	options := func(epoch int) store.CopyOptions {
		return store.CopyOptions{Progress: func(done, total int64) {
			show.event(control.Event{Epoch: epoch, Phase: copying, Done: uint64(done), Total: uint64(total)})
		}}
	}
	defer func() { show.end(err == nil) }()
	if objects.Is(dest) {
		to, only, err := openObjects(dest)
		if err == nil && only != 0 {
			err = usagef("%s: the epoch keeps its number; name a place without one", dest)
		}
		if err != nil {
			return nil, err
		}
		e, err := resolveEpoch(spec)
		if err != nil {
			return nil, err
		}
		chain, err := e.store.Chain(e.manifest.Epoch)
		if err != nil {
			return nil, err
		}
		from := e.store.WithLocal(os.Getenv(localName))
		r := &copyReport{From: e.String(), To: to.String(), Epochs: []copiedLine{}}
		for _, m := range chain {
			done, err := from.CopyToObjects(ctx, m.Epoch, to, options(m.Epoch))
			if err != nil {
				return r, err
			}
			r.Epochs = append(r.Epochs, copiedLine{m.Epoch, done.Files, done.Bytes, done.Kept, done.Already})
		}
		return r, nil
	}
	from, m, err := resolveObjects(ctx, spec)
	if err != nil {
		return nil, err
	}
	chain, err := store.ObjectChain(ctx, from, m.Epoch)
	if err != nil {
		return nil, err
	}
	to, err := store.Create(dest)
	if err != nil {
		return nil, err
	}
	l, err := lease.Take(dest, lease.Claim{Program: "ckptctl copy", Brief: true})
	if err != nil {
		return nil, err
	}
	l.Keep(lease.Keeper{})
	defer func() { err = errors.Join(err, l.Release()) }()
	r = &copyReport{From: fmt.Sprintf("%s@%d", from, m.Epoch), To: dest, Epochs: []copiedLine{}}
	for _, m := range chain {
		done, err := to.Guard(l.Check).CopyFromObjects(ctx, from, m, options(m.Epoch))
		if err != nil {
			return r, err
		}
		r.Epochs = append(r.Epochs, copiedLine{m.Epoch, done.Files, done.Bytes, done.Kept, done.Already})
	}
	return r, nil
}

// collectObjects is `gc` of an object store.
func collectObjects(ctx context.Context, spec string, keep int, dry bool) (*gcReport, error) {
	s, epoch, err := openObjects(spec)
	if err != nil {
		return nil, err
	}
	r := &gcReport{Dir: s.String(), DryRun: dry, Removed: []int{}, Kept: []int{}}
	plan, err := store.PlanRetireObjects(ctx, s, keep)
	switch {
	case err != nil:
		return nil, err
	case epoch != 0 && dry:
		return nil, usagef("--dry-run goes with a place, not with one epoch")
	case epoch != 0:
		if err := store.RemoveObjects(ctx, s, epoch); err != nil {
			return nil, err
		}
		r.Removed = append(r.Removed, epoch)
	case dry:
		r.Removed = append(r.Removed, plan.Remove...)
	default:
		removed, err := store.RetireObjects(ctx, s, keep)
		r.Removed = append(r.Removed, removed...)
		if err != nil {
			return r, err
		}
	}
	left, err := s.Epochs(ctx)
	for _, n := range left {
		if !dry || !slices.Contains(r.Removed, n) {
			r.Kept = append(r.Kept, n)
		}
	}
	r.NeededBy = plan.NeededBy
	return r, err
}
