// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/libckpt/libckpt/internal/fault"
	"github.com/libckpt/libckpt/internal/regular"
)

// ErrNoJob is wrapped by ReadJob when the directory names no job.
var ErrNoJob = errors.New("no job is recorded here")

const jobName = "job.json"

// maxJob bounds what is read as a job record: more than the arguments that a program can have.
const maxJob = 16 << 20

// JobFormat is the version of job.json.
const JobFormat = 1

// Job says who runs in a directory and how to reach it. It is not removed when a job is killed, so a
// reader must expect that nobody answers.
type Job struct {
	Format  int       `json:"format"` // JobFormat; set by WriteJob
	Libckpt string    `json:"libckpt"`
	Program string    `json:"program"`
	Args    []string  `json:"args"`
	Ranks   int       `json:"ranks"`
	MPI     MPI       `json:"mpi"`
	Host    string    `json:"host"` // of rank 0
	PID     int       `json:"pid"`  // of rank 0
	Started time.Time `json:"started"`

	Control string `json:"control"` // address of rank 0's control plane
	Key     string `json:"key"`     // what proves knowledge of the job; the reason for mode 0600
}

// WriteJob records the job, and replaces an older record. On failure the older record stays.
func (s *Store) WriteJob(j Job) error {
	j.Format = JobFormat
	p, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("job record: %w", err)
	}
	path := filepath.Join(s.dir, jobName)
	temp, err := writeTemp(path, append(p, '\n'), "store.job")
	if err != nil {
		return fmt.Errorf("job record %s: %w", path, err)
	}
	if err = fault.Point("store.job.rename"); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp)
		return fmt.Errorf("job record %s: %w", path, err)
	}
	return nil
}

// ReadJob reads the record. It wraps ErrNoJob when there is none.
func (s *Store) ReadJob() (Job, error) {
	path := filepath.Join(s.dir, jobName)
	p, err := regular.ReadFile(path, maxJob)
	if errors.Is(err, fs.ErrNotExist) {
		return Job{}, fmt.Errorf("%s: %w", s.dir, ErrNoJob)
	}
	if err != nil {
		return Job{}, fmt.Errorf("job record: %w", err)
	}
	return decodeJob(path, p)
}

func decodeJob(path string, p []byte) (Job, error) {
	var j Job
	if err := json.Unmarshal(p, &j); err != nil {
		return Job{}, fmt.Errorf("job record %s: %w; it is written anew when a job starts here", path, err)
	}
	if j.Format != JobFormat {
		return Job{}, fmt.Errorf("job record %s: format is %d, this libckpt reads %d; "+
			"use the ckptctl of the libckpt that runs the job", path, j.Format, JobFormat)
	}
	return j, nil
}

// RemoveJob removes the record; it is no error when there is none.
func (s *Store) RemoveJob() error {
	if err := os.Remove(filepath.Join(s.dir, jobName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("job record: %w", err)
	}
	return nil
}
