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
	"github.com/libckpt/libckpt/collclock"
)

// Numbers that cross between C and Go as they are. Each line is a constant expression that is 0: where
// the two sides differ one of its terms is negative, which no unsigned type can hold, and this file does not
// compile.
const (
	_ = uint(C.CKPT_PENDING_CLOCK-clockwork.PendingClock) + uint(clockwork.PendingClock-C.CKPT_PENDING_CLOCK)
	_ = uint(C.CKPT_PENDING_STOP-clockwork.PendingStop) + uint(clockwork.PendingStop-C.CKPT_PENDING_STOP)

	_ = uint(C.CKPT_COLL_WAIT-clockwork.Wait) + uint(clockwork.Wait-C.CKPT_COLL_WAIT)
	_ = uint(C.CKPT_COLL_ENTER-clockwork.Enter) + uint(clockwork.Enter-C.CKPT_COLL_ENTER)
	_ = uint(C.CKPT_COLL_DEFER-clockwork.Defer) + uint(clockwork.Defer-C.CKPT_COLL_DEFER)

	_ = uint(C.CKPT_COLL_BLOCKING-collclock.Blocking) + uint(collclock.Blocking-C.CKPT_COLL_BLOCKING)
	_ = uint(C.CKPT_COLL_NONBLOCKING-collclock.NonBlocking) + uint(collclock.NonBlocking-C.CKPT_COLL_NONBLOCKING)
	_ = uint(C.CKPT_COLL_GATED-collclock.Gated) + uint(collclock.Gated-C.CKPT_COLL_GATED)

	_ = uint(C.CKPT_WAIT_MESSAGE-where.ForMessage) + uint(where.ForMessage-C.CKPT_WAIT_MESSAGE)
	_ = uint(C.CKPT_WAIT_RECEIVER-where.ForReceiver) + uint(where.ForReceiver-C.CKPT_WAIT_RECEIVER)
	_ = uint(C.CKPT_WAIT_COLLECTIVE-where.ForCollective) + uint(where.ForCollective-C.CKPT_WAIT_COLLECTIVE)
	_ = uint(C.CKPT_WAIT_REQUEST-where.ForRequest) + uint(where.ForRequest-C.CKPT_WAIT_REQUEST)
	_ = uint(C.CKPT_PEER_ANY-where.PeerAny) + uint(where.PeerAny-C.CKPT_PEER_ANY)
	_ = uint(C.CKPT_PEER_NONE-where.PeerNone) + uint(where.PeerNone-C.CKPT_PEER_NONE)

	_ = uint(C.CKPT_STATE_ERROR-ckpt.StateError) + uint(ckpt.StateError-C.CKPT_STATE_ERROR)
	_ = uint(C.CKPT_STATE_CHECKPOINT-ckpt.StateCheckpoint) + uint(ckpt.StateCheckpoint-C.CKPT_STATE_CHECKPOINT)
	_ = uint(C.CKPT_STATE_RESTART-ckpt.StateRestart) + uint(ckpt.StateRestart-C.CKPT_STATE_RESTART)
	_ = uint(C.CKPT_STATE_IGNORE-ckpt.StateIgnore) + uint(ckpt.StateIgnore-C.CKPT_STATE_IGNORE)
	_ = uint(C.MPIX_CR_STATE_ERROR-ckpt.StateError) + uint(ckpt.StateError-C.MPIX_CR_STATE_ERROR)
	_ = uint(C.MPIX_CR_STATE_CHECKPOINT-ckpt.StateCheckpoint) + uint(ckpt.StateCheckpoint-C.MPIX_CR_STATE_CHECKPOINT)
	_ = uint(C.MPIX_CR_STATE_RESTART-ckpt.StateRestart) + uint(ckpt.StateRestart-C.MPIX_CR_STATE_RESTART)
	_ = uint(C.MPIX_CR_STATE_IGNORE-ckpt.StateIgnore) + uint(ckpt.StateIgnore-C.MPIX_CR_STATE_IGNORE)
)
