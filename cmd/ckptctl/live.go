// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/term"

	"github.com/libckpt/libckpt/ckpt/control"
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
		return nil, err
	}
	record, err := s.ReadJob()
	if errors.Is(err, store.ErrNoJob) {
		return nil, fmt.Errorf("%w in %s: %s; a job that was just started opens it in MPI_Init", errNoJob, dir, howToRun(s))
	}
	if err != nil {
		return nil, err
	}
	address, err := control.ParseAddress(record.Host, record.Control, record.Key)
	if err != nil {
		return nil, fmt.Errorf("job.json in %s: %w; it is written anew when a job starts there", dir, err)
	}
	return &liveJob{s, record, control.NewClient(address)}, nil
}

// explain says what to do when the job does not answer. Other errors stay as they are.
func (j *liveJob) explain(err error) error {
	if !errors.Is(err, control.ErrNotRunning) {
		return err
	}
	return fmt.Errorf("%s: %w; if it has ended, %s", j, err, howToRun(j.store))
}

// String names the job of a record.
func (j *liveJob) String() string {
	return fmt.Sprintf("%s (process %d on host %s), which ran in %s", j.record.Program, j.record.PID, j.record.Host, j.store.Dir())
}

// howToRun says how a job gets to run in a directory.
func howToRun(s *store.Store) string {
	if epoch := newest(s); epoch > 0 {
		return fmt.Sprintf("continue from epoch %d with `ckptrun --restart %s`", epoch, s.Dir())
	}
	return fmt.Sprintf("start one with `ckptrun --dir %s PROGRAM` (no epoch is committed there yet)", s.Dir())
}

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
