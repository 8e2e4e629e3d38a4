// SPDX-License-Identifier: Apache-2.0

package collclock

// The application's side: calls, returns, deferred starts, clocks that come and go.

func (m *Machine) called(e Call) {
	c := m.live(e.Clock)
	if c == nil || c.freed {
		m.fault("call on clock %v, which does not exist here", e.Clock)
		return
	}
	k := e.K
	if k == 0 {
		k = c.call + 1
	}
	if k <= c.ret {
		m.fault("call %d on clock %v, where %d have returned", k, e.Clock, c.ret)
		return
	}
	if m.phase == Idle && e.K != 0 { // those before it took the fast path, and have returned
		c.call, c.ent, c.ret = k-1, k-1, k-1
	}
	c.call = max(c.call, k)
	m.trace(TraceCall, c, k)
	c.wait = append(c.wait, waiter{k: k, mode: e.Mode})
	if e.Mode == Gated || m.phase >= Open && k > c.snap {
		c.ann = max(c.ann, k)
		m.announce(c)
	}
	if m.phase == Raised {
		return // the snapshot answers
	}
	m.pump(c)
	if n := len(c.wait); n > 0 && e.Mode == NonBlocking {
		m.deferCall(c, &c.wait[n-1])
	}
}

func (m *Machine) deferCall(c *clock, w *waiter) {
	w.deferred = true
	m.deferred++
	m.do(Defer{Clock: c.id, K: w.k})
}

// pump lets waiting calls in, in their order, as far as the limit goes.
func (m *Machine) pump(c *clock) {
	for len(c.wait) > 0 {
		w := c.wait[0]
		if c.ret != w.k-1 || !m.permitted(c, w) {
			return
		}
		c.wait = c.wait[1:]
		c.ent = max(c.ent, w.k)
		m.trace(TraceEnter, c, w.k)
		if w.deferred {
			m.do(Start{Clock: c.id, K: w.k})
		} else {
			m.do(Permit{Clock: c.id, K: w.k})
		}
	}
	c.wait = nil
}

func (m *Machine) permitted(c *clock, w waiter) bool {
	switch m.phase {
	case Raised:
		return false
	case Idle, Resuming:
		return w.mode != Gated || w.k <= c.lim
	}
	return w.k <= c.snap || w.k <= c.lim || c.finKnown && w.k <= c.fin
}

// Clear tells whether a blocking call on a clock, once permitted, may be entered now. A rank that is inside a call
// starts no deferred calls, and another member may need one of these before it makes the call. So while calls of
// this rank are deferred, the rank enters only a call that nobody owes any more: such a call returns by itself.
func (m *Machine) Clear(id ID) bool {
	c := m.live(id)
	return m.deferred == 0 || c == nil || c.ripe
}

// Deferred tells whether calls on a clock still wait for their deferred start.
func (m *Machine) Deferred(id ID) bool {
	c := m.live(id)
	return m.deferred > 0 && c != nil && (len(c.wait) > 0 || c.ret < c.ent)
}

func (m *Machine) returned(e Return) {
	c := m.live(e.Clock)
	if c == nil {
		return // the call freed the clock, and all others have freed it too
	}
	k := e.K
	if k == 0 {
		k = c.ret + 1
	}
	if k <= c.ret {
		return // the snapshot has seen it already
	}
	c.call, c.ent, c.ret = max(c.call, k), max(c.ent, k), k
	if e.Request {
		c.open++
	}
	m.trace(TraceReturn, c, k)
	m.pump(c)
	m.tryClean()
}

func (m *Machine) withdrawn(e Withdrawn) {
	c := m.live(e.Clock)
	if e.Deferred && m.deferred > 0 {
		m.deferred--
	}
	if c != nil && e.K == c.ret+1 && e.K <= c.call { // else the counters were read after it, or it was never told
		c.call--
		c.ent = min(c.ent, c.ret)
		for i := range c.wait {
			c.wait[i].k--
		}
		m.pump(c)
	}
	m.tryLower()
}

func (m *Machine) started(e Started) {
	c := m.live(e.Clock)
	if c == nil || m.deferred == 0 || c.ret != e.K-1 {
		m.fault("start of call %d on clock %v was not asked for", e.K, e.Clock)
		return
	}
	m.deferred--
	m.returned(Return{Clock: e.Clock, K: e.K, Request: true})
	m.tryLower()
}

func (m *Machine) completed(e Completed) {
	c := m.live(e.Clock)
	if c == nil || c.open == 0 {
		return // started and completed by counters that the machine did not see
	}
	c.open--
	m.trace(TraceComplete, c, 0)
	m.tryClean()
}

func (m *Machine) created(e Created) {
	if e.Group.Size() == 0 || e.Group.Index(m.rank()) < 0 {
		m.fault("clock %v was created without this rank", e.Clock)
		return
	}
	c := m.known(e.Clock)
	if c.created {
		m.fault("clock %v exists already", e.Clock)
		return
	}
	c.created, c.group = true, e.Group
	c.place = tree(e.Group, e.Group.Home(e.Clock), e.Group.Index(m.rank()))
	m.trace(TraceCreate, c, 0)
	// What was frozen without this clock stays so: whoever still asks is answered 0, and INIT of this
	// rank, without which the home lets nobody in, is not sent any more.
	if m.phase >= Frozen {
		c.late, c.finKnown, c.fin = true, true, 0
	} else if c.finKnown { // told before it existed here
		m.sendAll(c.place.children, Message{Kind: MsgFin, Epoch: m.epoch, Clock: c.id, A: c.fin})
	}
	before := c.before
	c.before = nil
	for _, r := range before {
		m.fromChild(r)
	}
	m.tryInit(c)
	m.tryDrop(c)
}

func (m *Machine) freed(e Freed) {
	c := m.live(e.Clock)
	if c == nil || c.freed {
		m.fault("clock %v was freed, but does not exist here", e.Clock)
		return
	}
	c.freed = true
	m.trace(TraceFree, c, 0)
	before := m.phase == Idle || m.phase == Raised
	if before && e.K > c.ret { // no snapshot will count it: the tombstone must say how far it came
		c.call, c.ent, c.ret = e.K, e.K, e.K
	}
	if c.home() {
		c.heard++
		m.tryDrop(c)
	} else {
		m.send(c.group.Rank(c.group.Home(c.id)), Message{Kind: MsgFree, Clock: c.id})
	}
	if !before && e.K != 0 {
		m.returned(Return{Clock: e.Clock, K: e.K})
	}
}

// tryDrop forgets the clock everywhere once all members have freed it: nobody can owe a call on it.
func (m *Machine) tryDrop(c *clock) {
	if !c.home() || c.heard < c.group.Size() {
		return
	}
	for i := range c.group.Size() {
		if r := c.group.Rank(i); r != m.rank() {
			m.send(r, Message{Kind: MsgDrop, Clock: c.id})
		}
	}
	m.drop(c)
}

func (m *Machine) drop(c *clock) {
	delete(m.clocks, c.id)
	m.trace(TraceDrop, c, 0)
	if c.ph0 && !c.ripe {
		m.unripe--
		m.tryReady()
	}
	m.tryClean()
}
