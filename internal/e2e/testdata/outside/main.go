// SPDX-License-Identifier: Apache-2.0

// Command outside is a program of another module, without cgo: ranks are goroutines, and pass numbers around a ring over
// the signaling network. It uses what a runtime in Go would: ids, the collective clock, draining, and the election of a
// network for each message.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"sync"

	"github.com/libckpt/libckpt/collclock"
	"github.com/libckpt/libckpt/drain"
	"github.com/libckpt/libckpt/rails"
	"github.com/libckpt/libckpt/rails/signaling"
	"github.com/libckpt/libckpt/vid"
)

const (
	ranks          = 4
	numbers        = 1 // kinds of messages
	clock          = 2
	world   uint64 = 1
)

type rank struct {
	me       int
	net      *signaling.Network
	machine  *collclock.Machine
	marks    map[int]*drain.Mark
	received []uint64
	safe     bool
}

func (r *rank) mark(peer int) *drain.Mark {
	if r.marks[peer] == nil {
		r.marks[peer] = &drain.Mark{Comm: world, Name: "ring", Peer: peer}
	}
	return r.marks[peer]
}

func (r *rank) list() (marks []drain.Mark) {
	for _, m := range r.marks {
		marks = append(marks, *m)
	}
	return marks
}

func (r *rank) step(ctx context.Context, e collclock.Event) error {
	for _, action := range r.machine.Step(e) {
		switch a := action.(type) {
		case collclock.Send:
			if err := r.net.Send(ctx, int(a.To), clock, collclock.AppendMessage(nil, a.Message)); err != nil {
				return err
			}
		case collclock.Raise: // no collective call was made on this rank
			if err := r.step(ctx, collclock.Snapshot{Epoch: a.Epoch, Counts: []collclock.Count{{Clock: collclock.World()}}}); err != nil {
				return err
			}
		case collclock.Stop:
			r.safe = true
		}
	}
	return nil
}

func (r *rank) run(ctx context.Context) error {
	// Every rank sends three numbers to the next one, and does not look for its own yet.
	next := (r.me + 1) % ranks
	for i := range uint64(3) {
		if err := r.net.Send(ctx, next, numbers, binary.LittleEndian.AppendUint64(nil, uint64(r.me)*10+i)); err != nil {
			return err
		}
		r.mark(next).Sent++
	}
	// A checkpoint: first a safe state, then everything that is under way.
	if r.me == 0 {
		if err := r.step(ctx, collclock.Request{}); err != nil {
			return err
		}
	}
	for !r.safe {
		from, b, err := r.net.Recv(ctx, clock)
		if err != nil {
			return err
		}
		m, err := collclock.DecodeMessage(b)
		if err != nil {
			return err
		}
		if err := r.step(ctx, collclock.Received{From: int32(from), Message: m}); err != nil {
			return err
		}
	}
	in, err := r.net.Exchange(ctx, 1, drain.Notices(r.list()))
	if err != nil {
		return err
	}
	ledger, err := drain.NewLedger(in)
	if err != nil {
		return err
	}
	for len(ledger.Missing(r.list())) > 0 {
		from, b, err := r.net.Recv(ctx, numbers)
		if err != nil {
			return err
		}
		r.mark(from).Received++
		r.received = append(r.received, binary.LittleEndian.Uint64(b))
	}
	return r.net.Barrier(ctx, 2) // here an image would be written
}

// driver makes endpoints.
type driver struct{}

func (driver) Connect(*rails.Rail, int) error { return nil }
func (driver) Reopen(*rails.Rail) error       { return nil }

// networks says which network takes a message of each size, before one of them is broken and after it.
func networks() {
	all := []*rails.Rail{
		{Name: "far", Priority: 1, Flags: rails.OnDemand},
		{Name: "near", Priority: 2, Flags: rails.OnDemand, Gate: func(bytes uint64, _ rails.Kind) bool { return bytes <= 64 }},
	}
	rails.Order(all)
	for _, bytes := range []uint64{64, 65} {
		r, err := rails.Elect(all, rails.Message{Process: 1, Bytes: bytes}, driver{})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d bytes: %s\n", bytes, r.Name)
	}
	all[1].State, all[1].Why, all[1].Endpoints = rails.Broken, "unplugged", nil
	_, err := rails.Elect(all, rails.Message{Process: 1, Bytes: 65}, driver{})
	fmt.Println(err)
}

func main() {
	ctx := context.Background()
	tables, err := vid.Open(0, vid.MinWindow)
	if err != nil {
		log.Fatal(err)
	}
	defer tables.Close()
	ring, err := tables.New(vid.Comm, 7, []byte("ring"), nil, 1)
	if err != nil {
		log.Fatal(err)
	}
	var endpoints [ranks]*signaling.Endpoint
	cards := make([][]byte, ranks)
	for i := range endpoints {
		if endpoints[i], err = signaling.Listen(signaling.Config{LoopbackOnly: true}); err != nil {
			log.Fatal(err)
		}
		cards[i] = endpoints[i].Card()
	}
	all := make([]rank, ranks)
	errs := make([]error, ranks)
	var wait sync.WaitGroup
	for i := range all {
		wait.Go(func() {
			r := &all[i]
			*r = rank{me: i, machine: collclock.New(collclock.Config{Rank: i, Ranks: ranks}), marks: map[int]*drain.Mark{}}
			r.machine.Step(collclock.Created{Clock: collclock.World(), Group: collclock.Everybody(ranks)})
			if r.net, errs[i] = endpoints[i].Join(ctx, i, cards); errs[i] != nil {
				return
			}
			defer r.net.Close()
			if errs[i] = r.run(ctx); errs[i] == nil {
				errs[i] = r.net.Shutdown(ctx)
			}
		})
	}
	wait.Wait()
	for i := range all {
		if errs[i] != nil {
			log.Fatalf("rank %d: %v", i, errs[i])
		}
		fmt.Printf("rank %d: safe, with %v\n", i, all[i].received)
	}
	networks()
	real, err := tables.Real(ring)
	fmt.Println("outside: good", real, err)
}
