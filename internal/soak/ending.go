// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

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
	stdout, err := l.printed(in.own + ".out")
	if err != nil {
		return nil, err
	}
	if l.other == nil {
		e.text = stdout
		return e, nil
	}
	stderr, err := l.printed(in.own + ".err")
	if err != nil {
		return nil, err
	}
	if e.rest, err = l.other.Outcome(work, stdout, stderr); err != nil {
		return nil, fmt.Errorf("after %v: %w\nof the launcher: %s", exit, err, tail(in.stderr))
	}
	return e, nil
}

// printed is what all ranks printed, one after the other.
func (l *Life) printed(path string) (string, error) {
	var all strings.Builder
	for rank := range l.Ranks {
		text, err := os.ReadFile(fmt.Sprintf("%s.%d", path, rank))
		if err != nil {
			return "", err
		}
		all.Write(text)
	}
	return all.String(), nil
}

// redirect has each rank write to a file of its own, which a restart cuts back to what it held when the image
// was made: between a rank and its launcher, nobody knows how much was on its way, and what was printed before
// the last checkpoint is another incarnation's.
func redirect(own string, argv []string) []string {
	const script = `rank=${PMI_RANK-$OMPI_COMM_WORLD_RANK}; exec "$@" >>"$0.out.$rank" 2>>"$0.err.$rank"`
	return append([]string{"/bin/sh", "-c", script, own}, argv...)
}

// fresh makes a folder for a run from the program's start, with its inputs and nothing else.
func (l *Life) fresh(work, own string) error {
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(own + ".*.*")
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
