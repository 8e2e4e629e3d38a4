// SPDX-License-Identifier: Apache-2.0

// Package needmpi owns the reasons for which a test may be skipped: the tree that is tested has no back for an MPI, this
// machine cannot have a device that the test needs, or no time is left. The names of the tests are gathered, and
// `make test` says them at its end.
//
// It may not know what the tests are about.
package needmpi
