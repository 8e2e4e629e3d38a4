// SPDX-License-Identifier: Apache-2.0

package regions_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"sync"

	"github.com/libckpt/libckpt/regions"
)

const (
	ranks, width = 4, 16 // a rod of 64 cells, which is hot at its left end
	up, down     = 0x1000, 0x1001
)

// rod makes the steps up to the given one on one rank, from what is saved in dir, and returns its part.
func rod(ctx context.Context, dir string, c regions.Comm, steps uint64) ([]float64, error) {
	job, err := regions.Open(ctx, dir, c, regions.Options{})
	if err != nil {
		return nil, err
	}
	defer job.Close(ctx)
	state := make([]byte, 8*(width+1)) // the step, and the cells: as bytes, which is what can be saved
	cell := func(i int) []byte { return state[8+8*i:] }
	at := func(i int) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(cell(i))) }
	if err := job.Protect(0, state); err != nil {
		return nil, err
	}
	if epoch, err := job.Recover(ctx); err == nil && c.Rank() == 0 {
		fmt.Printf("continued from epoch %d, step %d\n", epoch, binary.LittleEndian.Uint64(state))
	} else if err != nil && !errors.Is(err, regions.ErrNone) {
		return nil, err
	}
	for step := binary.LittleEndian.Uint64(state); step < steps; {
		left, right, err := halo(ctx, job, cell(0)[:8], cell(width - 1)[:8])
		if err != nil {
			return nil, err
		}
		next := make([]float64, width)
		for i := range next {
			l, r := left, right
			if i > 0 {
				l = at(i - 1)
			}
			if i < width-1 {
				r = at(i + 1)
			}
			next[i] = at(i) + 0.25*(l-2*at(i)+r)
		}
		for i, v := range next {
			binary.LittleEndian.PutUint64(cell(i), math.Float64bits(v))
		}
		step++
		binary.LittleEndian.PutUint64(state, step)
		if step%50 == 0 {
			if _, err := job.Checkpoint(ctx); err != nil {
				return nil, err
			}
		}
	}
	part := make([]float64, width)
	for i := range part {
		part[i] = at(i)
	}
	return part, nil
}

// halo exchanges the outermost cells with the neighbours. The rod is at 1 on its left, and at 0 on its right.
func halo(ctx context.Context, job *regions.Job, first, last []byte) (left, right float64, err error) {
	n := job.Network()
	me := n.Rank()
	if me > 0 {
		err = n.Send(ctx, me-1, down, first)
	}
	if err == nil && me < n.Size()-1 {
		err = n.Send(ctx, me+1, up, last)
	}
	receive := func(kind uint16) float64 {
		_, b, e := n.Recv(ctx, kind)
		if err = errors.Join(err, e); err != nil {
			return 0
		}
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	left = 1
	if me > 0 && err == nil {
		left = receive(up)
	}
	if me < n.Size()-1 && err == nil {
		right = receive(down)
	}
	return left, right, err
}

// run is one start of the program, whose ranks are goroutines here.
func run(dir string, steps uint64) {
	parts := make([][]float64, ranks)
	var wg sync.WaitGroup
	for i, c := range regions.Group(ranks) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var err error
			if parts[i], err = rod(context.Background(), dir, c, steps); err != nil {
				log.Print(err)
			}
		}()
	}
	wg.Wait()
	sum := 0.0
	for _, part := range parts {
		for _, v := range part {
			sum += v
		}
	}
	fmt.Printf("after %d steps: %x\n", steps, sum)
}

// A program on four ranks that ends too early, at a step between two checkpoints, and goes on when it is started again.
func Example() {
	dir, err := os.MkdirTemp("", "rod")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	run(dir+"/without", 200)
	run(dir+"/with", 120)
	run(dir+"/with", 200)
	// Output:
	// after 200 steps: 0x1.df9a5686c3c61p+02
	// after 120 steps: 0x1.6cc78425ade72p+02
	// continued from epoch 2, step 100
	// after 200 steps: 0x1.df9a5686c3c61p+02
}
