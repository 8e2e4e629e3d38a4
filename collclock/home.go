// SPDX-License-Identifier: Apache-2.0

package collclock

// Messages between the members of one clock, in the tree over them whose root is the clock's home.

// fromChild takes INIT, ANN or ASK.
func (m *Machine) fromChild(r Received) {
	c := m.known(r.Message.Clock)
	if r.Message.Kind != MsgAnn && m.phase >= Frozen && (!c.created || c.late) {
		m.refuse(r)
		return
	}
	if !c.created {
		c.before = append(c.before, r)
		return
	}
	i := c.place.childIndex(r.From)
	if i < 0 {
		m.fault("%v from rank %d, which is no child of mine", r.Message, r.From)
		return
	}
	ch, msg := &c.childs[i], r.Message
	switch {
	case msg.Kind == MsgAsk:
		// FIN will come through this rank, which knew the clock in time.
	case msg.Kind == MsgAnn:
		ch.ann = max(ch.ann, msg.A)
		m.announce(c)
	case ch.inited || m.phase < Open || msg.Epoch != m.epoch:
		m.fault("%v from rank %d is out of place", msg, r.From)
	default:
		ch.inited, ch.smax, ch.smin = true, msg.A, msg.B
		ch.ann = max(ch.ann, msg.C)
		m.tryInit(c)
		m.announce(c)
	}
}

// refuse answers a child that this rank was frozen before it knew the clock. Then INIT can never be
// complete at the home, so nothing of the clock starts in this epoch. Waiting until the clock is
// created here could take for ever: the creating call may be behind a frozen gate.
func (m *Machine) refuse(r Received) {
	m.send(r.From, Message{Kind: MsgFin, Epoch: m.epoch, Clock: r.Message.Clock, A: 0})
}

// askFin is done at FREEZE for a clock whose INIT could not be sent yet.
func (m *Machine) askFin(c *clock) {
	if !c.created {
		kept := c.before[:0]
		for _, r := range c.before {
			if r.Message.Kind == MsgAnn {
				kept = append(kept, r)
			} else {
				m.refuse(r)
			}
		}
		c.before = kept
	} else if !c.initSent && !c.home() {
		m.send(c.place.parent, Message{Kind: MsgAsk, Epoch: m.epoch, Clock: c.id})
	}
}

// tryInit tells the parent the snapshots of this subtree, once all of them are known.
func (m *Machine) tryInit(c *clock) {
	if c.initSent || c.late || !c.created || m.phase < Open {
		return
	}
	smax, smin := c.snap, c.snap
	for i := range c.place.children {
		ch := &c.childs[i]
		if !ch.inited {
			return
		}
		smax, smin = max(smax, ch.smax), min(smin, ch.smin)
	}
	c.initSent = true
	c.ann = max(c.ann, c.call)
	if !c.home() {
		c.annUp = max(c.annUp, c.announced())
		m.send(c.place.parent, Message{Kind: MsgInit, Epoch: m.epoch, Clock: c.id, A: smax, B: smin, C: c.announced()})
		return
	}
	c.allInit, c.t0 = true, smax
	if smin < smax && !c.frozen {
		// Some member has a debt. The smallest snapshot counts here, not the smallest announcement: a rank at
		// the gate may have announced the call that it owes.
		m.limit(c, smax)
	}
	m.eval(c)
}

// announce tells the parent that all of this subtree have made more calls.
func (m *Machine) announce(c *clock) {
	if !c.created || m.phase == Raised || m.phase >= Open && !c.initSent {
		return // INIT will carry it
	}
	if c.home() {
		m.eval(c)
		return
	}
	a := c.announced()
	if a <= c.annUp {
		return
	}
	gated := c.gatedWaiter() >= a
	if m.phase < Open && !gated {
		return
	}
	c.annUp = a
	msg := Message{Kind: MsgAnn, Epoch: m.epoch, Clock: c.id, A: a}
	if gated {
		msg.Epoch = 0
	}
	m.send(c.place.parent, msg)
}

// eval makes the decisions of the home.
func (m *Machine) eval(c *clock) {
	least := c.announced()
	if m.phase < Open {
		if k := c.gatedWaiter(); m.phase != Raised && k != 0 && k <= least && k > c.lim {
			m.limit(c, k)
		}
		return
	}
	if !c.allInit {
		return
	}
	if !c.frozen && least > max(c.t0, c.goal) {
		m.limit(c, least)
	}
	if !c.ripe && least >= c.t0 {
		m.trace(TraceRipe, c, c.t0)
		m.ripe(c)
	}
}

// limit, at home, lets calls up to v start.
func (m *Machine) limit(c *clock, v uint64) {
	c.goal = v
	m.trace(TraceGo, c, v)
	m.lim(c, v)
}

func (m *Machine) lim(c *clock, v uint64) {
	if v <= c.lim {
		return
	}
	c.lim = v
	m.sendAll(c.place.children, Message{Kind: MsgLim, Epoch: m.epoch, Clock: c.id, A: v})
	m.pump(c)
}

func (m *Machine) ripe(c *clock) {
	c.ripe = true
	m.sendAll(c.place.children, Message{Kind: MsgRipe, Epoch: m.epoch, Clock: c.id})
	if c.ph0 {
		m.unripe--
		m.tryReady()
	}
}

// freeze, at home, makes the limit final. A clock without INIT from all members has no limit: nobody knew
// such a clock at the snapshot, since otherwise it would be ripe.
func (m *Machine) freeze(c *clock) {
	c.frozen = true
	v := c.snap // before INIT is complete
	if c.allInit {
		v = max(c.t0, c.goal)
	}
	m.trace(TraceFreeze, c, v)
	m.fin(c, v)
}

func (m *Machine) fin(c *clock, v uint64) {
	if c.finKnown {
		return
	}
	c.finKnown, c.fin = true, v
	if !c.created {
		return // the limit is sent on when it is complete
	}
	m.sendAll(c.place.children, Message{Kind: MsgFin, Epoch: m.epoch, Clock: c.id, A: v})
	m.pump(c)
	m.tryClean()
}

// fromParent takes LIM, RIPE and FIN.
func (m *Machine) fromParent(r Received) {
	c, msg := m.live(r.Message.Clock), r.Message
	if c != nil && c.place.parent != r.From {
		m.fault("%v from rank %d, which is not my parent", msg, r.From)
		return
	}
	switch {
	case c == nil && msg.Kind == MsgFin && m.phase < Frozen:
		m.fin(m.known(msg.Clock), msg.A) // this rank may still create it before FREEZE comes here
	case c == nil:
		// All members have freed the clock, and the parent did not know yet; or this rank will create
		// it later than FREEZE.
	case msg.Kind == MsgFin:
		m.fin(c, msg.A)
	case msg.Kind == MsgLim:
		m.lim(c, msg.A)
	case !c.ripe:
		m.ripe(c)
	}
}
