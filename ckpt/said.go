// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"errors"
	"fmt"
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
