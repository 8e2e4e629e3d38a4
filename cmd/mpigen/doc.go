// SPDX-License-Identifier: Apache-2.0

// Mpigen writes the wrappers of the MPI functions from two lists: functions.list (every C function of
// MPI 3.1 with the kinds of its parameters) and constants.list (predefined objects, error classes).
//
//	go run ./cmd/mpigen          write the generated files
//	go run ./cmd/mpigen -check   exit 1 when one of them is stale, and name it
//
// From a third list, section.list, it writes the code that reads and writes the section "messages" of images,
// in C and in Go. From a fourth, direct.list, it writes the stand-ins for libmlx5 and the like, which are no MPI but
// as many functions.
//
// It owns capi/canon/gen, capi/front/gen, capi/back/gen, capi/verbs/direct/gen, drain/zz_section.go, docs/coverage.md and
// a part of docs/image-sections.md. It may not know the header of any MPI: what differs between MPIs is a
// macro or an inline function of capi/front (per application ABI) and of capi/back (compiled against the
// real mpi.h). The generated code calls these by kind.
//
// A wrapper in the front turns its arguments into an array of 8-byte words, handles into virtual ids,
// special values into canonical ones (capi/canon/mpi_canon.h), and calls through the gate. The wrapper in
// the back turns the words into arguments of the real MPI. One text of the front serves all ABIs, and one text
// of the back all real MPIs.
package main

//go:generate go run . -root ../..
