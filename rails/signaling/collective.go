// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
)

// All ranks call a collective with the same tag. The k-th call with a tag on one rank belongs to the k-th
// call with that tag on the others. Collectives with different tags may run at the same time and in any
// order; calls with one tag follow each other. When one rank gives up because its context ends, the others
// wait until their contexts end, and the next call with the tag starts afresh.
//
// All collectives fail with a *LostError as soon as any rank is lost. When ctx ends they fail with a
// *WaitError, which says for whom they waited.

// FirstReservedTag is the first of the tags that callers may not use.
const FirstReservedTag = ^uint64(0) - 0xff

const tagShutdown = ^uint64(0)

// operation is what a collective does. Messages carry the operation, so that ranks which call different
// operations with one tag get an error and do not hang.
type operation uint8

const (
	opBarrier operation = iota + 1
	opBroadcast
	opGather
	opAllgather
	opReduce
	opAllreduce
	opExchange
)

var operationNames = map[operation]string{
	opBarrier: "barrier", opBroadcast: "broadcast", opGather: "gather", opAllgather: "allgather",
	opReduce: "reduce", opAllreduce: "allreduce", opExchange: "exchange",
}

func (o operation) String() string {
	if s, ok := operationNames[o]; ok {
		return s
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

// phase is a stage of a collective: a rank gets at most one message per phase from another.
type phase uint8

const (
	phaseUp     phase = iota + 1 // from the children to the root of the tree
	phaseDown                    // from the root to the children
	phaseToRoot                  // from rank 0 to the root that the caller chose, or back
	phaseItems                   // from any rank to any rank (exchange)
)

// round is one collective call.
type round struct{ tag, number uint64 }

// box holds the messages that have arrived for a round. Network.mu guards it.
type box struct {
	got  map[boxKey]boxed
	more chan struct{} // closed and replaced when something arrives
}

type boxKey struct {
	phase phase
	from  int
}

type boxed struct {
	op   operation
	data []byte
}

const collectiveHeader = 18 // tag, number, operation, phase

// collect sorts the messages of collectives into their boxes.
func (n *Network) collect() {
	defer n.wg.Done()
	for {
		from, b, err := n.Recv(n.ctx, kindCollective)
		if err != nil {
			return
		}
		if err := n.putInBox(from, b); err != nil {
			n.mu.Lock()
			n.lose(&LostError{Rank: from, By: n.rank, Cause: err.Error()})
			n.mu.Unlock()
			return
		}
	}
}

func (n *Network) putInBox(from int, b []byte) error {
	if len(b) < collectiveHeader {
		return fmt.Errorf("message of a collective has %d bytes, want at least %d", len(b), collectiveHeader)
	}
	r := round{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.boxes[r] == nil && r.number < n.rounds[r.tag] {
		return nil // this rank has given up on that round
	}
	x := n.boxOf(r)
	x.got[boxKey{phase(b[17]), from}] = boxed{operation(b[16]), b[collectiveHeader:]}
	close(x.more)
	x.more = make(chan struct{})
	return nil
}

func (n *Network) boxOf(r round) *box {
	x := n.boxes[r]
	if x == nil {
		x = &box{got: make(map[boxKey]boxed), more: make(chan struct{})}
		n.boxes[r] = x
	}
	return x
}

// collective is a call under way.
type collective struct {
	n   *Network
	ctx context.Context
	op  operation
	r   round
}

// run runs one collective; f gets the call and returns its error.
func (n *Network) run(ctx context.Context, op operation, tag uint64, f func(*collective) error) error {
	n.mu.Lock()
	c := &collective{n: n, ctx: ctx, op: op, r: round{tag, n.rounds[tag]}}
	n.rounds[tag]++
	n.boxOf(c.r)
	err := n.err
	n.mu.Unlock()
	if err == nil {
		err = f(c)
	}
	n.mu.Lock()
	delete(n.boxes, c.r)
	n.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// direct waits until there is a link to a rank, or until it is certain that there will be none.
func (c *collective) direct(to int) error {
	n := c.n
	n.mu.Lock()
	if n.err != nil || n.links[to] != nil || n.noLink[to] {
		err := n.err
		n.mu.Unlock()
		return err
	}
	w := n.want(to)
	n.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-n.failed:
		return n.Err()
	case <-c.ctx.Done():
		return c.late(to, to)
	}
}

func (c *collective) late(from, last int) error {
	return &WaitError{Op: c.op.String(), Tag: c.r.tag, Rank: from, Last: last, Err: context.Cause(c.ctx)}
}

func (c *collective) send(to int, p phase, data []byte) error {
	if p != phaseItems {
		if err := c.direct(to); err != nil {
			return err
		}
	}
	h := binary.BigEndian.AppendUint64(nil, c.r.tag)
	h = binary.BigEndian.AppendUint64(h, c.r.number)
	h = append(h, byte(c.op), byte(p))
	if err := c.n.send(c.ctx, to, kindCollective, h, data); err != nil {
		return fmt.Errorf("to rank %d: %w", to, err)
	}
	return nil
}

// recv waits for the message of a phase from a rank, through which ranks up to last report.
func (c *collective) recv(from int, p phase, last int) ([]byte, error) {
	n := c.n
	for {
		n.mu.Lock()
		x := n.boxes[c.r]
		m, ok := x.got[boxKey{p, from}]
		more, err := x.more, n.err
		n.mu.Unlock()
		switch {
		case ok && m.op != c.op:
			return nil, fmt.Errorf("rank %d calls %v with tag %#x, this rank calls %v", from, m.op, c.r.tag, c.op)
		case ok:
			return m.data, nil
		case err != nil:
			return nil, err
		}
		select {
		case <-more:
		case <-n.failed:
		case <-c.ctx.Done():
			return nil, c.late(from, last)
		}
	}
}

// up combines the parts of this rank and of the ranks below it, and sends the result up. It returns the
// combination of all at rank 0, elsewhere that of the subtree. combine gets the parts in rank order.
func (c *collective) up(mine []byte, combine func(acc, child []byte) ([]byte, error)) ([]byte, error) {
	n := c.n
	acc := bytes.Clone(mine)
	for _, child := range treeChildren(n.rank, n.size) {
		b, err := c.recv(child, phaseUp, treeLast(child, n.size))
		if err != nil {
			return nil, err
		}
		if acc, err = combine(acc, b); err != nil {
			return nil, fmt.Errorf("what rank %d sent: %w", child, err)
		}
	}
	if n.rank == 0 {
		return acc, nil
	}
	return acc, c.send(treeParent(n.rank), phaseUp, acc)
}

// down sends the bytes of rank 0 to all ranks.
func (c *collective) down(b []byte) ([]byte, error) {
	n := c.n
	if n.rank != 0 {
		var err error
		parent := treeParent(n.rank)
		if b, err = c.recv(parent, phaseDown, parent); err != nil {
			return nil, err
		}
	}
	children := treeChildren(n.rank, n.size)
	for i := len(children) - 1; i >= 0; i-- { // the largest subtree first
		if err := c.send(children[i], phaseDown, b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// toRoot sends b from rank 0 to root, or back. Only the receiver gets a result.
func (c *collective) toRoot(from, to int, b []byte) ([]byte, error) {
	switch n := c.n; {
	case from == to:
		if n.rank == to {
			return b, nil
		}
	case n.rank == from:
		return nil, c.send(to, phaseToRoot, b)
	case n.rank == to:
		return c.recv(from, phaseToRoot, from)
	}
	return nil, nil
}

// checkRoot refuses a root that is not a rank.
func (n *Network) checkRoot(root int) error {
	if root < 0 || root >= n.size {
		return fmt.Errorf("root %d: there are only ranks 0 to %d", root, n.size-1)
	}
	return nil
}

// Barrier returns once all ranks have called it.
func (n *Network) Barrier(ctx context.Context, tag uint64) error {
	return n.run(ctx, opBarrier, tag, func(c *collective) error {
		nothing := func(acc, _ []byte) ([]byte, error) { return acc, nil }
		if _, err := c.up(nil, nothing); err != nil {
			return err
		}
		_, err := c.down(nil)
		return err
	})
}

// Broadcast returns root's payload on all ranks; on root it may be the same memory.
func (n *Network) Broadcast(ctx context.Context, tag uint64, root int, payload []byte) (all []byte, err error) {
	if err := n.checkRoot(root); err != nil {
		return nil, err
	}
	err = n.run(ctx, opBroadcast, tag, func(c *collective) error {
		b, err := c.toRoot(root, 0, payload)
		if err != nil {
			return err
		}
		all, err = c.down(b)
		return err
	})
	return all, err
}

// Gather returns on root what all ranks gave, in rank order; elsewhere nil.
func (n *Network) Gather(ctx context.Context, tag uint64, root int, mine []byte) (all [][]byte, err error) {
	if err := n.checkRoot(root); err != nil {
		return nil, err
	}
	err = n.run(ctx, opGather, tag, func(c *collective) error {
		b, err := c.up(packOne(mine), concat)
		if err != nil {
			return err
		}
		b, err = c.toRoot(0, root, b)
		if err != nil || n.rank != root {
			return err
		}
		all, err = unpack(b, n.size)
		return err
	})
	return all, err
}

// Allgather returns on every rank what all ranks gave, in rank order.
func (n *Network) Allgather(ctx context.Context, tag uint64, mine []byte) (all [][]byte, err error) {
	err = n.run(ctx, opAllgather, tag, func(c *collective) error {
		b, err := c.up(packOne(mine), concat)
		if err != nil {
			return err
		}
		if b, err = c.down(b); err != nil {
			return err
		}
		all, err = unpack(b, n.size)
		return err
	})
	return all, err
}

// Combine merges what two neighbouring groups of ranks gave, lower ranks first, into a value of the
// same form. It must be associative, and may use the arguments' memory for the result.
type Combine func(lower, higher []byte) ([]byte, error)

// Reduce returns on root the combination of what all ranks gave; elsewhere nil.
func (n *Network) Reduce(ctx context.Context, tag uint64, root int, mine []byte, combine Combine) (all []byte, err error) {
	if err := n.checkRoot(root); err != nil {
		return nil, err
	}
	err = n.run(ctx, opReduce, tag, func(c *collective) error {
		b, err := c.up(mine, combine)
		if err != nil {
			return err
		}
		b, err = c.toRoot(0, root, b)
		if n.rank == root {
			all = b
		}
		return err
	})
	return all, err
}

// Allreduce returns on every rank the combination of what all ranks gave.
func (n *Network) Allreduce(ctx context.Context, tag uint64, mine []byte, combine Combine) (all []byte, err error) {
	err = n.run(ctx, opAllreduce, tag, func(c *collective) error {
		b, err := c.up(mine, combine)
		if err != nil {
			return err
		}
		all, err = c.down(b)
		return err
	})
	return all, err
}

// concat joins what packOne made for several ranks.
func concat(lower, higher []byte) ([]byte, error) { return append(lower, higher...), nil }

func packOne(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// unpack splits b into the parts that count calls of packOne made.
func unpack(b []byte, count int) ([][]byte, error) {
	out := make([][]byte, 0, max(0, min(count, len(b)/4)))
	for len(b) > 0 {
		if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b)) {
			return nil, fmt.Errorf("gathered data end in the middle of item %d", len(out))
		}
		k := binary.BigEndian.Uint32(b)
		out = append(out, b[4:4+k:4+k])
		b = b[4+k:]
	}
	if len(out) != count {
		return nil, fmt.Errorf("gathered data hold %d items, want %d", len(out), count)
	}
	return out, nil
}
