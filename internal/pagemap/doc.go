// SPDX-License-Identifier: Apache-2.0

// Package pagemap asks the kernel about pages of a process, with the ioctl PAGEMAP_SCAN of /proc/PID/pagemap
// (Linux 6.7 and later).
//
// Owns: the ioctl, its constants, ranges of pages. May not know: what is asked for, and why.
package pagemap
