// SPDX-License-Identifier: Apache-2.0

// Package lazy fills the memory of a restarted program while the program runs: on first touch, and in the background.
//
// It owns a userfaultfd and what is missing of an image's private memory. A page that is touched and missing stops
// its thread in the kernel until its chunk was read, checked against its digest and put in place in one step
// (UFFDIO_COPY); so no thread ever sees a byte that was not checked. It may not know what regions mean, threads,
// epochs or MPI.
//
// Three things would make a missing page come back as zero, or as what it no longer is, and whoever makes them asks
// first: a copy of the process and a mapping that moves (Fill), and memory that is given back or replaced (Drop).
//
// Go code must not touch missing memory itself. A goroutine that waits for a page is no goroutine that waits, to Go's
// scheduler: it keeps its processor, and a collection that waits for it stops those that would serve the page. System
// calls that touch it are fine.
package lazy
