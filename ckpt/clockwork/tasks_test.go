// SPDX-License-Identifier: Apache-2.0

package clockwork

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/collclock"
	"github.com/libckpt/libckpt/vid"
)

// counterOf finds the two counters of ckpt_clock that threads of the program write (include/ckpt/tables.h).
func counterOf(t *vid.Tables, id vid.ID) (call, ret *uint64) {
	const extra, clock = 24, 8
	c := *(*uintptr)(pointer(slotOf(t, id) + extra)) + clock
	return (*uint64)(pointer(c)), (*uint64)(pointer(c + 8))
}

func slotOf(t *vid.Tables, id vid.ID) uintptr {
	const pages, slotBytes = 24, 32
	at := func(p uintptr) uintptr { return *(*uintptr)(pointer(p)) }
	return at(at(t.Address()+pages+8*uintptr(id.Kind()))+8*uintptr(id.Index()/4096)) + slotBytes*uintptr(id.Index()%4096)
}

// pointer is for memory that is not Go's.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

func pendingOf(t *vid.Tables) bool { return atomic.LoadUint32((*uint32)(pointer(t.Address()+16))) != 0 }

// act is one operation of a rank's program.
type act struct {
	comm     int // collective on it; -1: a message
	nonblock bool
	send     bool
	peer     int
}

// told is a program of all ranks: what is told of it happens in one order for all, so it cannot deadlock.
type told struct {
	comms [][]int32
	ranks [][]act
}

func tell(r *rand.Rand, ranks, length int) told {
	p := told{ranks: make([][]act, ranks)}
	for range 1 + ranks/2 {
		members := []int32{}
		for m := range ranks {
			if len(p.comms) == 0 || r.IntN(3) > 0 {
				members = append(members, int32(m))
			}
		}
		if len(members) > 1 {
			r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
			p.comms = append(p.comms, members)
		}
	}
	for range length {
		if r.IntN(3) == 0 {
			from, to := r.IntN(ranks), r.IntN(ranks)
			if from != to {
				p.ranks[from] = append(p.ranks[from], act{comm: -1, send: true, peer: to})
				p.ranks[to] = append(p.ranks[to], act{comm: -1, peer: from})
			}
			continue
		}
		c := r.IntN(len(p.comms))
		nonblock := r.IntN(4) == 0
		for _, m := range p.comms[c] {
			p.ranks[m] = append(p.ranks[m], act{comm: c, nonblock: nonblock})
		}
	}
	return p
}

// town is a job of processes with several ranks each, whose messages the test delivers in any order.
type town struct {
	mu      sync.Mutex // of entered and mail
	clocks  []*Clock
	ids     map[[2]int]vid.ID // of rank and communicator
	program told
	entered map[[2]int]uint64 // into the real call, by rank and communicator
	mail    map[[2]int]int    // messages from, to
}

// citizen is a rank.
type citizen struct {
	*town
	rank, local int
	w           *Clock
	at          int
	k           uint64 // of the call under way
	gate        bool   // it waits there
	inside      bool
}

func newTown(t *testing.T, r *rand.Rand, processes, each, length int) (*town, []*citizen) {
	t.Helper()
	ranks := processes * each
	order := make([]int32, ranks) // any rank may live anywhere, but rank 0
	for i := range order {
		order[i] = int32(i)
	}
	r.Shuffle(ranks-1, func(i, j int) { order[i+1], order[j+1] = order[j+1], order[i+1] })
	places, err := NewPlaces(slices.Collect(slices.Chunk(order, each)))
	if err != nil {
		t.Fatal(err)
	}
	n := &town{ids: map[[2]int]vid.ID{}, program: tell(r, ranks, length), entered: map[[2]int]uint64{}, mail: map[[2]int]int{}}
	all := make([]*citizen, ranks)
	for p := range processes {
		tables, err := vid.Open(0, 1<<24)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tables.Close() })
		w, err := New(Config{Process: p, Places: places, Tables: tables, Log: zap.NewNop(), Kinds: Kinds{Clock: 1, Meet: 2},
			Events: Events{Safe: func(uint32) {}, Resumed: func() {}, Deferred: func() {}}})
		if err != nil {
			t.Fatal(err)
		}
		n.clocks = append(n.clocks, w)
		for local, rank := range places.Of(p) {
			all[rank] = &citizen{town: n, rank: int(rank), local: local, w: w}
			for c, members := range n.program.comms {
				if !slices.Contains(members, rank) {
					continue
				}
				id, err := tables.New(vid.Comm, uint64(1000*int(rank)+c+1), []byte("x"), nil, 0)
				if err == nil {
					err = w.Owned(id, local)
				}
				if err == nil {
					err = tables.SetComm(id, vid.CommInfo{Rank: slices.Index(members, rank), Size: len(members), World: members, Identity: uint64(c + 1)})
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := w.CommMade(id, uint64(c+1), members); err != nil {
					t.Fatal(err)
				}
				n.ids[[2]int{int(rank), c}] = id
			}
		}
	}
	return n, all
}

// step does what the rank can do now; false: nothing.
func (c *citizen) step() bool {
	ops := c.program.ranks[c.rank]
	if c.at == len(ops) {
		return false
	}
	op := ops[c.at]
	if op.comm < 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch to := [2]int{op.peer, c.rank}; {
		case op.send:
			c.mail[[2]int{c.rank, op.peer}]++
		case c.mail[to] == 0:
			return false
		default:
			c.mail[to]--
		}
		c.at++
		return true
	}
	on := [2]int{c.rank, op.comm}
	id := c.ids[on]
	call, ret := counterOf(c.w.tables, id)
	mode := Blocking
	if op.nonblock {
		mode = NonBlocking
	}
	if !c.inside {
		answer := Enter
		if !c.gate {
			c.k = *call + 1
			atomic.StoreUint64(call, c.k)
		}
		if c.gate || pendingOf(c.w.tables) {
			answer = c.w.Call(id, c.k, mode)
		}
		switch {
		case answer == Wait:
			moved := !c.gate
			c.gate = true
			return moved
		case answer == Defer:
			c.at++
			return true
		}
		c.enter(on, c.k)
		c.gate, c.inside = false, true
		return true
	}
	if !op.nonblock && !c.allEntered(op.comm, c.k) {
		return false
	}
	c.leave(id, ret, c.k)
	c.inside = false
	c.at++
	return true
}

func (n *town) enter(on [2]int, k uint64) {
	n.mu.Lock()
	n.entered[on] = k
	n.mu.Unlock()
}

func (n *town) allEntered(comm int, k uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.program.comms[comm] {
		if n.entered[[2]int{int(m), comm}] < k {
			return false
		}
	}
	return true
}

func (c *citizen) leave(id vid.ID, ret *uint64, k uint64) {
	atomic.StoreUint64(ret, k)
	if pendingOf(c.w.tables) {
		c.w.Returned(id, k)
	}
}

// start makes a deferred call of this process.
func (n *town) start(w *Clock) bool {
	s, ok := w.NextStart()
	if !ok {
		return false
	}
	for on, id := range n.ids {
		if id == s.Comm && n.clocks[w.places.Process(on[0])] == w {
			n.enter(on, s.K)
			_, ret := counterOf(w.tables, id)
			atomic.StoreUint64(ret, s.K)
		}
	}
	w.Started(s)
	return true
}

// unsafe says why the state that all processes have stopped in is not safe.
func (n *town) unsafe(all []*citizen) error {
	for _, c := range all {
		if c.inside && !c.program.ranks[c.rank][c.at].nonblock {
			return fmt.Errorf("rank %d is in a collective call", c.rank)
		}
	}
	for comm, members := range n.program.comms {
		for _, m := range members {
			if a, b := n.entered[[2]int{int(members[0]), comm}], n.entered[[2]int{int(m), comm}]; a != b {
				return fmt.Errorf("communicator %d: rank %d has begun %d calls, rank %d %d", comm, members[0], a, m, b)
			}
		}
	}
	return nil
}

// run makes one random schedule, and returns how many safe states were reached.
func (n *town) run(r *rand.Rand, all []*citizen) (int, error) {
	safe, asked, aborted := 0, uint32(0), false
	first := n.clocks[0]
	for _, w := range n.clocks {
		w.bundle = 0 // what shares an envelope cannot overtake each other
	}
	for turn := 0; ; turn++ {
		if turn > 1_000_000 {
			return safe, errors.New("it does not end")
		}
		over := first.told == asked
		ended := !slices.ContainsFunc(all, func(c *citizen) bool { return c.at < len(n.program.ranks[c.rank]) })
		quiet := over && !slices.ContainsFunc(n.clocks, func(w *Clock) bool { return w.raised > 0 || len(w.outbox) > 0 || len(w.starts) > 0 })
		if ended && quiet {
			return safe, nil
		}
		if over && asked < 4 && r.IntN(20) == 0 {
			asked, aborted = first.NextEpoch(), false
			first.Request()
			continue
		}
		if !over && !aborted && r.IntN(100*len(all)) == 0 {
			aborted = first.Abort()
		}
		if !over && !slices.ContainsFunc(n.clocks, func(w *Clock) bool { return !w.Safe(asked) }) {
			if err := n.unsafe(all); err != nil {
				return safe, err
			}
			safe++
			for _, w := range n.clocks {
				w.Release()
			}
			first.Resume()
			continue
		}
		// Anything that can happen, in any order.
		moved := false
		for _, i := range r.Perm(len(all) + 2*len(n.clocks)) {
			switch {
			case i < len(all):
				moved = all[i].step()
			case i < len(all)+len(n.clocks):
				moved = n.start(n.clocks[i-len(all)])
			default:
				from := i - len(all) - len(n.clocks)
				if w := n.clocks[from]; len(w.outbox) > 0 {
					k := r.IntN(len(w.outbox))
					o := w.outbox[k]
					w.outbox = slices.Delete(w.outbox, k, k+1)
					n.clocks[o.to].heardClock(from, o.payload)
					moved = true
				}
			}
			if moved {
				break
			}
		}
		if !moved && over && asked >= 4 {
			return safe, fmt.Errorf("nothing can happen: %s", n.stuck(all))
		} else if !moved && !over {
			return safe, fmt.Errorf("epoch %d: nothing can happen: %s", asked, n.stuck(all))
		}
	}
}

func (n *town) stuck(all []*citizen) string {
	var lines []string
	for _, c := range all {
		lines = append(lines, fmt.Sprintf("rank %d at %d of %d, gate %v, inside %v: %v", c.rank, c.at, len(n.program.ranks[c.rank]), c.gate, c.inside,
			c.w.tasks[c.local].machine.Status()))
	}
	return strings.Join(lines, "\n")
}

// TestTasks: ranks that share a process reach a safe state from any schedule, and no rank waits for ever.
func TestTasks(t *testing.T) {
	sizes := [][2]int{{1, 5}, {2, 1}, {2, 3}, {3, 4}, {4, 2}, {2, 16}}
	runs := uint64(60)
	if testing.Short() {
		runs = 10
	}
	for _, size := range sizes {
		t.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(t *testing.T) {
			safe := 0
			for seed := range runs {
				r := rand.New(rand.NewPCG(seed, uint64(100*size[0]+size[1])))
				n, all := newTown(t, r, size[0], size[1], 40)
				got, err := n.run(r, all)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				safe += got
			}
			if safe < int(runs) {
				t.Errorf("%d safe states in %d runs: the test sees little", safe, runs)
			}
		})
	}
}

// TestTasksAtOnce does it with ranks that run at the same time, for the race detector.
func TestTasksAtOnce(t *testing.T) {
	const processes, each, length = 3, 4, 120
	r := rand.New(rand.NewPCG(7, 7))
	n, all := newTown(t, r, processes, each, length)
	var running sync.WaitGroup
	done, end := make(chan struct{}), make(chan struct{})
	limit := time.After(5 * time.Minute)
	for _, c := range all {
		running.Add(1)
		go func() {
			defer running.Done()
			for c.at < len(n.program.ranks[c.rank]) {
				if !c.step() {
					time.Sleep(10 * time.Microsecond)
				}
			}
		}()
	}
	var posts sync.WaitGroup
	for from, w := range n.clocks {
		posts.Add(1)
		go func() {
			defer posts.Done()
			for {
				w.mu.Lock()
				out := w.outbox
				w.outbox = nil
				w.mu.Unlock()
				for _, o := range out {
					n.clocks[o.to].heardClock(from, o.payload)
				}
				for n.start(w) {
				}
				select {
				case <-end:
					return
				default:
					time.Sleep(10 * time.Microsecond)
				}
			}
		}()
	}
	go func() { running.Wait(); close(done) }()
	first, safe := n.clocks[0], 0
	for more := true; more; {
		select {
		case <-done:
			more = false
		default:
		}
		epoch := first.NextEpoch()
		first.Request()
		for stopped := false; !stopped; {
			stopped = true
			for _, w := range n.clocks {
				stopped = stopped && w.Safe(epoch)
			}
			select {
			case <-limit:
				t.Fatal(n.stuck(all))
			default:
				time.Sleep(10 * time.Microsecond)
			}
		}
		n.mu.Lock()
		for comm, members := range n.program.comms {
			for _, m := range members {
				if a, b := n.entered[[2]int{int(members[0]), comm}], n.entered[[2]int{int(m), comm}]; a != b {
					t.Errorf("epoch %d, communicator %d: rank %d has begun %d calls, rank %d %d", epoch, comm, members[0], a, m, b)
				}
			}
		}
		n.mu.Unlock()
		safe++
		for _, w := range n.clocks {
			w.Release()
		}
		first.Resume()
		for over := false; !over; time.Sleep(10 * time.Microsecond) {
			first.mu.Lock()
			over = first.told >= epoch
			first.mu.Unlock()
		}
	}
	close(end)
	posts.Wait()
	t.Logf("%d safe states", safe)
}

// TestPlaces refuses what cannot be.
func TestPlaces(t *testing.T) {
	for _, c := range []struct {
		local [][]int32
		want  string
	}{
		{[][]int32{{0, 1}, {1, 2}}, "rank 1 lives in process 0 and in process 1"},
		{[][]int32{{0, 1}, {2, 4}}, "local task 1 of process 1 is rank 4"},
		{[][]int32{{0, 1}, {}}, "process 1 has no rank"},
		{[][]int32{{1, 0}, {2}}, "rank 0 is not the local task 0 of process 0"},
	} {
		if _, err := NewPlaces(c.local); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.local, err, c.want)
		}
	}
	if p, err := NewPlaces([][]int32{{0}, {1}}); err != nil || p.Several() || p.Process(1) != 1 || p.Process(2) != -1 {
		t.Errorf("one rank each: %+v, %v", p, err)
	}
	p, err := NewPlaces([][]int32{{0, 3}, {2, 1}})
	if err != nil || !p.Several() || p.Ranks() != 4 || p.Process(3) != 0 || p.Process(1) != 1 || p.Process(-1) != -1 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestOwned: who owns a communicator is said once, and before its members.
func TestOwned(t *testing.T) {
	w := deaf(t)
	id, err := w.tables.New(vid.Comm, 1, []byte("x"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []int{-1, 2} {
		if err := w.Owned(id, wrong); !errors.Is(err, ErrNoTask) {
			t.Errorf("local task %d: %v", wrong, err)
		}
	}
	if err := w.Owned(id, 1); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range [][]int32{{1, 0}, {2, 4}} { // without rank 2, which owns it; with one that there is not
		if err := w.CommMade(id, 9, wrong); err == nil {
			t.Errorf("members %v: no error", wrong)
		}
	}
	if err := w.CommMade(id, 9, []int32{1, 2}); err != nil {
		t.Fatal(err)
	}
	if at := w.ids[id]; at.of != w.tasks[1] || at.id != collclock.Object(collclock.World(), 255, 9) {
		t.Errorf("the clock is that of %+v", at.of)
	}
	if err := w.Owned(id, 1); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := w.Owned(id, 0); !errors.Is(err, vid.ErrOwned) {
		t.Errorf("another one: %v", err)
	}
}
