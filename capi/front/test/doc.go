// SPDX-License-Identifier: Apache-2.0

// Package test runs MPI programs of our own (testdata) natively and under ckptrun, compiled against
// each MPI, above each MPI, and continued above each MPI. It owns those programs. It may not know how
// fronts and backs work; it sees commands and what they print.
package test
