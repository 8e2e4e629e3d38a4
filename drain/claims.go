// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// Claim is a rank's question to another one about a synchronous send, and the answer: whether the receiving program
// has taken the message. The runtime writes and reads all fields but Rank (ckpt_claim of ckpt.h).
type Claim struct {
	Rank               int // of the other side
	ID, Comm, Later    uint64
	Source, Tag, State int32
}

// claimBytes is the length of a claim on the network.
const claimBytes = 3*8 + 3*4

// ClaimNotices encodes claims for the ranks that they name.
func ClaimNotices(claims []Claim) map[int][]byte {
	notices := map[int][]byte{}
	for _, c := range claims {
		if c.Rank < 0 {
			continue // nobody of this job
		}
		b := notices[c.Rank]
		for _, v := range []uint64{c.ID, c.Comm, c.Later} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		for _, v := range []int32{c.Source, c.Tag, c.State} {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
		notices[c.Rank] = b
	}
	return notices
}

// ReadClaims decodes them: the claims of each rank, in that rank's order.
func ReadClaims(notices map[int][]byte) ([]Claim, error) {
	var claims []Claim
	for _, rank := range slices.Sorted(maps.Keys(notices)) {
		b := notices[rank]
		if len(b)%claimBytes != 0 {
			return nil, fmt.Errorf("what rank %d says of its synchronous sends has %d bytes", rank, len(b))
		}
		for ; len(b) > 0; b = b[claimBytes:] {
			long := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
			short := func(at int) int32 { return int32(binary.LittleEndian.Uint32(b[at:])) }
			claims = append(claims, Claim{Rank: rank, ID: long(0), Comm: long(8), Later: long(16),
				Source: short(24), Tag: short(28), State: short(32)})
		}
	}
	return claims, nil
}
