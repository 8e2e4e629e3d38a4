// SPDX-License-Identifier: Apache-2.0

package collclock

import "fmt"

// Phase is how far the running epoch has come at this rank.
type Phase uint8

// Phases; doc.go draws them.
const (
	Idle     Phase = iota // nothing is pending; calls take the fast path
	Resuming              // the epoch is over, but deferred starts must come before the fast path
	Raised                // the pending word is being set, the counters are not read yet
	Open                  // debts are being paid
	Frozen                // limits are final; what was permitted completes
	Clean                 // nothing is under way in this rank's subtree of the world
	Stopped               // the state is safe
)

func (p Phase) String() string {
	return [...]string{"idle", "resuming", "raised", "open", "frozen", "clean", "stopped"}[p]
}

// Config says who a machine is.
type Config struct {
	Rank, Ranks int
	// Epoch is the last epoch that was used before; the first epoch of this machine is the next.
	Epoch uint32
	// Stall is how many ticks rank 0 waits for the debts to be paid before it gives an epoch up; 0: for
	// ever. Backoff is how many ticks rank 0 then waits before it tries again, twice as many each time.
	// Tries is how often rank 0 tries (0 is once).
	Stall, Backoff, Tries int
	// Trace, when set, is called with every step that the model has, too.
	Trace func(TraceEvent)
}

// Machine is the collective clock of one rank. It must not be used by two threads at once; the caller
// holds one lock around Step.
type Machine struct {
	cfg    Config
	place  place // in the tree over the world
	clocks map[ID]*clock

	phase Phase
	epoch uint32 // the running one, or the last
	// Messages of an epoch that has not begun here, or whose snapshot is not taken yet.
	early []Received

	ready, clean         uint8 // bit i: child i of the world tree has said so
	readySent, cleanSent bool
	unripe               int // clocks that existed at the snapshot and are not ripe yet
	deferred             int // deferred calls whose start was not done yet

	// Rank 0 only.
	ticks   int // since the epoch began, or since it was given up
	tries   int // epochs given up in a row
	waiting bool

	out []Action
}

// New returns the machine of one rank. The world's clock exists from the start.
func New(cfg Config) *Machine {
	m := &Machine{cfg: cfg, epoch: cfg.Epoch, clocks: make(map[ID]*clock)}
	world := Everybody(cfg.Ranks)
	m.place = tree(world, 0, cfg.Rank)
	m.created(Created{Clock: World(), Group: world})
	return m
}

// Step takes one event and returns the actions to be done now. The slice is valid until the next Step.
func (m *Machine) Step(e Event) []Action {
	m.out = m.out[:0]
	switch e := e.(type) {
	case Call:
		m.called(e)
	case Return:
		m.returned(e)
	case Withdrawn:
		m.withdrawn(e)
	case Started:
		m.started(e)
	case Completed:
		m.completed(e)
	case Created:
		m.created(e)
	case Freed:
		m.freed(e)
	case Snapshot:
		m.snapshot(e)
	case Received:
		m.received(e)
	case Request:
		m.request()
	case Resume:
		m.resume(Stopped)
	case Abort:
		m.resume(Raised)
	case Withdraw:
		if m.phase > Resuming {
			m.leave(m.phase != Stopped)
		}
	case Tick:
		m.tick()
	default:
		m.fault("unknown event %T", e)
	}
	return m.out
}

// Pending tells whether the pending word is to be set.
func (m *Machine) Pending() bool { return m.phase != Idle }

// Phase and Epoch tell where the machine is.
func (m *Machine) Phase() Phase { return m.phase }

// Epoch is the running epoch, or the last one.
func (m *Machine) Epoch() uint32 { return m.epoch }

func (m *Machine) rank() int32 { return int32(m.cfg.Rank) }
func (m *Machine) root() bool  { return m.cfg.Rank == 0 }

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

func (m *Machine) fault(format string, args ...any) {
	m.do(Report{What: ReportFault, Epoch: m.epoch, Text: fmt.Sprintf(format, args...)})
}

func (m *Machine) send(to int32, msg Message) { m.do(Send{To: to, Message: msg}) }

func (m *Machine) sendAll(to []int32, msg Message) {
	for _, r := range to {
		m.send(r, msg)
	}
}

// known returns a clock. A message may name a clock before the application has created it here.
func (m *Machine) known(id ID) *clock {
	c := m.clocks[id]
	if c == nil {
		c = &clock{id: id}
		m.clocks[id] = c
	}
	return c
}

// live returns the clock if it exists here.
func (m *Machine) live(id ID) *clock {
	if c := m.clocks[id]; c != nil && c.created {
		return c
	}
	return nil
}
