// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/lease"
	"github.com/libckpt/libckpt/ckpt/store"
)

// liveJob is a job that job.json says is running in a directory.
type liveJob struct {
	store  *store.Store
	record store.Job
	client *control.Client
}

// errNoJob says that no job has opened the directory, or that the last one has ended.
var errNoJob = errors.New("no job runs")

// notOpenYet tells whether err may be gone when a job that is starting has come as far as MPI_Init.
func notOpenYet(err error) bool {
	return errors.Is(err, errNoJob) || errors.Is(err, control.ErrNotRunning) || errors.Is(err, fs.ErrNotExist)
}

// findJob reads job.json of a directory. That the job answers is not known yet.
func findJob(dir string) (*liveJob, error) {
	s, err := store.Open(dir)
	if err != nil {
		return nil, &notHereError{err}
	}
	record, err := readJob(s)
	if errors.Is(err, store.ErrNoJob) {
		if o, ok := ownerOf(s); ok && o.Life != lease.Dead {
			return nil, &silence{errNoJob, fmt.Sprintf("%s: no job can be asked there now: %s", dir, o)}
		}
		return nil, &notHereError{fmt.Errorf("%w in %s: %s", errNoJob, dir, howToRun(s))}
	}
	if err != nil {
		return nil, err
	}
	address, err := control.ParseAddress(record.Host, record.Control, record.Key)
	if err != nil {
		return nil, fmt.Errorf("job.json in %s: %w; it is written anew when a job starts there", dir, err)
	}
	job := &liveJob{s, record, control.NewClient(address)}
	if o, err := lease.Look(dir); err == nil && o.Owned && o.Life == lease.Stopped && o.Owner.PID == record.PID {
		return nil, job.explain(control.ErrNotRunning) // it would keep us waiting, and not answer
	}
	return job, nil
}

// explain says what to do when the job does not answer. Other errors stay as they are.
func (j *liveJob) explain(err error) error {
	if !errors.Is(err, control.ErrNotRunning) {
		return err
	}
	if o, ok := ownerOf(j.store); ok && o.Life != lease.Dead {
		return &silence{err, fmt.Sprintf("%s does not answer; %s", j, o)}
	}
	return fmt.Errorf("%s: %w; if it has ended, %s", j, err, howToRun(j.store))
}

// silence is an error of ours in other words: the job does not answer, and is not known to have ended.
type silence struct {
	is   error
	text string
}

func (e *silence) Error() string { return e.text }
func (e *silence) Unwrap() error { return e.is }

// readJob reads job.json. A job that runs writes it again when somebody removed it: that is waited for.
func readJob(s *store.Store) (store.Job, error) {
	record, err := s.ReadJob()
	if !errors.Is(err, store.ErrNoJob) {
		return record, err
	}
	first, lerr := lease.Look(s.Dir())
	if lerr != nil || !first.Owned || first.Owner.State != lease.Running || first.Life == lease.Dead || first.Life == lease.Stopped {
		return record, err
	}
	for end := time.Now().Add(first.Beats() + time.Second); time.Now().Before(end); time.Sleep(lookAgain) {
		if record, err = s.ReadJob(); !errors.Is(err, store.ErrNoJob) {
			break
		}
		if now, e := lease.Look(s.Dir()); e != nil || !now.Owned || now.Owner.State != lease.Running {
			break // it has come to its end
		}
	}
	return record, err
}

// owner is who has a directory, with what can be said of it from here.
type owner struct{ lease.Sight }

// ownerOf watches the owner of a directory for a sign of life; false when there is none.
func ownerOf(s *store.Store) (owner, bool) {
	sight, err := lease.Watch(s.Dir())
	return owner{sight}, err == nil && sight.Owned
}

// String says who it is, whether it lives, and what can be done. No second run is advised while it may live.
func (o owner) String() string {
	r := &o.Owner
	who := fmt.Sprintf("the directory belongs to %s", r)
	switch {
	case o.Life == lease.Stopped:
		return who + ", which is stopped (SIGSTOP, a debugger); kill -CONT continues it"
	case o.Life == lease.Dying:
		return who + ", which was killed and is ending"
	case o.Life.Lives() && r.State == lease.Starting:
		return who + ", which runs and cannot be asked before it calls MPI_Init"
	case o.Life.Lives() && r.State == lease.Ending:
		return who + ", which has finalized MPI and is ending"
	case o.Life.Lives():
		return who + ", which runs"
	case o.Life == lease.Dead:
		return who + ", which has ended"
	}
	return fmt.Sprintf("%s, which gave no sign of life for %v; a restart watches it for %v before it takes the directory over; if you know that it has ended, `ckptctl unlock` gives the directory back at once",
		who, o.Beats(), r.Lease())
}

// String names the job of a record.
func (j *liveJob) String() string {
	return fmt.Sprintf("%s (process %d on host %s), which ran in %s", j.record.Program, j.record.PID, j.record.Host, j.store.Dir())
}

// howToRun says how a job gets to run in a directory, or that one may be running there.
func howToRun(s *store.Store) string {
	if o, ok := ownerOf(s); ok && o.Life != lease.Dead {
		return o.String()
	}
	epoch, err := s.Newest()
	switch {
	case err == nil:
		if m, err := s.Manifest(epoch); err == nil && namesState(m) {
			return fmt.Sprintf("start the program again as before, with CKPT_DIR=%s: it goes on from epoch %d", s.Dir(), epoch)
		}
		return fmt.Sprintf("continue from epoch %d with `ckptrun --restart %s`", epoch, s.Dir())
	case !errors.Is(err, store.ErrNone): // which of the others it is says the error
		return "its newest epoch cannot be used: " + err.Error()
	}
	return fmt.Sprintf("start one with `ckptrun --dir %s PROGRAM` (no epoch is committed there yet)", s.Dir())
}

// namesState tells whether the epoch is of a program that names its state, and is not started by ckptrun.
func namesState(m *store.Manifest) bool { return m.Mode == "regions" && m.Processes == 0 }

// newest is the newest committed epoch, 0 when there is none.
func newest(s *store.Store) int {
	epoch, err := s.Newest()
	if err != nil {
		return 0
	}
	return epoch
}

// terminal returns w as a file when it is a terminal that can redraw lines.
func terminal(w io.Writer) (*os.File, bool) {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return nil, false
	}
	return f, term.IsTerminal(int(f.Fd()))
}
