// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Mark is what a rank has counted on one communicator with one peer.
type Mark struct {
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

// decodeNotice is the inverse of Notices for one rank. Communicators are in ascending order.
func decodeNotice(b []byte) (map[uint64]uint64, error) {
	n, b, err := uvarint(b)
	if err != nil {
		return nil, err
	}
	if n > uint64(len(b))/9 {
		return nil, fmt.Errorf("%d communicators in %d bytes", n, len(b))
	}
	sent := make(map[uint64]uint64, n)
	last := uint64(0)
	for i := range n {
		if len(b) < 8 {
			return nil, errShort
		}
		comm := binary.LittleEndian.Uint64(b)
		var count uint64
		if count, b, err = uvarint(b[8:]); err != nil {
			return nil, err
		}
		if count == 0 || i > 0 && comm <= last {
			return nil, errors.New("communicators out of order, or without messages")
		}
		sent[comm], last = count, comm
	}
	if len(b) != 0 {
		return nil, fmt.Errorf("%d bytes too many", len(b))
	}
	return sent, nil
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
	from int
	comm uint64
}

// Ledger is what other ranks have sent to this one.
type Ledger struct{ sent map[lane]uint64 }

// NewLedger reads the notices of the ranks that sent any.
func NewLedger(notices map[int][]byte) (*Ledger, error) {
	l := &Ledger{sent: map[lane]uint64{}}
	for from, b := range notices {
		sent, err := decodeNotice(b)
		if err != nil {
			return nil, fmt.Errorf("what rank %d says of its messages: %w", from, err)
		}
		for comm, n := range sent {
			l.sent[lane{from, comm}] = n
		}
	}
	return l, nil
}

// Gap is a lane whose ends do not agree.
type Gap struct {
	From           int
	Comm           uint64
	Name           string
	Sent, Received uint64
}

func (g Gap) String() string {
	name := g.Name
	if name == "" {
		name = fmt.Sprintf("%x", g.Comm)
	}
	return fmt.Sprintf("rank %d sent %d messages on communicator %q, of which %d are received", g.From, g.Sent, name, g.Received)
}

// Wrong tells that the counters cannot be right: waiting will not close the gap.
func (g Gap) Wrong() bool { return g.Received > g.Sent }

// Missing compares with this rank's own counters; no gap means that nothing is under way to it.
func (l *Ledger) Missing(marks []Mark) []Gap {
	gaps := map[lane]Gap{}
	for at, n := range l.sent {
		gaps[at] = Gap{From: at.from, Comm: at.comm, Sent: n}
	}
	for _, m := range marks {
		at := lane{m.Peer, m.Comm}
		g, ok := gaps[at]
		if m.Peer < 0 || !ok && m.Received == 0 {
			continue
		}
		g.From, g.Comm, g.Received = m.Peer, m.Comm, g.Received+m.Received
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
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Comm, b.Comm))
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
