// SPDX-License-Identifier: Apache-2.0

// Package sockets saves the sockets of a stopped program, and makes them again after a restart: TCP connections between
// processes of one job, listening and unconnected TCP sockets, and pairs of Unix sockets within a process.
//
// # Saving
//
// All programs of the job are stopped. Every process tells the names of its TCP sockets; so each finds out which connections
// have both ends in the job (match.go). What has been sent on these must reach the receiving kernel: the receiver makes room
// for it, and the sender waits until all is acknowledged (drain.go). Then the receiver looks at it, and leaves it where it
// is (MSG_PEEK): no byte is taken out of a connection, so nothing has to be put back when the program goes on, whatever
// becomes of the checkpoint.
//
//	Look ──reports of all──► Match ──► Drain ──words of all──► Keep, for each descriptor ──► Encode
//
// # Making them again
//
// The ends of a connection may be on other nodes than before. The end with the lower place accepts, on a port of a moment,
// and the other one connects and proves that it knows the secret that the processes of this start gave each other.
// Each end then sends what the image has for it to the other one, and gets it back as the first bytes of the stream
// (connect.go). So the bytes lie in the kernel, as before, and poll, peek and the like see them. The names that the program
// sees (getsockname, getpeername) are those of before; Names has them for whoever answers these calls.
//
// A socket whose other end is closed, and one that is over, is connected to a socket of our own, which is closed.
//
// Owns: what a socket is, which sockets cannot be saved and why, the section of an image with them, and the protocol on new
// connections. May not know: checkpoints, images, MPI, how processes tell each other something, who the descriptors' other
// owners are.
package sockets
