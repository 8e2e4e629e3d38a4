// SPDX-License-Identifier: Apache-2.0

// Package handshake turns a plain stream connection into one whose two ends have proved to each
// other that they know the same key.
//
// It owns three things: the handshake, the sealed records that follow it, and the Guard that lets
// strangers connect to a listener without costing more than a bounded number of descriptors, bytes
// and seconds. It knows nothing of ranks' addresses, of rails or of checkpoints: what the key is,
// and who may use it, is its callers' business.
//
//	client                                        server
//	  hello: protocol, job, from, to, nonce  ──►
//	                                         ◄──  nonce, HMAC(key, "server", hello, nonce)
//	  HMAC(key, "client", hello, nonces)     ──►
//	                                         ◄──  first sealed record, empty: "you are in"
//	  ═══════════ sealed records, one key for each direction ═══════════
//
// All messages up to the first record have a fixed size, so a stranger cannot make the server
// allocate. Both nonces are fresh for each connection and enter both proofs and both record keys, so
// a recording of one connection is worth nothing on the next. The proofs of the two directions
// differ by a label, so that a proof cannot be reflected; from, to, job and protocol are part of
// what is proved, so that it cannot be used elsewhere.
//
// A record is a 4-byte big-endian length and that many bytes of AES-256-GCM; the nonce is the number
// of the record in its direction, and the length is authenticated too. A record that is forged,
// dropped, repeated or out of order ends the connection.
//
// The key must have full entropy (32 random bytes, or a Diffie-Hellman result): the proofs would let
// a stranger test guesses of a password offline. There is no forward secrecy: who learns the key can
// read recordings. Keys live as long as one job.
package handshake
