// SPDX-License-Identifier: Apache-2.0

package signaling_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/libckpt/libckpt/rails/signaling"
)

// Each rank listens, all exchange their cards by whatever they have (here an array), and join.
func Example() {
	const ranks = 3
	var endpoints [ranks]*signaling.Endpoint
	cards := make([][]byte, ranks)
	for r := range endpoints {
		e, err := signaling.Listen(signaling.Config{LoopbackOnly: true})
		if err != nil {
			fmt.Println(err)
			return
		}
		endpoints[r], cards[r] = e, e.Card()
	}
	var said [ranks]string
	var wait sync.WaitGroup
	for r, e := range endpoints {
		wait.Go(func() {
			ctx := context.Background()
			n, err := e.Join(ctx, r, cards)
			if err != nil {
				said[r] = err.Error()
				return
			}
			defer n.Close()
			all, err := n.Allgather(ctx, 1, fmt.Appendf(nil, "from %d", r))
			said[r] = fmt.Sprintf("rank %d of %d: %s, %v", n.Rank(), n.Size(), all, err)
			_ = n.Shutdown(ctx)
		})
	}
	wait.Wait()
	for _, s := range said {
		fmt.Println(s)
	}
	// Output:
	// rank 0 of 3: [from 0 from 1 from 2], <nil>
	// rank 1 of 3: [from 0 from 1 from 2], <nil>
	// rank 2 of 3: [from 0 from 1 from 2], <nil>
}
