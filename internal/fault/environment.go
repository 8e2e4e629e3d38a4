// SPDX-License-Identifier: Apache-2.0

//go:build faults

package fault

import "os"

// With this tag, the core arms points from the environment, and does what CKPT_DEBUG asks for: `make
// faults` makes such a tree for tests of whole jobs, beside what is installed.
func init() {
	ArmFromEnvironment()
	debug = os.Getenv("CKPT_DEBUG")
}
