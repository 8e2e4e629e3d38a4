// SPDX-License-Identifier: Apache-2.0

//go:build faults

package fault

import "os"

// With this tag, the core arms points from the environment, and heeds what tests ask for otherwise: `make
// faults` makes such a tree for tests of whole jobs, beside what is installed.
func init() {
	ArmFromEnvironment()
	debug = os.Getenv("CKPT_DEBUG")
}
