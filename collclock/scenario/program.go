// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/libckpt/libckpt/collclock"
)

// Verb is what an operation of a program does.
type Verb string

// Operations. Communicator W is the world; others are declared, or made by an operation.
const (
	Coll   Verb = "coll"   // coll C: blocking collective that returns when all have entered
	Bcast  Verb = "bcast"  // bcast C r: r returns at once, the others when r has entered
	Icoll  Verb = "icoll"  // icoll C q: non-blocking collective, request q
	Wait   Verb = "wait"   // wait q
	Gated  Verb = "gated"  // gated C: an always-gated call, such as Finalize
	Send   Verb = "send"   // send r: buffered
	Ssend  Verb = "ssend"  // ssend r: returns when r has received it
	Recv   Verb = "recv"   // recv r
	Any    Verb = "any"    // any: receive from whomever
	Make   Verb = "make"   // make C X a b ...: all of C call it, a b ... get X (dup, split, create)
	Group  Verb = "group"  // group C X a b ...: only a b ... call it (create_group)
	Bridge Verb = "bridge" // bridge C X a b ...: a b ... call it, each on a C of its side (intercomm_create); a b lead
	Free   Verb = "free"   // free X
	Gone   Verb = "gone"   // gone X: as free, by a caller with counters of its own, which go with X
	Object Verb = "object" // object C P: a persistent request of C, with a clock of its own
	Start  Verb = "start"  // start P q: its start, as request q
)

// Op is one operation of one thread.
type Op struct {
	Verb    Verb
	Comm    string // what the call is made on
	New     string // what it makes
	Request string
	Peer    int
	Members []int32
}

func (o Op) String() string {
	s := string(o.Verb)
	for _, w := range []string{o.Comm, o.New, o.Request} {
		if w != "" {
			s += " " + w
		}
	}
	switch o.Verb {
	case Bcast, Send, Ssend, Recv:
		s += fmt.Sprintf(" %d", o.Peer)
	}
	for _, m := range o.Members {
		s += fmt.Sprintf(" %d", m)
	}
	return s
}

// Comm is a communicator, or another object with a clock.
type Comm struct {
	Name    string
	ID      collclock.ID
	Group   collclock.Group
	Members []int32
	Parent  string // "": exists from the start
	ByGroup bool   // made by a call that only its members make
}

// Thread is a sequence of operations of one rank.
type Thread struct {
	Rank int
	Ops  []Op
}

// Program is a parallel program.
type Program struct {
	Ranks   int
	Comms   []Comm // Comms[0] is the world
	Threads []Thread
}

// Comm returns the index of a communicator, or -1.
func (p *Program) Comm(name string) int {
	return slices.IndexFunc(p.Comms, func(c Comm) bool { return c.Name == name })
}

// ParseProgram reads lines such as
//
//	ranks 4
//	comm C 0 1
//	1: recv 2, coll C
//	1: coll D              (a second thread of rank 1)
func ParseProgram(text string) (*Program, error) {
	p := &Program{}
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("program line %d, %q: %w", n+1, line, err)
		}
	}
	if p.Ranks == 0 {
		return nil, fmt.Errorf("program has no line \"ranks N\"")
	}
	return p, nil
}

func (p *Program) line(line string) error {
	if head, ops, ok := strings.Cut(line, ":"); ok {
		rank, err := p.rank(strings.TrimSpace(head))
		if err != nil {
			return err
		}
		t := Thread{Rank: rank}
		for text := range strings.SplitSeq(ops, ",") {
			op, err := p.op(strings.Fields(text))
			if err != nil {
				return err
			}
			t.Ops = append(t.Ops, op)
		}
		p.Threads = append(p.Threads, t)
		return nil
	}
	f := strings.Fields(line)
	switch {
	case f[0] == "ranks" && len(f) == 2 && p.Ranks == 0:
		n, err := strconv.Atoi(f[1])
		if err != nil || n < 1 || n > 64 {
			return fmt.Errorf("ranks must be 1 to 64")
		}
		p.Ranks = n
		all := make([]int32, n)
		for i := range all {
			all[i] = int32(i)
		}
		p.Comms = []Comm{{Name: "W", ID: collclock.World(), Group: collclock.Everybody(n), Members: all}}
		return nil
	case f[0] == "comm" && len(f) > 2:
		members, err := p.ranks(f[2:])
		if err != nil {
			return err
		}
		_, err = p.declare("", f[1], members, false)
		return err
	}
	return fmt.Errorf("not understood")
}

func (p *Program) rank(s string) (int, error) {
	r, err := strconv.Atoi(s)
	if err != nil || r < 0 || r >= p.Ranks {
		return 0, fmt.Errorf("no such rank: %q", s)
	}
	return r, nil
}

func (p *Program) ranks(list []string) ([]int32, error) {
	var all []int32
	for _, s := range list {
		r, err := p.rank(s)
		if err != nil {
			return nil, err
		}
		all = append(all, int32(r))
	}
	return all, nil
}

// declare makes a communicator known, or checks that it is what it was. Its identity follows from its
// name here: which call makes it is the same on all members in these programs.
func (p *Program) declare(parent, name string, members []int32, byGroup bool) (int, error) {
	if i := p.Comm(name); i >= 0 {
		c := p.Comms[i]
		if c.Parent != parent || !slices.Equal(c.Members, members) {
			return 0, fmt.Errorf("%s is declared differently elsewhere", name)
		}
		return i, nil
	}
	id := collclock.Child(collclock.World(), uint64(len(p.Comms)), collclock.CreateSplit, members)
	p.Comms = append(p.Comms, Comm{Name: name, ID: id, Group: collclock.Members(members), Members: members,
		Parent: parent, ByGroup: byGroup})
	return len(p.Comms) - 1, nil
}

func (p *Program) op(f []string) (Op, error) {
	if len(f) == 0 {
		return Op{}, fmt.Errorf("empty operation")
	}
	o := Op{Verb: Verb(f[0])}
	args := map[Verb]int{Coll: 1, Bcast: 2, Icoll: 2, Wait: 1, Gated: 1, Send: 1, Ssend: 1, Recv: 1, Any: 0,
		Make: 3, Group: 3, Bridge: 4, Free: 1, Gone: 1, Object: 2, Start: 2}
	want, ok := args[o.Verb]
	if more := o.Verb == Make || o.Verb == Group || o.Verb == Bridge; !ok || len(f)-1 < want || len(f)-1 > want && !more {
		return Op{}, fmt.Errorf("operation %q is not understood", strings.Join(f, " "))
	}
	var err error
	switch o.Verb {
	case Wait:
		o.Request = f[1]
		return o, nil
	case Send, Ssend, Recv:
		o.Peer, err = p.rank(f[1])
		return o, err
	case Any:
		return o, nil
	}
	o.Comm = f[1]
	parent := p.Comm(o.Comm)
	if parent < 0 {
		return Op{}, fmt.Errorf("no communicator %q before %q", o.Comm, strings.Join(f, " "))
	}
	switch o.Verb {
	case Bcast:
		o.Peer, err = p.rank(f[2])
	case Icoll, Start:
		o.Request = f[2]
	case Make, Group:
		o.New = f[2]
		if o.Members, err = p.ranks(f[3:]); err == nil {
			_, err = p.declare(o.Comm, o.New, o.Members, o.Verb == Group)
		}
	case Bridge:
		o.New = f[2]
		if o.Members, err = p.ranks(f[3:]); err == nil {
			_, err = p.declare("bridge", o.New, o.Members, true)
		}
	case Object:
		o.New = f[2]
		_, err = p.declare(o.Comm, o.New, p.Comms[parent].Members, false)
	}
	return o, err
}

// String is the text that ParseProgram reads.
func (p *Program) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ranks %d\n", p.Ranks)
	for _, c := range p.Comms[1:] {
		if c.Parent == "" {
			fmt.Fprintf(&b, "comm %s %s\n", c.Name, strings.Trim(fmt.Sprint(c.Members), "[]"))
		}
	}
	for _, t := range p.Threads {
		ops := make([]string, len(t.Ops))
		for i, o := range t.Ops {
			ops[i] = o.String()
		}
		fmt.Fprintf(&b, "%d: %s\n", t.Rank, strings.Join(ops, ", "))
	}
	return b.String()
}
