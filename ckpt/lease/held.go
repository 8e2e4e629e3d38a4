// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/fault"
)

// Lease is a directory that this process owns. Its methods may be called by several goroutines.
type Lease struct {
	dir, folder string
	node        *node
	before      Record // the owner before; empty when there was none
	lastBeat    time.Time
	supposed    bool

	mu     sync.Mutex // guards all below; held over the file's reads and writes
	path   string
	file   *os.File // open, and locked, as long as this process owns the directory
	record Record
	lost   error
	closed bool // given back

	done chan struct{} // closed by the end
}

// LostError says that another process owns the directory now. It is for good.
type LostError struct {
	Dir string
	By  Record
	Own time.Duration // the lease that was over
}

func (e *LostError) Error() string {
	return fmt.Sprintf("this job does not own %s any more: %s took it, since this job gave no sign of life for %v; this job goes on, but cannot be saved there, and removes nothing there: end one of the two jobs",
		e.Dir, &e.By, e.Own)
}

// Dir is the directory.
func (l *Lease) Dir() string { return l.dir }

// Token is greater than that of every owner before.
func (l *Lease) Token() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record.Token
}

// Supposed tells whether the owner before was only supposed to be dead: it may wake up in the middle of a
// step.
func (l *Lease) Supposed() bool { return l.supposed }

// Before is the owner before; its State is Released, or empty, when there is nobody to speak of.
func (l *Lease) Before() Record { return l.before }

// LastBeat is when the owner before last gave a sign of life, by the clock of the file system. It is zero where there was none, and where
// it was a process of the same job.
func (l *Lease) LastBeat() time.Time { return l.lastBeat }

// Check returns nil while this process owns the directory, a *LostError when it does not any more, ErrKin when
// another process of the job has it, and another error when the owner cannot be found out. If somebody deleted the
// record and nobody else has one, Check makes it again.
func (l *Lease) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.check()
}

func (l *Lease) check() error {
	if l.lost != nil {
		return l.lost
	}
	if l.closed {
		return fmt.Errorf("%s was given back already", l.dir)
	}
	fail := func(err error) error { return fmt.Errorf("who owns %s: %w", l.dir, err) }
	if err := fault.Point("lease.check"); err != nil {
		return fail(err)
	}
	list, _, err := tokens(l.folder)
	if err != nil {
		return fail(err)
	}
	if len(list) > 0 && list[0] != l.record.Token {
		by, err := newest(l.folder)
		if err != nil || by == nil {
			return fail(errors.Join(err, errors.New("another owner came and went")))
		}
		l.lost = &LostError{l.dir, by.Record, l.record.Lease()}
		if by.Heir && by.Job == l.record.Job {
			l.lost = ErrKin
		}
		return l.lost
	}
	if len(list) > 0 {
		mine, err := l.file.Stat()
		if err != nil {
			return fail(err)
		}
		named, err := os.Stat(l.path)
		if err != nil {
			return fail(err)
		}
		if !os.SameFile(mine, named) {
			return fail(fmt.Errorf("%s was copied or written by somebody else; remove it, and it is made again", l.path))
		}
		return nil
	}
	// Nobody has a record: somebody cleaned up. The token grows, as for a new owner.
	if _, err := os.Stat(l.dir); err != nil {
		return fail(err)
	}
	file, path, record := l.file, l.path, l.record
	if err := l.make(record.Token+1, nil); err != nil {
		l.file, l.path, l.record = file, path, record
		return fail(err)
	}
	_ = file.Close()
	return nil
}

// writeRecord writes the record in place, all of it in one call.
func (l *Lease) writeRecord() error {
	p, err := l.record.encode()
	if err != nil {
		return err
	}
	if err := fault.Point("lease.write"); err != nil {
		return err
	}
	_, err = l.file.WriteAt(p, 0)
	return err
}

// renew checks, and changes the beat.
func (l *Lease) renew() error {
	if err := l.check(); err != nil {
		return err
	}
	l.record.Beat++
	if err := l.writeRecord(); err != nil {
		return fmt.Errorf("renew the lease of %s: %w", l.dir, err)
	}
	if local(l.file) {
		return nil
	}
	if err := l.file.Sync(); err != nil { // so that other nodes see it
		return fmt.Errorf("renew the lease of %s: %w", l.dir, err)
	}
	return nil
}

// local tells whether other nodes see nothing of the file system, or see each write at once. Then syncing the beat
// would only slow down the program's own output.
func local(f *os.File) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil {
		return false
	}
	switch uint32(st.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC:
		return true
	}
	return false
}

// Mark says what this process does with the directory.
func (l *Lease) Mark(s State) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record.State = s
	return l.renew()
}

// Keeper is told what happens to a lease while it is kept. All may be nil.
type Keeper struct {
	Lost    func(error) // once: the directory is another's
	Trouble func(error) // once in a row: it could not be renewed, and is tried again
	Beat    func()      // after each renewal
}

// period is how often a lease is renewed. Twelve in a row must fail before others may take the directory.
func (r *Record) period() time.Duration { return min(r.Lease()/12, 2*time.Second) }

// Keep renews the lease from now on, until it is lost or given back.
func (l *Lease) Keep(k Keeper) {
	l.mu.Lock()
	period := l.record.period()
	l.mu.Unlock()
	go func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		troubled := false
		for {
			select {
			case <-l.done:
				return
			case <-tick.C:
			}
			l.mu.Lock()
			if l.closed {
				l.mu.Unlock()
				return
			}
			err := l.renew()
			lost := l.lost != nil
			l.mu.Unlock()
			switch {
			case lost:
				if k.Lost != nil {
					k.Lost(err)
				}
				return
			case err != nil && !troubled && k.Trouble != nil:
				k.Trouble(err)
			case err == nil && k.Beat != nil:
				k.Beat()
			}
			troubled = err != nil
		}
	}()
}

// Release gives the directory back: anybody may take it at once. If it is lost already, nothing is done. Release
// waits for nothing but the file, and a Keeper may call it.
func (l *Lease) Release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.release()
}

func (l *Lease) release() error {
	if l.closed {
		return nil
	}
	err := l.check()
	if err == nil {
		l.record.State = Released
		l.record.Beat++
		if err = l.writeRecord(); err == nil {
			err = l.file.Sync()
		}
	}
	l.close()
	if l.lost != nil {
		return nil
	}
	return err
}

// Vanish gives the directory back and removes the folder of the leases. It is for a directory in which nothing is
// kept.
//
// Tokens begin anew in the next folder, which would hide an owner in this one. So nobody may come to own this
// folder meanwhile: this process stays the owner, which nobody replaces, until the folder loses its name in one
// step, with the record in it.
func (l *Lease) Vanish() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	err := l.check()
	if err == nil {
		l.record.Brief = true // who wants the directory now waits for the moment that this takes
		err = l.writeRecord()
	}
	gone := filepath.Join(l.dir, fmt.Sprintf("%s.%d%s", folderName, l.record.Token, goneSuffix))
	if err != nil || os.Rename(l.folder, gone) != nil {
		return l.release() // it only stays
	}
	l.close()
	if s, err := newest(gone); err == nil && s != nil && s.Token != l.record.Token {
		// This process stood still for its whole lease, and another node took the directory between the
		// look and the rename. The folder gets its name back, if nobody has made another one; else the
		// new owner makes a new record.
		_ = os.Rename(gone, l.folder)
		return nil
	}
	removeGone(gone)
	return nil
}

// goneSuffix ends the name of a folder of leases that nobody uses any more.
const goneSuffix = ".gone"

// removeGone removes such a folder, and of what is in it only our own. Processes that began to make a record in it
// while it left its name may still do so; they find out. What stays after some tries is for the next owner.
func removeGone(gone string) {
	for range 10 {
		entries, _ := os.ReadDir(gone)
		for _, e := range entries {
			if written(e.Name()) {
				_ = os.Remove(filepath.Join(gone, e.Name()))
			}
		}
		if err := os.Remove(gone); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
	}
}

// close forgets the file, and with it the lock.
func (l *Lease) close() {
	l.closed = true
	close(l.done)
	_ = l.file.Close()
}
