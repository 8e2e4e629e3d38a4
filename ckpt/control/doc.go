// SPDX-License-Identifier: Apache-2.0

// Package control is the operator's way to a running job: rank 0 serves it, ckptctl uses it.
//
//	ckptctl ──► DIR/job.json (mode 0600): addresses and token
//	   │
//	   │ TLS 1.3, both sides prove that they have the token (package handshake)
//	   ▼
//	Server (rank 0) ──► desk: one checkpoint at a time ──► Job (the orchestrator)
//
// It owns the wire format, the rule by which requests are joined and queued, and the types that say
// what a job is doing. It does not know how a checkpoint is made, and does not read or write job.json:
// package store puts an Address into that file.
//
// # Requests
//
// A connection carries one request, a line of JSON, and its answers, a line each:
//
//	{"do":"checkpoint","then":"exit","timeout_ms":60000}
//	      {"event":{...}}, as often as there is news, then {"result":{...}} or {"error":{...}}
//	{"do":"status"}
//	      {"status":{...}}
//	{"do":"watch","period_ms":500}
//	      {"status":{...}} once a period until the client leaves
//
// One checkpoint runs at a time. A request joins one that runs or waits if both want the same afterwards
// (continue, exit or kill), and shares its result; otherwise it waits its turn. A client that disappears
// stops nothing. A client whose timeout is over is told so, and leaves the checkpoint to the others; when
// the timeouts of all who asked are over, the checkpoint is given up. A job is not ended if all who asked
// for its end have been told that their time is over.
//
// # Locks
//
//	desk.mu     the runs, who waits for them, and ended; never held while calling the Job
//	Server.mu   the set of connections; independent of desk.mu
package control
