// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"context"
	"encoding/binary"
	"fmt"
)

// AllreduceUint64 combines vectors of numbers element by element. All ranks pass vectors of the same length. op
// is for example Max.
func (n *Network) AllreduceUint64(ctx context.Context, tag uint64, mine []uint64, op func(a, b uint64) uint64) ([]uint64, error) {
	b, err := n.Allreduce(ctx, tag, packVector(mine), elementwise(op))
	if err != nil {
		return nil, err
	}
	return unpackVector(b), nil
}

// Max and Sum are operations for AllreduceUint64.
func Max(a, b uint64) uint64 { return max(a, b) }
func Sum(a, b uint64) uint64 { return a + b }

// Exchange delivers to each rank what the others have for it; out and the result map ranks to payloads. Each
// rank first learns how many messages to expect, so ranks that have nothing for each other send nothing to
// each other.
func (n *Network) Exchange(ctx context.Context, tag uint64, out map[int][]byte) (in map[int][]byte, err error) {
	counts := make([]uint64, n.size)
	for to := range out {
		if to < 0 || to >= n.size {
			return nil, fmt.Errorf("exchange with rank %d: there are only ranks 0 to %d", to, n.size-1)
		}
		counts[to] = 1
	}
	err = n.run(ctx, opExchange, tag, func(c *collective) error {
		for to, b := range out {
			if err := c.send(to, phaseItems, b); err != nil {
				return err
			}
		}
		b, err := c.up(packVector(counts), elementwise(Sum))
		if err != nil {
			return err
		}
		if b, err = c.down(b); err != nil {
			return err
		}
		v := unpackVector(b)
		if len(v) != n.size {
			return fmt.Errorf("counts of %d ranks, want %d", len(v), n.size)
		}
		in, err = c.items(v[n.rank])
		return err
	})
	return in, err
}

// items waits until count messages of phaseItems have come.
func (c *collective) items(count uint64) (map[int][]byte, error) {
	n := c.n
	for {
		in := make(map[int][]byte)
		n.mu.Lock()
		x := n.boxes[c.r]
		for k, m := range x.got {
			if k.phase == phaseItems {
				in[k.from] = m.data
			}
		}
		more, err := x.more, n.err
		n.mu.Unlock()
		if uint64(len(in)) >= count {
			return in, nil
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-more:
		case <-n.failed:
		case <-c.ctx.Done():
			return nil, fmt.Errorf("%d of %d messages have come: %w", len(in), count, context.Cause(c.ctx))
		}
	}
}

func packVector(v []uint64) []byte {
	b := make([]byte, 0, 8*len(v))
	for _, x := range v {
		b = binary.BigEndian.AppendUint64(b, x)
	}
	return b
}

func unpackVector(b []byte) []uint64 {
	v := make([]uint64, len(b)/8)
	for i := range v {
		v[i] = binary.BigEndian.Uint64(b[8*i:])
	}
	return v
}

func elementwise(op func(a, b uint64) uint64) Combine {
	return func(lower, higher []byte) ([]byte, error) {
		if len(lower) != len(higher) {
			return nil, fmt.Errorf("vector has %d bytes, want %d", len(higher), len(lower))
		}
		a, b := unpackVector(lower), unpackVector(higher)
		for i := range a {
			a[i] = op(a[i], b[i])
		}
		return packVector(a), nil
	}
}
