// SPDX-License-Identifier: Apache-2.0

// Package known reads why programs of other people's suites do not end as they do natively: lines "PROGRAM: why".
//
// Owns: the form of these lines, and which of them is meant by a program. May not know: the suites, and what became of their programs.
package known
