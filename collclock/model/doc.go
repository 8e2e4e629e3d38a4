// SPDX-License-Identifier: Apache-2.0

// Package model checks the protocols with Spin: Promela models of the refined and of the published
// protocol, run on the programs of scenario files (package scenario), so that the code and the models
// are tried on the same programs.
//
//	rcc.pml    the refined protocol; accepts traces of the code (trace.go)
//	pub.pml    the published one, made better than real: instant requests, perfect detection
//	fence.pml  the hot path on two CPUs with store buffers: what membarrier is for
//	decide.pml the hot path decides before it counts, or after
//	chase.pml  targets raised on demand, with wildcard receives: a protocol that was dropped
//	lost.pml   targets exchanged without max
//
// It owns the models, the translation of programs and traces into their terms, and (in its tests) the
// running of spin and cc. It may know scenario and collclock. It may not know anything that a job uses,
// and nothing but tests uses it.
package model
