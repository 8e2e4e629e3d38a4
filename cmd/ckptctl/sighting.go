// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/libckpt/libckpt/ckpt/lease"
	"github.com/libckpt/libckpt/ckpt/store"
)

// sighting is a job that was seen to live, though it did not take a request: it is just ending.
//
// A record alone proves nothing. A job that is killed leaves its own behind, and a restart, which is
// worth waiting for, puts another in its place. So a job was there only if its process was seen on this
// host, or something accepted the connection; of one on another host, or in another container, nothing
// is known, and it is waited for as for any.
type sighting struct{ job *liveJob }

// over takes the outcome of one more try, in which no job took the request: the job of the record, nil
// when there was none, and why. It tells whether a job that was seen has ended since.
func (s *sighting) over(job *liveJob, err error) bool {
	if job == nil {
		// A job removes its record in its end; somebody else may have done it while the job runs.
		return s.job != nil && !s.job.owns()
	}
	lives := job.lives()
	switch {
	case s.job != nil && s.job.record.Key == job.record.Key:
		return !lives && !connectionLost(err)
	case lives || connectionLost(err):
		s.job = job
	default:
		// It may have ended just now, between the request and the look at its process.
		s.job = nil
		if _, again := job.store.ReadJob(); errors.Is(again, store.ErrNoJob) {
			s.job = job
			return true
		}
	}
	return false
}

// lives tells whether the process of rank 0 is seen on this host.
func (j *liveJob) lives() bool {
	if here, err := os.Hostname(); err != nil || here != j.record.Host {
		return false
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", j.record.PID))
	return err == nil && filepath.Base(exe) == "ckptrun"
}

// owns tells whether the process of the record still has the directory, for all that is known.
func (j *liveJob) owns() bool {
	o, err := lease.Look(j.store.Dir())
	return err == nil && o.Owned && o.Life != lease.Dead && o.Owner.State == lease.Running && o.Owner.PID == j.record.PID
}
