// SPDX-License-Identifier: Apache-2.0

// Package probe finds out what this machine allows, by trying.
//
// A probe has three outcomes: yes, no, and could not find out. The last is not a no: a probe that is
// itself forbidden says nothing about the feature. Probes leave nothing behind: what a thread can only
// do once (a seccomp filter) is done on a thread that ends.
//
// Owns: the probes, and the advice that goes with each. May not know: who asks.
package probe
