// SPDX-License-Identifier: Apache-2.0

// Preempted is a program in Go whose goroutines make no calls for a while, so that only the signals that Go's runtime sends
// itself can stop them for its collector of garbage.
//
//	preempted ROUNDS
//
// It is linked at a fixed address, as programs in Go are, and makes system calls by instructions of its own.
package main

import "C" // without it the program would be statically linked

import (
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
)

// spin makes no call for a while, so that only a signal can preempt it.
func spin(v uint64) uint64 {
	for range 20_000_000 {
		v = v*6364136223846793005 + 1442695040888963407
	}
	return v
}

func main() {
	rounds, _ := strconv.Atoi(os.Args[1])
	sums := make([]uint64, 4)
	var keep [][]byte
	h := sha256.New()
	fmt.Println("begun")
	for r := range rounds {
		var all sync.WaitGroup
		for i := range sums {
			all.Go(func() { sums[i] = spin(sums[i] + uint64(r+i)) })
		}
		runtime.GC()
		all.Wait()
		b := make([]byte, 1<<16)
		for i := range b {
			b[i] = byte(sums[i%4] >> (i % 57))
		}
		if keep = append(keep, b); len(keep) > 50 {
			keep = keep[25:]
		}
		for _, b := range keep {
			h.Write(b)
		}
	}
	fmt.Printf("%x\n", h.Sum(nil))
}
