// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/libckpt/libckpt/internal/e2e"
	"github.com/libckpt/libckpt/internal/suites"
)

// ending is what a program came to: how it ended, and its result.
type ending struct {
	exit e2e.Exit
	text string          // of a program of ours
	rest *suites.Outcome // of others
}

// same describes the first difference of another ending from the native one.
func (e *ending) same(here *ending) error {
	switch {
	case e.exit != here.exit:
		return fmt.Errorf("the program ended with %v, natively with %v", here.exit, e.exit)
	case e.rest != nil:
		if err := e.rest.Same(here.rest); err != nil {
			return fmt.Errorf("wrong answer: %w", err)
		}
	case e.text != here.text:
		return fmt.Errorf("wrong answer:\n%s\nnatively:\n%s", here.text, e.text)
	}
	return nil
}

// ending reads what an incarnation came to in a folder.
func (l *Life) ending(in *incarnation, work string, exit e2e.Exit) (*ending, error) {
	e := &ending{exit: exit}
	stdout, err := in.own.Printed("out", l.Ranks)
	if err != nil {
		return nil, err
	}
	if l.other == nil {
		e.text = stdout
		return e, nil
	}
	stderr, err := in.own.Printed("err", l.Ranks)
	if err != nil {
		return nil, err
	}
	if e.rest, err = l.other.Outcome(work, stdout, stderr); err != nil {
		return nil, fmt.Errorf("after %v: %w\nof the launcher: %s", exit, err, tail(in.stderr))
	}
	return e, nil
}

// fresh makes a folder for a run from the program's start, with its inputs and nothing else.
func (l *Life) fresh(work string, own e2e.RankFiles) error {
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(string(own) + ".*.*")
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	if l.other == nil {
		return nil
	}
	return l.other.Supply(work)
}
