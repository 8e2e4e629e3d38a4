// SPDX-License-Identifier: Apache-2.0

// Package levels keeps the files of an epoch where failures do not reach all of them:
//
//	level 1  each node has its own files, in its local directory     survives the end of processes
//	level 2  and the files of the node before it in its group        survives nodes that are not neighbours
//	level 3  and a parity of all files of its group                  survives half of the nodes of each group
//	level 4  the files are in the shared directory                   survives all nodes
//
// An epoch is committed at level 1 and raised later (raise.go). The first three levels lie in the local directories:
//
//	LOCAL/SET/epoch-000003/rank-00000.ckpt    a file of this node, or the copy of another node's
//	LOCAL/SET/epoch-000003/parity-0-2.rs      parity 2 of group 0
//
// SET is a name that the checkpoint directory gives (SetName), so that jobs can share a local directory. With several
// nodes on one machine, for tests, the local directory of node i is LOCAL/node<i>.
//
// A node's files are opened by processes of that node alone. One process of each node, its leader, gives them to
// other nodes' leaders over connections that the caller makes (serve.go); files are always fetched, and never pushed.
//
// A restart compares what the nodes have with what each of them needs (plan.go), fetches and decodes what is missing
// (fetch.go), and looks again, until each node has what it needs, or it is clear that this epoch is lost.
//
// Owns: names in the local directories, who is whose partner, which copies there are, how they are made and made use of,
// the record of all this in a manifest.
// May not know: what is in a file, how sound files are told from damaged ones (Check), epochs' order and
// commit (ckpt/store), how connections are made (rails/signaling), MPI.
package levels
