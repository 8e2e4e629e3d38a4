// SPDX-License-Identifier: Apache-2.0

// Package userfault makes userfaultfds and speaks to them: pages that are missing, and pages that are written.
//
// Owns: the system call, the device, the ioctls and their constants. May not know: which memory is meant, and what
// becomes of it.
package userfault
