// SPDX-License-Identifier: Apache-2.0

// Package handshake turns a plain stream connection into one whose two ends have proved to each
// other who they are.
//
// The protocol is TLS 1.3 of the standard library; nothing of it is our own. Each end shows a
// certificate which it signed itself and which says nothing but a public key, and each end knows
// beforehand which key the other must have: ranks from the cards of the job, ckptctl and the job from
// the token that both have. So there is no authority, no name and no date to be checked, and clocks may
// be wrong. Sessions are not resumed.
//
// The package owns three things: this use of TLS, the messages (records) that are sent over it, and the
// Guard that lets strangers connect to a listener without costing more than a bounded number of
// descriptors, bytes and seconds. It knows nothing of ranks' addresses, of rails or of checkpoints: what
// the keys are, and who may use them, is its callers' business.
//
//	client                                             server
//	  ClientHello, with our Hello as ALPN name    ──►
//	                                              ◄──  ServerHello ... certificate, proof, Finished
//	  certificate, proof, Finished                ──►
//	                                              ◄──  first record, empty: "you are in"
//	  ═══════════════════════ records ═══════════════════════
//
// The Hello says which protocol is spoken, in which job, from whom and to whom. It travels in the clear, as the
// one name of the application's protocol (ALPN), and is proved with the rest. It tells the server which key to
// expect. It also lets the server tell a client of another version or another job from one that is not libckpt.
//
// The first record is needed because a client of TLS 1.3 is done before the server has looked at its certificate.
//
// A record is a 4-byte big-endian length and that many bytes, inside of TLS. A record that is forged, dropped,
// repeated or out of order ends the connection. Whoever learns a key later cannot read recordings: each
// connection has keys of its own.
package handshake
