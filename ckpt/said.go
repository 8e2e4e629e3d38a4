// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"errors"
	"fmt"
)

// SaidError is an error that ends the job, and of which the user was told, by this rank or by rank 0: it is
// not said again.
type SaidError struct{ Err error }

func (e *SaidError) Error() string { return e.Err.Error() }
func (e *SaidError) Unwrap() error { return e.Err }

// say tells the user of an error that all ranks end with, before the others know of it: a launcher ends all
// ranks when one of them ends.
func say(h Host, err error) error {
	var said *SaidError
	if err == nil || errors.As(err, &said) || !h.Say(fmt.Sprintf("ckptrun: %v", err)) {
		return err
	}
	return &SaidError{err}
}
