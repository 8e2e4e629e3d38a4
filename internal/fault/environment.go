// SPDX-License-Identifier: Apache-2.0

//go:build faults

package fault

// With this tag, libckpt.so arms points from the environment: `make faults` makes such a tree for tests of
// whole jobs, beside what is installed.
func init() { ArmFromEnvironment() }
