// SPDX-License-Identifier: Apache-2.0

// Package known keeps what became of programs of other people's suites, so that some can be run again, and reads why some do not end
// as they do natively: lines "PROGRAM: why".
//
// Owns: the form of these lines, which of them is meant by a program, and where results are. May not know: the suites, and what
// a result says.
package known
