// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"fmt"
	"testing"
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
