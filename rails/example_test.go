// SPDX-License-Identifier: Apache-2.0

package rails_test

import (
	"fmt"

	"github.com/libckpt/libckpt/rails"
)

// onDemand connects to whoever is asked for.
type onDemand struct{}

func (onDemand) Connect(r *rails.Rail, process int) error {
	fmt.Printf("%s connects to %d\n", r.Name, process)
	return nil
}
func (onDemand) Reopen(*rails.Rail) error { return nil }

// Small messages go through shared memory, all others over TCP, to which processes connect when they need it.
func ExampleElect() {
	all := []*rails.Rail{
		{Name: "tcp", Priority: 1, Flags: rails.OnDemand},
		{Name: "shm", Priority: 2, Flags: rails.Node, Endpoints: map[int]bool{1: true},
			Gate: func(bytes uint64, _ rails.Kind) bool { return bytes <= 32<<10 }},
	}
	rails.Order(all)
	for _, m := range []rails.Message{{Process: 1, Bytes: 64}, {Process: 1, Bytes: 1 << 20}, {Process: 7, Bytes: 64}} {
		r, err := rails.Elect(all, m, onDemand{})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%d bytes for %d: %s\n", m.Bytes, m.Process, r.Name)
	}
	all[1].State, all[1].Why, all[1].Endpoints = rails.Broken, "network is unreachable", nil
	_, err := rails.Elect(all, rails.Message{Process: 1, Bytes: 1 << 20}, onDemand{})
	fmt.Println(err)
	// Output:
	// 64 bytes for 1: shm
	// tcp connects to 1
	// 1048576 bytes for 1: tcp
	// tcp connects to 7
	// 64 bytes for 7: tcp
	// no route to process 1: shm: gate closed for 1048576 bytes; tcp: broken: network is unreachable
}
