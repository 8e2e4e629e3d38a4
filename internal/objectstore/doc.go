// SPDX-License-Identifier: Apache-2.0

// Package objectstore is for tests that need an object store: it starts a real server that speaks S3 (versitygw, got
// through the Go module proxy and built once a machine, outside this module), and has a proxy that spoils what passes
// between it and a client.
//
// Owns: which server is used, how it is built and started, the faults of the proxy.
// May not know: who the clients are, what is in the objects, what is expected of clients.
package objectstore
