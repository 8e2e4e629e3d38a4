// SPDX-License-Identifier: Apache-2.0

// Command capi is libckpt-core.so: the C interface of include/ckpt.h, and the functions that ckptrun calls
// (host/hostgo.h). ckptrun loads this library, and so does libckpt.so (embed/core.c) when a call needs it.
//
// It owns the border between C and Go: types, ownership of strings, errors as codes and lines. It
// decides nothing: every export calls into package ckpt, launch or vid.
package main

import _ "github.com/libckpt/libckpt/internal/keepout" // Go's heap stays out of the program's memory

func main() {} // c-shared wants one; nobody calls it
