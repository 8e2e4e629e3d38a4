// SPDX-License-Identifier: Apache-2.0

package main

/*
#include "ckpt.h"
#include "mpix_checkpoint.h"
*/
import "C"

import (
	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/clockwork"
	"github.com/libckpt/libckpt/ckpt/where"
)

// Numbers that stand in both Go and C and that cross the border. A number that differs makes an index out of range,
// which does not compile. (Go passes states of claims on without knowing their numbers; vid/layout_test.go compares
// all of the tables.)
var (
	zero [1]struct{}

	_ = zero[C.CKPT_PENDING_CLOCK-clockwork.PendingClock]
	_ = zero[C.CKPT_PENDING_STOP-clockwork.PendingStop]

	_ = zero[C.CKPT_COLL_WAIT-clockwork.Wait]
	_ = zero[C.CKPT_COLL_ENTER-clockwork.Enter]
	_ = zero[C.CKPT_COLL_DEFER-clockwork.Defer]
	_ = zero[C.CKPT_COLL_BLOCKING-clockwork.Blocking]
	_ = zero[C.CKPT_COLL_NONBLOCKING-clockwork.NonBlocking]
	_ = zero[C.CKPT_COLL_GATED-clockwork.Gated]

	_ = zero[C.CKPT_WAIT_MESSAGE-where.ForMessage]
	_ = zero[C.CKPT_WAIT_RECEIVER-where.ForReceiver]
	_ = zero[C.CKPT_WAIT_COLLECTIVE-where.ForCollective]
	_ = zero[C.CKPT_WAIT_REQUEST-where.ForRequest]
	_ = zero[C.CKPT_PEER_ANY-where.PeerAny]
	_ = zero[C.CKPT_PEER_NONE-where.PeerNone]

	// These structures are still those of version 1.0. When one grows, remove its line and keep the constant.
	_ = zero[C.sizeof_ckpt_object_ops-objectsSize10]
	_ = zero[C.sizeof_ckpt_message_ops-messagesSize10]
	_ = zero[C.sizeof_ckpt_sync_ops-syncSize10]
	_ = zero[C.sizeof_ckpt_state_ops-stateSize10]

	_ = zero[C.CKPT_STATE_ERROR-ckpt.StateError]
	_ = zero[C.MPIX_CR_STATE_ERROR-ckpt.StateError]
	_ = zero[C.CKPT_STATE_CHECKPOINT-ckpt.StateCheckpoint]
	_ = zero[C.MPIX_CR_STATE_CHECKPOINT-ckpt.StateCheckpoint]
	_ = zero[C.CKPT_STATE_RESTART-ckpt.StateRestart]
	_ = zero[C.MPIX_CR_STATE_RESTART-ckpt.StateRestart]
	_ = zero[C.CKPT_STATE_IGNORE-ckpt.StateIgnore]
	_ = zero[C.MPIX_CR_STATE_IGNORE-ckpt.StateIgnore]
)
