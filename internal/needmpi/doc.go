// SPDX-License-Identifier: Apache-2.0

// Package needmpi owns the one reason for which a test of an MPI may be skipped: the tree that is tested has no back for
// that MPI. The names of these, and of tests that need a device which this machine cannot have, are gathered, and
// `make test` says them at its end.
//
// It may not know what the tests are about.
package needmpi
