// SPDX-License-Identifier: Apache-2.0

// Package house holds the rules of this repository as tests: which package may import which, that
// each says what it owns and may not know, that libraries neither exit nor print, how long a file may
// be, what libckpt.so shows, and that the built tree works wherever it is copied.
//
// It owns the table of layers (layers_test.go), which docs/architecture.md draws. It may not know what
// any package does: it reads sources, and runs what was built as a user would.
package house
