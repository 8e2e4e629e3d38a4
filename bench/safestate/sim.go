// SPDX-License-Identifier: Apache-2.0

package main

import (
	"container/heap"
	"math"
	"math/rand/v2"
)

// micros is simulated time.
type micros float64

type event struct {
	at  micros
	seq uint64 // equal times keep their order
	do  func()
}

type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return e
}

// protocol is what the simulated application meets at a collective.
type protocol interface {
	call(rank, comm int) // answered by sim.enter, now or later
	returned(rank, comm int)
	request()
}

// sim is one simulated job.
type sim struct {
	now   micros
	seq   uint64
	queue queue
	rng   *rand.Rand
	sigma float64
	mean  float64

	job     *job
	proto   protocol
	at      []int  // next operation of each rank
	inbox   []int  // ring messages that have come
	waiting []bool // for one
	entered []int  // members in the collective of each communicator
	count   []int  // collectives completed on each communicator
	parted  int    // communicators in a collective at the request
	pending bool   // between request and safe state
	debt    []int  // collectives owed on each communicator at the request
	beyond  int    // collectives completed while pending, beyond debts
	done    bool
}

func newSim(j *job, seed uint64, mean, sigma float64) *sim {
	s := &sim{rng: rand.New(rand.NewPCG(seed, 1)), sigma: sigma, mean: mean, job: j,
		at: make([]int, j.ranks), inbox: make([]int, j.ranks), waiting: make([]bool, j.ranks),
		entered: make([]int, len(j.comms)), count: make([]int, len(j.comms)), debt: make([]int, len(j.comms))}
	return s
}

// after does something later.
func (s *sim) after(d micros, do func()) {
	s.seq++
	heap.Push(&s.queue, event{s.now + d, s.seq, do})
}

// run starts all ranks, asks for a checkpoint at a random moment and goes on until the state is safe, or
// nothing happens any more.
func (s *sim) run(p protocol) {
	s.proto = p
	for r := range s.job.ranks {
		s.next(r)
	}
	s.after(micros(s.mean*(4+s.rng.Float64())), func() {
		s.pending = true
		for c := range s.job.comms {
			s.debt[c] = s.count[c]
			if s.entered[c] > 0 {
				s.debt[c]++
				s.parted++
			}
		}
		s.proto.request()
	})
	for len(s.queue) > 0 && !s.done {
		e := heap.Pop(&s.queue).(event)
		s.now = e.at
		e.do()
	}
}

// compute draws a lognormal time with the given mean.
func (s *sim) compute() micros {
	return micros(s.mean * math.Exp(s.sigma*s.rng.NormFloat64()-s.sigma*s.sigma/2))
}

// next takes the next step of a rank's program.
func (s *sim) next(r int) {
	op := s.job.op(r, s.at[r])
	s.at[r]++
	switch op.kind {
	case opCompute:
		s.after(s.compute(), func() { s.next(r) })
	case opColl:
		s.proto.call(r, op.arg)
	case opSend:
		to := op.arg
		s.after(2, func() {
			s.inbox[to]++
			if s.waiting[to] {
				s.waiting[to] = false
				s.inbox[to]--
				s.next(to)
			}
		})
		s.next(r)
	case opRecv:
		if s.inbox[r] > 0 {
			s.inbox[r]--
			s.next(r)
		} else {
			s.waiting[r] = true
		}
	}
}

// enter lets a rank into the collective of a communicator. All members leave once all are in.
func (s *sim) enter(r, comm int) {
	s.entered[comm]++
	members := s.job.comms[comm].group
	if s.entered[comm] < members.Size() {
		return
	}
	s.entered[comm] = 0
	s.count[comm]++
	if s.pending && s.count[comm] > s.debt[comm] {
		s.beyond++
	}
	cost := 2 * micros(math.Ceil(math.Log2(float64(members.Size()))))
	s.after(cost, func() {
		for i := range members.Size() {
			m := int(members.Rank(i))
			s.proto.returned(m, comm)
			s.after(0, func() { s.next(m) })
		}
	})
}
