// SPDX-License-Identifier: Apache-2.0

// Package regular opens files that must be regular ones. To open a named pipe waits for its other end,
// perhaps for ever, and to open a device may do something; neither can hold what we wrote.
//
// Owns: how such a file is opened and read. May not know: what is in it.
package regular
