// SPDX-License-Identifier: Apache-2.0

// Package fault provides named fault points: places in a path that touches disk or network where a
// test can make the next step fail.
//
// A point stands in the code, before the step that it makes fail:
//
//	if err := fault.Point("store.commit.rename"); err != nil {
//		return err
//	}
//
// A test arms points with Arm, or, in a copy of itself that it starts, with ArmFromEnvironment and the
// variable CKPT_FAULT. A whole job arms them in the same way if its library has the build tag faults (`make
// faults`); Debug then tells what else CKPT_DEBUG asks for. What is installed does neither, and internal/house
// checks that. The specification is a list separated by commas:
//
//	NAME=ACTION      at every visit of the point
//	NAME=ACTION:N    at the N-th visit alone, counted from 1
//
// NAME is a point, or * for all points together (so *=error:7 fails the seventh step, whichever it
// is). ACTION is error (Point returns ErrInjected), enospc (Point returns an error that wraps
// ENOSPC), kill (the process ends with SIGKILL, as in a power cut), stall (Point returns when the file
// that CKPT_FAULT_STALL names is gone, as on a disk that does not answer) or stop (the process stops, as by
// SIGSTOP, so that a test sees where it is and does what it wants before it goes on). When nothing is armed a
// point costs one atomic load. Place is a point where nothing can fail.
//
// Owns: the syntax of CKPT_FAULT and the counters. May not know: what the points are for.
package fault
