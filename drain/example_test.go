// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"fmt"

	"github.com/libckpt/libckpt/drain"
)

// Rank 0 has sent three messages on a communicator, and rank 1 has received two of them.
func Example() {
	const world = 1
	zero := []drain.Mark{{Comm: world, Name: "world", Peer: 1, Sent: 3}}
	one := []drain.Mark{{Comm: world, Name: "world", Peer: 0, Received: 2}}

	notices := drain.Notices(zero) // by the rank that each is for
	ledger, err := drain.NewLedger(map[int][]byte{0: notices[1]})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, gap := range ledger.Missing(one) {
		fmt.Println(gap)
	}
	one[0].Received++ // one more turn of draining
	fmt.Println(len(ledger.Missing(one)), "gaps")
	// Output:
	// rank 0 sent 3 messages on communicator "world", of which 2 are received
	// 0 gaps
}
