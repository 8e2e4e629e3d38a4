// SPDX-License-Identifier: Apache-2.0

// Package regular opens files that must be regular ones. Opening a named pipe waits for its other end,
// perhaps for ever, and opening a device may have an effect; neither can hold what we wrote.
//
// Owns: how such a file is opened and read. May not know: what is in it.
package regular
