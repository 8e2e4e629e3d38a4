// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"
)

func BenchmarkBarrier(b *testing.B) {
	for _, size := range []int{2, 4, 16} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			nets := join(b, size, Config{})
			ctx := testContext(b)
			must(b, each(size, func(r int) error { return nets[r].Barrier(ctx, 1) })) // makes the links
			b.ResetTimer()
			must(b, each(size, func(r int) error {
				for range b.N {
					if err := nets[r].Barrier(ctx, 1); err != nil {
						return err
					}
				}
				return nil
			}))
		})
	}
}

func BenchmarkSend(b *testing.B) {
	nets := join(b, 2, Config{})
	ctx := testContext(b)
	payload := make([]byte, 1<<20)
	b.SetBytes(int64(len(payload)))
	must(b, each(2, func(r int) error {
		for range b.N {
			var err error
			if r == 0 {
				err = nets[0].Send(ctx, 1, 1, payload)
			} else {
				_, _, err = nets[1].Recv(ctx, 1)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

// BenchmarkJob is the network of a whole job, from its keys to its end with two barriers between, all ranks in
// this process; cpu-ms/op is what all of them cost together.
func BenchmarkJob(b *testing.B) {
	for _, size := range []int{4, 64} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			before := cpu(b)
			for b.Loop() {
				nets := join(b, size, Config{})
				ctx := testContext(b)
				must(b, each(size, func(r int) error {
					return errors.Join(nets[r].Barrier(ctx, 1), nets[r].Barrier(ctx, 1), nets[r].Shutdown(ctx))
				}))
			}
			b.ReportMetric(float64((cpu(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// cpu is the processor time that this process has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
