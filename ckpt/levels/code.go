// SPDX-License-Identifier: Apache-2.0

package levels

import (
	"fmt"
	"io"

	"github.com/klauspost/reedsolomon"
)

// The code of a group of k nodes has 2k shards: the files of each node, one after the other and filled up with zeros to
// the length of the longest, and k parities, one on each node. Any k of them give all files. A node that is lost takes
// two of them with it, so half of the nodes may be lost. Fewer bytes would not do: the nodes that are left must
// have as many bytes, together, as all nodes had.

// block is how many bytes of each shard are worked on at once.
const block = 256 << 10

// parityRow is the encoder of a single parity: each node computes its own.
func parityRow(k, index int) (reedsolomon.Encoder, error) {
	all, err := reedsolomon.New(k, k, reedsolomon.WithMaxGoroutines(1))
	if err != nil {
		return nil, err
	}
	// What a parity is of a single one is the factor of that shard.
	row := make([]byte, k)
	for j := range k {
		shards := make([][]byte, 2*k)
		for i := range shards {
			shards[i] = make([]byte, 1)
		}
		shards[j][0] = 1
		if err := all.Encode(shards); err != nil {
			return nil, err
		}
		row[j] = shards[k+index][0]
	}
	return reedsolomon.New(k, 1, reedsolomon.WithCustomMatrix([][]byte{row}), reedsolomon.WithMaxGoroutines(1))
}

// encode writes parity index of k shards of that length to out. A source that ends early is filled up with zeros.
func encode(out io.Writer, index int, sources []io.Reader, length int64) error {
	row, err := parityRow(len(sources), index)
	if err != nil {
		return fmt.Errorf("code of %d nodes: %w", len(sources), err)
	}
	buffers := make([][]byte, len(sources)+1)
	for i := range buffers {
		buffers[i] = make([]byte, block)
	}
	shards := make([][]byte, len(buffers))
	for at := int64(0); at < length; at += block {
		n := min(block, length-at)
		for i := range shards {
			shards[i] = buffers[i][:n]
		}
		for i, in := range sources {
			if err := readOrZero(in, shards[i]); err != nil {
				return err
			}
		}
		if err := row.Encode(shards); err != nil {
			return fmt.Errorf("code of %d nodes: %w", len(sources), err)
		}
		if _, err := out.Write(shards[len(sources)]); err != nil {
			return err
		}
	}
	return nil
}

// decode writes the data shards that are wanted, from at least k of the 2k shards: sources that are nil are missing.
func decode(out map[int]io.Writer, sources []io.Reader, length int64) error {
	k := len(sources) / 2
	code, err := reedsolomon.New(k, k, reedsolomon.WithMaxGoroutines(1))
	if err != nil {
		return fmt.Errorf("code of %d nodes: %w", k, err)
	}
	want := make([]bool, 2*k)
	for i := range out {
		want[i] = true
	}
	buffers := make([][]byte, 2*k)
	for i := range buffers {
		buffers[i] = make([]byte, block)
	}
	shards := make([][]byte, 2*k)
	for at := int64(0); at < length; at += block {
		n := min(block, length-at)
		for i, in := range sources {
			shards[i] = buffers[i][:n]
			if in == nil {
				shards[i] = buffers[i][:0]
			} else if err := readOrZero(in, shards[i]); err != nil {
				return err
			}
		}
		if err := code.ReconstructSome(shards, want); err != nil {
			return fmt.Errorf("code of %d nodes: %w", k, err)
		}
		for i, w := range out {
			if _, err := w.Write(shards[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// readOrZero fills b from in, and what is missing at the end of in with zeros.
func readOrZero(in io.Reader, b []byte) error {
	n, err := io.ReadFull(in, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF { // an answer that breaks off has another error
		clear(b[n:])
		return nil
	}
	return err
}
