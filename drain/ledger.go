// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Mark is what a rank has counted on one communicator with one peer.
type Mark struct {
	Owner          int    // the rank, where a process has several
	Comm           uint64 // identity of the communicator, equal on all members
	Name           string // its name, "" when it has none
	Peer           int    // rank in the world; negative: a process outside the job, which is nobody's lane
	Sent, Received uint64
}

// Notices are what a rank tells others: to each rank that it has sent to, how many messages on which
// communicator.
func Notices(marks []Mark) map[int][]byte {
	sent := map[int]map[uint64]uint64{}
	for _, m := range marks {
		if m.Sent == 0 || m.Peer < 0 {
			continue
		}
		if sent[m.Peer] == nil {
			sent[m.Peer] = map[uint64]uint64{}
		}
		sent[m.Peer][m.Comm] += m.Sent
	}
	notices := make(map[int][]byte, len(sent))
	for peer, comms := range sent {
		b := binary.AppendUvarint(nil, uint64(len(comms)))
		for _, c := range slices.Sorted(maps.Keys(comms)) {
			b = binary.LittleEndian.AppendUint64(b, c)
			b = binary.AppendUvarint(b, comms[c])
		}
		notices[peer] = b
	}
	return notices
}

// TaskNotices are the same for a process with several ranks: to each process, what ranks here have sent to ranks there.
// process says where a rank lives.
//
// For each pair of ranks: sender, receiver (uvarints), and the notice. Pairs are in ascending order.
func TaskNotices(marks []Mark, process func(rank int) int) map[int][]byte {
	by := map[int][]Mark{}
	for _, m := range marks {
		by[m.Owner] = append(by[m.Owner], m)
	}
	all := map[int][]byte{}
	for _, from := range slices.Sorted(maps.Keys(by)) {
		notices := Notices(by[from])
		for _, to := range slices.Sorted(maps.Keys(notices)) {
			at := process(to)
			b := binary.AppendUvarint(all[at], uint64(from))
			b = binary.AppendUvarint(b, uint64(to))
			all[at] = append(b, notices[to]...)
		}
	}
	return all
}

// decodeNotice is the inverse of Notices for one rank, and returns what follows. Communicators are in ascending order.
func decodeNotice(b []byte) (sent map[uint64]uint64, rest []byte, err error) {
	n, b, err := uvarint(b)
	if err != nil {
		return nil, nil, err
	}
	if n > uint64(len(b))/9 {
		return nil, nil, fmt.Errorf("%d communicators in %d bytes", n, len(b))
	}
	sent = make(map[uint64]uint64, n)
	last := uint64(0)
	for i := range n {
		if len(b) < 8 {
			return nil, nil, errShort
		}
		comm := binary.LittleEndian.Uint64(b)
		var count uint64
		if count, b, err = uvarint(b[8:]); err != nil {
			return nil, nil, err
		}
		if count == 0 || i > 0 && comm <= last {
			return nil, nil, errors.New("communicators out of order, or without messages")
		}
		sent[comm], last = count, comm
	}
	return sent, b, nil
}

// decodeTaskNotices is the inverse of TaskNotices for one process.
func decodeTaskNotices(b []byte) (map[lane]uint64, error) {
	all := map[lane]uint64{}
	last := lane{from: -1}
	for len(b) > 0 {
		from, rest, err := uvarint(b)
		if err != nil {
			return nil, err
		}
		to, rest, err := uvarint(rest)
		if err != nil {
			return nil, err
		}
		if max(from, to) > math.MaxInt32 {
			return nil, fmt.Errorf("from rank %d to rank %d", from, to)
		}
		at := lane{from: int(from), to: int(to)}
		if cmp.Or(cmp.Compare(at.from, last.from), cmp.Compare(at.to, last.to)) <= 0 {
			return nil, errors.New("ranks out of order")
		}
		last = at
		var sent map[uint64]uint64
		if sent, b, err = decodeNotice(rest); err != nil {
			return nil, err
		}
		for at.comm = range sent {
			all[at] = sent[at.comm]
		}
	}
	return all, nil
}

var errShort = errors.New("it ends too early")

func uvarint(b []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, errShort
	}
	return v, b[n:], nil
}

type lane struct {
	from, to int // ranks; to is 0 where there is one rank here
	comm     uint64
}

// Ledger is what others have sent to this rank, or to the ranks of this process.
type Ledger struct {
	sent  map[lane]uint64
	tasks bool // ranks
}

// NewLedger reads the notices of the ranks that sent any.
func NewLedger(notices map[int][]byte) (*Ledger, error) {
	l := &Ledger{sent: map[lane]uint64{}}
	for from, b := range notices {
		sent, rest, err := decodeNotice(b)
		if err == nil && len(rest) > 0 {
			err = fmt.Errorf("%d bytes too many", len(rest))
		}
		if err != nil {
			return nil, fmt.Errorf("what rank %d says of its messages: %w", from, err)
		}
		for comm, n := range sent {
			l.sent[lane{from, 0, comm}] = n
		}
	}
	return l, nil
}

// NewTaskLedger reads what TaskNotices of other processes said to this one, whose number is here.
func NewTaskLedger(notices map[int][]byte, here int, process func(rank int) int) (*Ledger, error) {
	l := &Ledger{sent: map[lane]uint64{}, tasks: true}
	for from, b := range notices {
		sent, err := decodeTaskNotices(b)
		for at, n := range sent {
			if process(at.from) != from || process(at.to) != here {
				err = fmt.Errorf("from rank %d to rank %d, which do not live there", at.from, at.to)
			}
			l.sent[at] = n
		}
		if err != nil {
			return nil, fmt.Errorf("what process %d says of its messages: %w", from, err)
		}
	}
	return l, nil
}

// Gap is a lane whose ends do not agree.
type Gap struct {
	From           int
	To             int // 0 where there is one rank here
	Comm           uint64
	Name           string
	Sent, Received uint64
	tasks          bool
}

func (g Gap) String() string {
	name := g.Name
	if name == "" {
		name = fmt.Sprintf("%x", g.Comm)
	}
	if g.tasks {
		return fmt.Sprintf("rank %d sent rank %d %d messages on communicator %q, of which %d are received", g.From, g.To, g.Sent, name, g.Received)
	}
	return fmt.Sprintf("rank %d sent %d messages on communicator %q, of which %d are received", g.From, g.Sent, name, g.Received)
}

// Wrong tells that the counters cannot be right: waiting will not close the gap.
func (g Gap) Wrong() bool { return g.Received > g.Sent }

// Missing compares with this rank's own counters; no gap means that nothing is under way to it.
func (l *Ledger) Missing(marks []Mark) []Gap {
	gaps := map[lane]Gap{}
	for at, n := range l.sent {
		gaps[at] = Gap{From: at.from, To: at.to, Comm: at.comm, Sent: n, tasks: l.tasks}
	}
	for _, m := range marks {
		at := lane{m.Peer, 0, m.Comm}
		if l.tasks {
			at.to = m.Owner
		}
		g, ok := gaps[at]
		if m.Peer < 0 || !ok && m.Received == 0 {
			continue
		}
		g.From, g.To, g.Comm, g.tasks, g.Received = m.Peer, at.to, m.Comm, l.tasks, g.Received+m.Received
		if m.Name != "" {
			g.Name = m.Name
		}
		gaps[at] = g
	}
	var out []Gap
	for _, g := range gaps {
		if g.Sent != g.Received {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b Gap) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Comm, b.Comm))
	})
	return out
}

// UnderWay is how many messages are still to come.
func UnderWay(gaps []Gap) (n uint64) {
	for _, g := range gaps {
		if !g.Wrong() {
			n += g.Sent - g.Received
		}
	}
	return n
}
