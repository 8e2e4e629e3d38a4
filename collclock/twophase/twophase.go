// SPDX-License-Identifier: Apache-2.0

package twophase

import "github.com/libckpt/libckpt/collclock"

// Machine is one rank.
type Machine struct{ *collclock.Machine }

// New returns the machine of one rank.
func New(cfg collclock.Config) Machine { return Machine{collclock.New(cfg)} }

// Step takes one event and returns what is to be done now.
func (m Machine) Step(e collclock.Event) []collclock.Action {
	if call, ok := e.(collclock.Call); ok {
		call.Mode = collclock.Gated
		e = call
	}
	return m.Machine.Step(e)
}

// Clone returns an independent copy.
func (m Machine) Clone() Machine { return Machine{m.Machine.Clone()} }
