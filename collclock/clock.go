// SPDX-License-Identifier: Apache-2.0

package collclock

// clock is what one rank knows about one clock. All counts are monotone for the clock's whole life;
// what belongs to one epoch is in epochState and starts anew with each.
type clock struct {
	id ID

	// Who and where. When another member has created the clock before this rank, the clock is known only from
	// messages: created is false, and the clock has no place yet.
	created, freed bool
	group          Group
	place          place

	// The application's side.
	call uint64 // calls made
	ent  uint64 // calls permitted: inside MPI, or about to enter
	ret  uint64 // calls whose real call, or real start, has returned
	open uint64 // started requests not yet found complete
	wait []waiter

	// Facts that stay true for ever.
	lim    uint64 // calls that may start: everybody has made them, or somebody has started them
	ann    uint64 // calls that this member has announced
	annUp  uint64 // smallest count of this subtree that the parent was told
	childs [arity]child
	heard  int        // home: members that have freed the clock
	before []Received // what the children told before the clock was created here

	epochState
}

// child is what a child in the clock's tree has told.
type child struct {
	ann        uint64 // all members below have made this many calls
	inited     bool   // in this epoch
	smax, smin uint64 // largest and smallest snapshot below
}

// epochState is the part of a clock that belongs to the running epoch.
type epochState struct {
	snap     uint64 // calls permitted at the snapshot
	ph0      bool   // the clock existed at the snapshot
	late     bool   // created after FREEZE: nothing of it can start in this epoch
	initSent bool
	ripe     bool   // all that is owed has been called (everywhere)
	finKnown bool   // fin is valid
	fin      uint64 // last call that may start

	// Home only.
	allInit bool   // every member has told its snapshot
	t0      uint64 // the debt: largest snapshot; fixed once allInit
	goal    uint64 // GO: the highest limit given in this epoch
	frozen  bool   // no limit is given any more
}

// waiter is a call that was made and may not start yet.
type waiter struct {
	k        uint64
	mode     Mode
	deferred bool // the application went on with a virtual request
}

func (c *clock) home() bool { return c.created && c.place.parent < 0 }

// gatedWaiter is the always-gated call that waits here, or 0. This call is the last one, because its caller
// waits for it to return.
func (c *clock) gatedWaiter() uint64 {
	if n := len(c.wait); n > 0 && c.wait[n-1].mode == Gated {
		return c.wait[n-1].k
	}
	return 0
}

// announced is the count that every member of this subtree has reached, this rank included.
func (c *clock) announced() uint64 {
	least := c.ann
	for i := range c.place.children {
		least = min(least, c.childs[i].ann)
	}
	return least
}

// reset forgets the epoch.
func (c *clock) reset() {
	c.epochState = epochState{}
	for i := range c.childs {
		c.childs[i].inited = false
	}
}

// settled tells that nothing of this clock is under way here and nothing can start any more.
func (c *clock) settled() bool {
	return c.finKnown && c.ent == c.fin && c.ret == c.ent && c.open == 0
}
