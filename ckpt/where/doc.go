// SPDX-License-Identifier: Apache-2.0

// Package where says, for people, what the ranks of an MPI job are doing and who waits for whom.
//
// Rank 0 asks all ranks while somebody wants to know, and only then (ask.go). A rank answers with a Rank
// (rank.go). All answers together become a sentence for each rank (explain.go). A rank that does not answer in
// time is said to be silent.
//
// It owns the questions, the form of the answers, and these sentences. It does not know how a rank finds out
// what it is doing, how messages travel, or what a checkpoint is.
//
// Locks: Asker.mu alone, which is held for moments.
package where
