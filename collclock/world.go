// SPDX-License-Identifier: Apache-2.0

package collclock

// The life of an epoch, in the tree over the world whose root is rank 0.

func (m *Machine) received(r Received) {
	msg := r.Message
	if r.From < 0 || int(r.From) >= m.cfg.Ranks || r.From == m.rank() {
		m.fault("%v from rank %d, which does not exist or is this one", msg, r.From)
		return
	}
	switch msg.Kind {
	case MsgReq:
		m.begin(r)
		return
	case MsgResume:
		m.end(r)
		return
	case MsgFree:
		m.heardFree(r)
		return
	case MsgDrop:
		if c := m.live(msg.Clock); c != nil && c.freed && c.group.Rank(c.group.Home(c.id)) == r.From {
			m.drop(c)
		}
		return
	case MsgAnn:
		m.fromChild(r)
		return
	case MsgLim: // a fact, whatever the epoch
		m.fromParent(r)
		return
	}
	switch {
	case msg.Epoch > m.epoch || msg.Epoch == m.epoch && m.phase == Raised:
		m.early = append(m.early, r)
	case msg.Epoch < m.epoch || m.phase < Open:
		// This message is left over from an epoch that was given up.
	default:
		m.ofEpoch(r)
	}
}

func (m *Machine) ofEpoch(r Received) {
	switch r.Message.Kind {
	case MsgInit, MsgAsk:
		m.fromChild(r)
	case MsgRipe, MsgFin:
		m.fromParent(r)
	case MsgReady:
		m.markChild(&m.ready, r)
		m.tryReady()
	case MsgClean:
		m.markChild(&m.clean, r)
		m.tryClean()
	case MsgFreeze:
		if m.isParent(r) {
			m.freezeAll()
		}
	case MsgStop:
		if m.isParent(r) {
			m.stop()
		}
	default:
		m.fault("%v from rank %d is no message of this protocol", r.Message, r.From)
	}
}

func (m *Machine) markChild(set *uint8, r Received) {
	i := m.place.childIndex(r.From)
	if i < 0 {
		m.fault("%v from rank %d, which is no child of mine", r.Message, r.From)
		return
	}
	*set |= 1 << i
}

func (m *Machine) allChildren(set uint8) bool { return set == 1<<len(m.place.children)-1 }

func (m *Machine) isParent(r Received) bool {
	if m.place.parent == r.From {
		return true
	}
	m.fault("%v from rank %d, which is not my parent", r.Message, r.From)
	return false
}

// request begins an epoch at rank 0.
func (m *Machine) request() {
	switch {
	case !m.root():
		m.fault("a request is for rank 0")
	case m.phase > Resuming:
		m.do(Report{What: ReportBusy, Epoch: m.epoch, Text: "an epoch is running; it serves this request too"})
	default:
		m.waiting, m.ticks = false, 0
		m.raise(m.epoch + 1)
	}
}

func (m *Machine) begin(r Received) {
	if !m.isParent(r) || r.Message.Epoch <= m.epoch {
		return // given up before it came here
	}
	if m.phase > Resuming {
		m.leave(true) // RESUME was overtaken
	}
	m.raise(r.Message.Epoch)
}

func (m *Machine) raise(epoch uint32) {
	m.epoch, m.phase = epoch, Raised
	m.trace(TraceReq, nil, uint64(epoch))
	m.sendAll(m.place.children, Message{Kind: MsgReq, Epoch: epoch})
	m.do(Raise{Epoch: epoch})
}

// snapshot fixes what this rank has started, and tells it.
func (m *Machine) snapshot(e Snapshot) {
	if m.phase != Raised || e.Epoch != m.epoch {
		return // given up in the meantime
	}
	for _, n := range e.Counts {
		if c := m.live(n.Clock); c != nil {
			// When a call was withdrawn without an event, the counter is less than the value known here.
			c.call, c.ret, c.open = n.Call, max(c.ret, n.Ret), n.Open
		} else {
			m.fault("the counters speak of clock %v, which does not exist here", n.Clock)
		}
	}
	m.phase = Open
	m.trace(TraceSnapshot, nil, uint64(m.epoch))
	all := m.inOrder()
	for _, c := range all {
		if !c.created {
			continue
		}
		// An always-gated call that waits was made, but is nobody's debt.
		c.snap = c.call
		if k := c.gatedWaiter(); k != 0 {
			c.snap = k - 1
			c.ann = max(c.ann, k)
		}
		c.ent, c.ph0 = c.snap, true
		m.unripe++
		m.trace(TraceSnap, c, c.snap)
	}
	for _, c := range all {
		m.tryInit(c)
		m.pump(c)
		if n := len(c.wait); n > 0 && c.wait[n-1].mode == NonBlocking && !c.wait[n-1].deferred {
			m.deferCall(c, &c.wait[n-1]) // behind one that the last epoch deferred
		}
	}
	early := m.early
	m.early = nil
	for _, r := range early {
		m.received(r) // keeps those of later epochs
	}
	m.tryReady()
}

// tryReady tells the parent that nothing of this subtree is owed any more.
func (m *Machine) tryReady() {
	if m.phase != Open || m.readySent || m.unripe > 0 || !m.allChildren(m.ready) {
		return
	}
	m.readySent = true
	m.trace(TraceReady, nil, uint64(m.epoch))
	if m.root() {
		m.freezeAll()
	} else {
		m.send(m.place.parent, Message{Kind: MsgReady, Epoch: m.epoch})
	}
}

func (m *Machine) freezeAll() {
	if m.phase != Open {
		return
	}
	m.phase = Frozen
	m.sendAll(m.place.children, Message{Kind: MsgFreeze, Epoch: m.epoch})
	for _, c := range m.inOrder() {
		if c.home() {
			m.freeze(c)
		}
		m.askFin(c)
	}
	m.tryClean()
}

// tryClean tells the parent that everything that was permitted in this subtree has completed.
func (m *Machine) tryClean() {
	if m.phase != Frozen || m.cleanSent || !m.allChildren(m.clean) {
		return
	}
	for _, c := range m.clocks {
		if c.created && !c.settled() {
			return
		}
	}
	m.cleanSent, m.phase = true, Clean
	m.trace(TraceClean, nil, uint64(m.epoch))
	if m.root() {
		m.stop()
	} else {
		m.send(m.place.parent, Message{Kind: MsgClean, Epoch: m.epoch})
	}
}

func (m *Machine) stop() {
	if m.phase != Clean {
		m.fault("STOP of epoch %d in phase %v", m.epoch, m.phase)
		return
	}
	m.phase, m.tries = Stopped, 0
	m.trace(TraceStop, nil, uint64(m.epoch))
	m.sendAll(m.place.children, Message{Kind: MsgStop, Epoch: m.epoch})
	m.do(Stop{Epoch: m.epoch})
}

// resume ends the epoch at rank 0, if it has come as far as from.
func (m *Machine) resume(from Phase) {
	switch {
	case !m.root():
		m.fault("only rank 0 ends an epoch")
	case m.phase < from:
		m.fault("no epoch to end: phase %v", m.phase)
	default:
		m.leave(m.phase != Stopped)
	}
}

func (m *Machine) end(r Received) {
	if !m.isParent(r) || r.Message.Epoch < m.epoch || r.Message.Epoch == m.epoch && m.phase <= Resuming {
		return
	}
	aborted := m.phase != Stopped
	if r.Message.Epoch > m.epoch { // it was given up before REQ came here
		if m.phase > Resuming {
			m.leave(true)
		}
		m.epoch, aborted = r.Message.Epoch, true
	}
	m.leave(aborted)
}

// leave ends the epoch here and below.
func (m *Machine) leave(aborted bool) {
	m.trace(TraceResume, nil, uint64(m.epoch))
	m.sendAll(m.place.children, Message{Kind: MsgResume, Epoch: m.epoch})
	m.phase = Resuming
	m.ready, m.clean, m.readySent, m.cleanSent, m.unripe = 0, 0, false, false, 0
	m.early = after(m.early, m.epoch)
	for _, c := range m.inOrder() {
		c.reset()
		if !c.created {
			c.before = after(c.before, m.epoch)
			if len(c.before) == 0 && c.heard == 0 {
				delete(m.clocks, c.id)
			}
			continue
		}
		m.pump(c)
		if k := c.gatedWaiter(); k != 0 {
			c.annUp = min(c.annUp, k-1) // it may have been told by an INIT that came too late
			m.announce(c)
		}
	}
	m.do(Resumed{Epoch: m.epoch, Aborted: aborted})
	m.tryLower()
}

// tryLower opens the fast path again once no call there can overtake a deferred start.
func (m *Machine) tryLower() {
	if m.phase == Resuming && m.deferred == 0 {
		m.phase = Idle
		m.do(Lower{Epoch: m.epoch})
	}
}

// after keeps the messages of later epochs and of none.
func after(list []Received, epoch uint32) []Received {
	kept := list[:0]
	for _, r := range list {
		if r.Message.Epoch == 0 || r.Message.Epoch > epoch {
			kept = append(kept, r)
		}
	}
	return kept
}

func (m *Machine) heardFree(r Received) {
	c := m.known(r.Message.Clock)
	c.heard++
	m.tryDrop(c)
}

// tick counts time at rank 0: an epoch whose debts are not paid in time is given up, and tried again
// after a while. This may be needed for programs that rely on collectives which do not synchronize; MPI
// does not promise that.
func (m *Machine) tick() {
	if !m.root() {
		return
	}
	m.ticks++
	switch {
	case m.waiting && m.phase <= Resuming:
		if m.ticks >= m.cfg.Backoff<<min(m.tries-1, 16) {
			m.request()
		}
	case m.cfg.Stall > 0 && (m.phase == Raised || m.phase == Open) && m.ticks >= m.cfg.Stall:
		m.tries++
		m.ticks = 0
		m.waiting = m.tries < m.cfg.Tries
		what := ReportStalled
		if !m.waiting {
			what, m.tries = ReportGaveUp, 0
		}
		m.do(Report{What: what, Epoch: m.epoch, Text: m.Status().String()})
		m.resume(Raised)
	}
}
