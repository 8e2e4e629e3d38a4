// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"errors"
	"fmt"
	"os"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/lease"
	"github.com/libckpt/libckpt/ckpt/store"
)

// SaidError is an error that ends the job and that the user knows already, from this rank or from rank 0. It is not
// printed again.
type SaidError struct{ Err error }

func (e *SaidError) Error() string { return e.Err.Error() }
func (e *SaidError) Unwrap() error { return e.Err }

// say tells the user of an error with which all ranks end. It does so before the other ranks know of the error,
// since a launcher ends all ranks when one of them ends.
func say(h Host, err error) error {
	var said *SaidError
	if err == nil || errors.As(err, &said) || !h.Say(fmt.Sprintf("ckptrun: %v", err)) {
		return err
	}
	return &SaidError{err}
}

// saidByRank0 has rank 0 tell the user why no epoch can be continued, which all ranks find out by themselves before they
// can talk to each other: it leaves word in the directory, and a rank for which there is one ends without a word of its
// own. Where none can be left, or rank 0 has found nothing wrong, each rank tells what it has found.
func saidByRank0(h Host, o launch.Options, err error, logger *zap.Logger) error {
	rank := launch.LauncherRank(os.Getenv)
	dir, _, serr := store.SplitSpec(o.Restart)
	if err == nil || errors.As(err, new(*SaidError)) || rank < 0 || serr != nil {
		return err
	}
	dir = absolute(dir)
	c := claim(dir, o, "", logger)
	switch {
	case rank == 0:
		err = say(h, err)
		lease.Refuse(dir, c, err)
	case lease.Told(dir, c):
		err = &SaidError{err}
	}
	return err
}
