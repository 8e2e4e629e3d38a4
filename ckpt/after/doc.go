// SPDX-License-Identifier: Apache-2.0

// Package after names what happens to a job once its checkpoint is committed: the one vocabulary of
// options, operators, signals and the orchestrator.
//
// It owns three words. It may not know who says them, nor how they are carried out.
package after
