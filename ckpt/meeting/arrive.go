// SPDX-License-Identifier: Apache-2.0

package meeting

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockName is the file whose lock lets one process at a time look for a meeting, and open one.
const lockName = noteName + ".lock"

// arrive takes part in the meeting in the directory, or opens one.
func arrive(ctx context.Context, o Options, me hello) (Meeting, error) {
	end := time.Now().Add(o.Patience)
	for {
		unlock, err := lockDirectory(ctx, o.Dir)
		if err != nil {
			return nil, err
		}
		g, open, err := look(ctx, o, me, unlock)
		switch {
		case err == nil && !open:
			return g, nil
		case open:
			defer dropLock(o.Dir)
			if o.First != nil {
				err = o.First()
			}
			if err != nil {
				unlock()
				return nil, err
			}
			return meet(ctx, o, me, unlock)
		}
		// Another job meets, and will be gone; or rank 0 has just left.
		var fault *faultError
		if errors.As(err, &fault) || ctx.Err() != nil || time.Now().After(end) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lastLook):
		}
	}
}

// look takes part in the meeting of the note, if that leads to one; else open is true, and the lock is still held.
func look(ctx context.Context, o Options, me hello, unlock func()) (g *guest, open bool, err error) {
	n, err := readNote(o.Dir)
	if err != nil {
		o.Log.Debug("replaced", "error", err)
	}
	if err != nil || n == nil {
		return nil, true, nil
	}
	conn, err := reach(ctx, n, 0)
	if ctx.Err() != nil {
		unlock()
		return nil, false, context.Cause(ctx)
	}
	if err != nil {
		o.Log.Debug("a former job's note is replaced", "note", n.who(), "error", err)
		return nil, true, nil
	}
	unlock()
	g, err = enter(ctx, conn, me)
	return g, false, err
}

// lockDirectory waits for the lock. A file system without locks is used without.
func lockDirectory(ctx context.Context, dir string) (unlock func(), err error) {
	for {
		f, err := tryLock(dir)
		if err != nil {
			return nil, fmt.Errorf("the lock by which the ranks meet: %w", err)
		}
		if f != nil {
			return func() { _ = f.Close() }, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(firstLook):
		}
	}
}

// tryLock returns nil without an error when another process has the lock.
func tryLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR):
		return nil, f.Close()
	case err != nil && !errors.Is(err, unix.ENOLCK) && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS):
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	// Whoever had it may have removed the file: then this is the lock of nothing.
	mine, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Lstat(path); err == nil && os.SameFile(mine, there) {
			return f, nil
		}
	}
	return nil, f.Close()
}

// dropLock removes the file of the lock, unless somebody has it.
func dropLock(dir string) {
	if f, err := tryLock(dir); err == nil && f != nil {
		_ = os.Remove(f.Name())
		_ = f.Close()
	}
}
