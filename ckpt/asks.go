// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/attributes"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/snapshot"
)

// asks notes what the program has asked the kernel for, or says why that keeps it from being saved. The list of mappings with their flags takes the kernel longer than the one
// without, and is read where the program may have given advice only.
func (c *capture) asks(j *Job) (obstacle string, lasting bool, err error) {
	asked := j.host.Asked(0)
	threads := j.host.Threads()
	if obstacle, err = attributes.GivenUp(threads, asked); obstacle != "" || err != nil {
		return obstacle, true, err // nothing gives rights back
	}
	rings, err := attributes.Rings(asked)
	if err != nil {
		return "", false, err
	}
	if rings > 0 {
		return fmt.Sprintf("the program has %d contexts of asynchronous I/O (io_setup): they cannot be saved until it has ended them (io_destroy)", rings), false, nil
	}
	if asked&(attributes.Hidden|attributes.Advice|attributes.Locked) != 0 {
		hidden, advice, err := snapshot.Advised()
		if err != nil {
			return "", false, err
		}
		c.hidden = hidden
		if err := c.note(sectionForks, hidden, len(hidden)); err != nil {
			return "", false, err
		}
		if err := c.note(sectionAdvice, advice, len(advice)); err != nil {
			return "", false, err
		}
	}
	state, err := j.began.Read(threads, asked)
	if err != nil {
		return "", false, err
	}
	b, err := state.Encode()
	if err == nil && b != nil {
		c.sections = append(c.sections, image.Section{Name: attributes.Section, Data: b})
	}
	return "", false, err
}

// note adds a section where it says something.
func (c *capture) note(name string, what any, length int) error {
	if length == 0 {
		return nil
	}
	b, err := json.Marshal(what)
	c.sections = append(c.sections, image.Section{Name: name, Data: b})
	return err
}

// readSection decodes a section that may not be there.
func readSection(f *image.File, name string, decode func([]byte) error) (is bool, err error) {
	b, err := f.Section(name)
	if errors.Is(err, image.ErrNoSection) {
		return false, nil
	}
	if err == nil {
		err = decode(b)
	}
	if err != nil {
		return false, fmt.Errorf("%s: section %q: %w", f.Name(), name, err)
	}
	return true, nil
}

// adviseAgain hides from forks what the program had hidden, and gives its other advice on memory. What the kernel does not do here is
// logged: but for what is hidden, which would be in the children of the program, it changes no result.
func (j *Job) adviseAgain(f *image.File, later bool) error {
	var hidden snapshot.Hidden
	is, err := readSection(f, sectionForks, func(b []byte) error {
		if err := json.Unmarshal(b, &hidden); err != nil {
			return err
		}
		if err := hidden.Check(); err != nil {
			return err
		}
		return hidden.Hide()
	})
	if err != nil {
		return err
	}
	if is {
		j.host.Asked(attributes.Hidden)
	}
	var advice snapshot.Advice
	is, err = readSection(f, sectionAdvice, func(b []byte) error {
		if err := json.Unmarshal(b, &advice); err != nil {
			return err
		}
		return advice.Check()
	})
	if err != nil || !is {
		return err
	}
	j.host.Asked(attributes.Advice | attributes.Locked)
	if err := advice.Give(later); err != nil {
		j.log.Warn("the kernel does not treat memory as the program had asked", zap.Error(err))
	}
	return nil
}

// askAgain gives the program's threads, which are made and do not run yet, what they had of the kernel.
func (j *Job) askAgain(f *image.File) error {
	var state attributes.State
	is, err := readSection(f, attributes.Section, func(b []byte) (err error) {
		state, err = attributes.Decode(b)
		return err
	})
	if err != nil || !is {
		return err
	}
	j.host.Asked(state.Barriers)
	for _, what := range j.began.Apply(state, j.host.Threads()) {
		j.log.Warn("the program goes on without something that it had asked the kernel for", zap.String("what", what))
	}
	return nil
}
