// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/lease"
	"github.com/libckpt/libckpt/ckpt/store"
)

// Who owns the checkpoint directory. Rank 0 takes the directory before a start or restart does anything else, and
// keeps it until rank 0's process ends. The other ranks do nothing that anybody else could see before they know
// that rank 0 has the directory. A job that is restarted from one directory and saved into another owns both: a
// second restart from the first would touch the same files.

// owned is what this process holds for its job. Only rank 0 has one.
type owned struct {
	log    *zap.Logger
	leases []*lease.Lease // of the directory that is written to last

	alone bool // the other ranks of the launcher have not met this one

	mu     sync.Mutex
	lost   error
	record func() // writes job.json again if it is gone; nil while there is none
}

// own takes the directories that a job with these options uses. from is the directory of the epoch that the job
// continues, "" for a start. heir: take them also from another process of the job, such as the wrapper of its
// program; without heir the result is nil when such a process has them. On failure none is held.
func own(h Host, o launch.Options, from, program string, heir bool, logger *zap.Logger) (*owned, error) {
	w := &owned{log: logger}
	dirs, err := directories(o, from)
	if err != nil {
		return nil, say(h, err)
	}
	for _, dir := range dirs {
		l, err := w.take(dir, o, program, heir)
		if errors.Is(err, lease.ErrKin) {
			w.release()
			return nil, nil
		}
		if err != nil && dir == from && len(dirs) == 2 && readOnly(err) {
			w.log.Info("read from only: it cannot be written to", zap.String("dir", dir))
			continue // nobody here can run a job in it either
		}
		if err != nil {
			err = say(h, err)
			lease.Refuse(dir, claim(dir, o, program, logger), err)
			w.release()
			return nil, err
		}
		w.leases = append(w.leases, l)
		l.Keep(lease.Keeper{Lost: w.lose, Trouble: w.trouble, Beat: w.beat})
	}
	return w, nil
}

// directories are those that a job uses, in the order in which they are taken. A directory that cannot be looked
// at is an error: taken twice, it would be lost to the job itself.
func directories(o launch.Options, from string) ([]string, error) {
	if from == "" || from == o.Dir {
		return []string{o.Dir}, nil
	}
	a, err := os.Stat(from)
	if err != nil {
		return nil, fmt.Errorf("the directory of the checkpoint: %w", err)
	}
	b, err := os.Stat(o.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return []string{from, o.Dir}, nil // it is made when it is taken
	}
	if err != nil {
		return nil, fmt.Errorf("the checkpoint directory: %w", err)
	}
	if os.SameFile(a, b) {
		return []string{o.Dir}, nil
	}
	return []string{from, o.Dir}, nil
}

// lastSeen is when the job that owned a directory before this one was last seen to live; zero: nobody knows.
func (w *owned) lastSeen(dir string) (at time.Time) {
	if w == nil {
		return at
	}
	for _, l := range w.leases {
		if sameDir(l.Dir(), dir) {
			at = l.LastBeat()
		}
	}
	return at
}

func readOnly(err error) bool { return errors.Is(err, unix.EROFS) || errors.Is(err, os.ErrPermission) }

func sameDir(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

func claim(dir string, o launch.Options, program string, logger *zap.Logger) lease.Claim {
	above := ancestors()
	job, age := launch.LauncherJob(os.Getenv, above)
	launched := launch.Launched(os.Getenv)
	return lease.Claim{
		Program: program, Job: job, Age: age, Lease: o.Lease, Stop: interrupted,
		Kin: func(r lease.Record) bool {
			started := slices.ContainsFunc(above, func(a launch.Ancestor) bool { return a.PID == r.PID })
			return launched && r.Job == job && (job != "" || started)
		},
		Waiting: func(r lease.Record, d time.Duration) {
			logger.Warn(fmt.Sprintf("%s belongs to %s, which is not on this host: watched for %v for a sign of life; if you know that it has ended, `ckptctl unlock %s` lets this job go on at once", dir, &r, d, dir))
		},
		Answers: func(lease.Record) bool { return answers(dir) },
	}
}

func (w *owned) take(dir string, o launch.Options, program string, heir bool) (*lease.Lease, error) {
	s, err := store.Create(dir)
	if err != nil {
		return nil, err
	}
	c := claim(dir, o, program, w.log)
	c.Heir = heir
	l, err := lease.Take(dir, c)
	if err != nil {
		_ = os.Remove(dir) // when it was made here, and is empty
		return nil, err
	}
	if l.Supposed() {
		before := l.Before()
		w.log.Warn(fmt.Sprintf("%s is taken over from %s, which gave no sign of life for %v", dir, &before, before.Lease()))
		err = s.Fence()
	} else {
		err = s.Settle()
	}
	if err != nil {
		return nil, errors.Join(err, l.Release())
	}
	return l, nil
}

// answers asks the job of job.json whether it lives.
func answers(dir string) bool {
	s, err := store.Open(dir)
	if err != nil {
		return false
	}
	r, err := s.ReadJob()
	if err != nil {
		return false
	}
	a, err := control.ParseAddress(r.Host, r.Control, r.Key)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = control.NewClient(a).Status(ctx)
	return err == nil
}

// notTakenAfter is how long a rank waits for rank 0, whose node may be slow, to take a directory that nobody
// else has.
const notTakenAfter = 5 * time.Minute

// awaitOwner is for ranks other than 0: it returns when rank 0 of this job owns the directories. If the launcher
// does not tell jobs apart, it returns at once: the ranks meet in MPI_Init.
func awaitOwner(o launch.Options, from string, logger *zap.Logger) error {
	c := claim(o.Dir, o, "", logger)
	if c.Job == "" {
		return nil
	}
	// If this fails here, it fails on rank 0 too, and waiting would be in vain.
	if _, err := store.Create(o.Dir); err != nil {
		return err
	}
	if err := unix.Access(o.Dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("checkpoint directory %s: %w", o.Dir, err)
	}
	dirs, err := directories(o, from)
	if err != nil {
		return err
	}
	err = lease.Await(dirs, c, notTakenAfter)
	var told *lease.ToldError
	if errors.As(err, &told) {
		return &SaidError{err}
	}
	if errors.Is(err, lease.ErrNotTaken) {
		err = fmt.Errorf("%w within %v: all ranks must be started by ckptrun, and see the same directory", err, notTakenAfter)
	}
	return err
}

// ownWord is what rank 0 tells the others: whether it owns the directories.
type ownWord struct {
	Error string `json:"error,omitempty"`
}

// ownWordBytes is room for a sentence; the runtime's all-gather takes the same number from every rank.
const ownWordBytes = 2048

// ownTogether has rank 0 call take, and returns the result on every rank. An error is told to the user before.
// Collective.
func ownTogether(h Host, rt Runtime, take func() error) (err error) {
	var word ownWord
	if rt.Rank() == 0 {
		if err = take(); err != nil {
			err = say(h, err)
			word.Error = err.Error()
		}
	}
	b, jerr := json.Marshal(word)
	if jerr != nil || len(b) > ownWordBytes {
		b = []byte(`{"error":"it cannot take the directory of the checkpoints, and says why itself"}`)
	}
	all, gerr := rt.Allgather(append(b, bytes.Repeat([]byte{' '}, ownWordBytes-len(b))...))
	if err = errors.Join(err, gerr); err != nil || rt.Rank() == 0 {
		return err
	}
	if err := json.Unmarshal(all[0], &word); err != nil {
		return fmt.Errorf("what rank 0 says of the directory of the checkpoints: %w", err)
	}
	if word.Error != "" {
		return &SaidError{fmt.Errorf("rank 0: %s", word.Error)}
	}
	return nil
}

// check says whether the job still owns all its directories.
func (w *owned) check() error {
	for _, l := range w.leases {
		if err := l.Check(); err != nil {
			var lost *lease.LostError
			if errors.As(err, &lost) || errors.Is(err, lease.ErrKin) {
				w.lose(err)
			}
			return err
		}
	}
	return nil
}

// lose logs once that a directory is lost, whoever finds it out.
func (w *owned) lose(err error) {
	w.mu.Lock()
	first := w.lost == nil
	if first {
		w.lost = err
	}
	w.mu.Unlock()
	if first && !errors.Is(err, lease.ErrKin) {
		w.log.Error(err.Error())
	}
}

// lostTo is the loss of a directory, nil while none is known.
func (w *owned) lostTo() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

func (w *owned) trouble(err error) {
	w.log.Warn("the lease of the checkpoint directory could not be renewed; it is tried again", zap.Error(err))
}

// beat looks after job.json: ckptctl has no other way to find the job.
func (w *owned) beat() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.record != nil && w.lost == nil {
		w.record()
	}
}

// publish has f called from time to time, until another function replaces it; f may not wait for the lease.
func (w *owned) publish(f func()) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record = f
}

// mark says what the job does.
func (w *owned) mark(s lease.State) {
	if w == nil {
		return
	}
	for _, l := range w.leases {
		if err := l.Mark(s); err != nil && w.lostTo() == nil {
			w.trouble(err)
		}
	}
}

// release gives all directories back, and removes one in which nothing was saved. It does not remove it when the
// ranks did not meet in MPI_Init: other ranks may still have to see that it was this job's.
func (w *owned) release() {
	if w == nil {
		return
	}
	w.publish(nil)
	for i := len(w.leases) - 1; i >= 0; i-- {
		l := w.leases[i]
		err := error(nil)
		if names, e := readNames(l.Dir()); e == nil && len(names) == 1 && !w.alone { // the leases themselves
			if err = l.Vanish(); err == nil {
				_ = os.Remove(l.Dir())
			}
		} else {
			err = l.Release()
		}
		if err != nil {
			w.log.Warn("the checkpoint directory was not given back; it is free when this process has ended", zap.String("dir", l.Dir()), zap.Error(err))
		}
	}
	w.leases = nil
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}

// maxAncestors bounds the way up to a launcher.
const maxAncestors = 32

// userHZ is how many ticks of /proc are a second: the kernel's constant for programs on every architecture.
const userHZ = 100

// ancestors are this process's parent, its parent, and so on.
func ancestors() []launch.Ancestor {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // never fails
	var all []launch.Ancestor
	for pid := os.Getppid(); pid > 1 && len(all) < maxAncestors; {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			break
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			break
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 20 {
			break
		}
		above, err1 := strconv.Atoi(fields[1])
		ticks, err2 := strconv.ParseInt(fields[19], 10, 64) // starttime of proc_pid_stat(5), since boot
		if err1 != nil || err2 != nil {
			break
		}
		all = append(all, launch.Ancestor{
			PID:     pid,
			Command: strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00"),
			Age:     time.Duration(now.Nano() - ticks*(int64(time.Second)/userHZ)),
		})
		pid = above
	}
	return all
}

// interrupted tells whether somebody wants this process to end: signals are blocked before the program runs, so
// waiting for a directory must look for them.
func interrupted() error {
	var pending uint64
	if _, _, e := unix.RawSyscall(unix.SYS_RT_SIGPENDING, uintptr(unsafe.Pointer(&pending)), unsafe.Sizeof(pending), 0); e != 0 {
		return nil
	}
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT} {
		if pending&(1<<(uint(s)-1)) != 0 {
			return fmt.Errorf("interrupted by %v while waiting to own the directory; nothing was touched", s)
		}
	}
	return nil
}

// absolute is filepath.Abs, or dir itself if that fails.
func absolute(dir string) string {
	if a, err := filepath.Abs(dir); err == nil {
		return a
	}
	return dir
}

// Launchers are the programs above this process, the nearest first, as far as they can be seen.
func Launchers() []string {
	var all []string
	for _, a := range ancestors() {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", a.PID)); err == nil {
			all = append(all, exe)
		}
	}
	return all
}
