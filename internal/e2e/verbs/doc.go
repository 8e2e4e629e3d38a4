// SPDX-License-Identifier: Apache-2.0

// Package verbs runs programs on InfiniBand verbs natively and under ckptrun, on the soft adapter (capi/verbs/soft).
//
// Owns: the programs on verbs (programs/), the bed that they run in (scripts/verbs-bed.sh: a device behind the machine's
// libibverbs, in namespaces of its own), and which ends of them are right.
//
// May not know: anything but commands and their output.
//
// The whole test binary runs inside the bed. Where there can be none each test is skipped, by its name and with the
// reason, and `make test` says so at its end.
package verbs
