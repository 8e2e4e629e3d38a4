// SPDX-License-Identifier: Apache-2.0

// Package instructions compares the instructions that ckptrun finds in libraries with those that binutils finds.
//
// It owns the list of libraries and the comparison. It may not know how either finds them, nor what is done
// with them.
package instructions
