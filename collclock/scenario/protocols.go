// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"github.com/libckpt/libckpt/collclock"
	"github.com/libckpt/libckpt/collclock/published"
	"github.com/libckpt/libckpt/collclock/twophase"
)

type refined struct{ *collclock.Machine }

func (r refined) Clone() Protocol { return refined{r.Machine.Clone()} }

// eager enters what is permitted at once, as the refined protocol must not.
type eager struct{ refined }

func (e eager) Clone() Protocol { return eager{refined{e.Machine.Clone()}} }

// Clear tells that any permitted call may be entered.
func (e eager) Clear(collclock.ID) bool { return true }

func refinedEager(rank, ranks int) Protocol {
	return eager{refined{collclock.New(collclock.Config{Rank: rank, Ranks: ranks})}}
}

type twoPhase struct{ twophase.Machine }

func (t twoPhase) Clone() Protocol { return twoPhase{t.Machine.Clone()} }

type pub struct{ *published.Machine }

func (p pub) Clone() Protocol { return pub{p.Machine.Clone()} }

// Refined makes the protocol of this library. trace may be nil.
func Refined(trace func(collclock.TraceEvent)) Maker {
	return func(rank, ranks int) Protocol {
		return refined{collclock.New(collclock.Config{Rank: rank, Ranks: ranks, Trace: trace})}
	}
}

// TwoPhase makes the two-phase commit.
func TwoPhase(rank, ranks int) Protocol {
	return twoPhase{twophase.New(collclock.Config{Rank: rank, Ranks: ranks})}
}

// Published makes the published algorithm, as the paper has it or with additions.
func Published(additions published.Config) Maker {
	return func(rank, ranks int) Protocol {
		c := additions
		c.Rank, c.Ranks = rank, ranks
		return pub{published.New(c)}
	}
}

// PublishedPlain is the published algorithm without additions.
var PublishedPlain = Published(published.Config{})
