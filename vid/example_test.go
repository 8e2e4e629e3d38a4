// SPDX-License-Identifier: Apache-2.0

package vid_test

import (
	"fmt"

	"github.com/libckpt/libckpt/vid"
)

// An application keeps an id; the handle behind it is another one after a restart.
func Example() {
	before, err := vid.Open(0, vid.MinWindow)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer before.Close()
	row, _ := before.New(vid.Comm, 4711, []byte("color 1, key 0"), nil, 1)
	image := before.Save()

	after, err := vid.Open(0, vid.MinWindow)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer after.Close()
	if err := after.Load(image); err != nil {
		fmt.Println(err)
		return
	}
	err = after.Rebuild(func(k vid.Kind, id vid.ID, descriptor []byte, _ uint64) (uint64, error) {
		fmt.Printf("made again: %s\n", descriptor)
		return 815, nil // what the new runtime calls it
	})
	real, _ := after.Real(row)
	fmt.Println(real, err)
	// Output:
	// made again: color 1, key 0
	// 815 <nil>
}
