// SPDX-License-Identifier: Apache-2.0

// Package hostaddr answers where this process can be reached: which host it is on, at which addresses
// others may try it, and which sockets to listen on for that.
//
// Owns: what a host is (a boot of a machine and a network namespace), the choice of interfaces and
// their order. May not know: who connects, why, and what is said then.
package hostaddr
