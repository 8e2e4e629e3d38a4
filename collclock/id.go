// SPDX-License-Identifier: Apache-2.0

package collclock

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// ID names a clock. Every member computes the same ID without a message. Two clocks of a job never have
// the same ID, even when their groups are equal: a clock belongs to a communicator (or window, file,
// persistent request), never to a group.
type ID [16]byte

// String is the first half of the ID in hexadecimal; enough for messages to people.
func (id ID) String() string { return hex.EncodeToString(id[:8]) }

// CreateKind is the kind of call that made a communicator out of its parent.
type CreateKind uint8

// Kinds of creating calls. The numbers enter identities, so they are never reused.
const (
	CreateDup      CreateKind = 1 // MPI_Comm_dup and its variants
	CreateSplit    CreateKind = 2 // MPI_Comm_split
	CreateType     CreateKind = 3 // MPI_Comm_split_type
	CreateComm     CreateKind = 4 // MPI_Comm_create
	CreateTopology CreateKind = 5 // MPI_Cart_create, MPI_Graph_create, MPI_Dist_graph_create*
	CreateSub      CreateKind = 6 // MPI_Cart_sub
	CreateMerge    CreateKind = 7 // MPI_Intercomm_merge
)

// ObjectKind is a kind of collective object that is not a communicator.
type ObjectKind uint8

// Kinds of objects with a clock of their own. The numbers enter identities.
const (
	ObjectRequest ObjectKind = 1 // a persistent collective request: its starts may come in any order
	ObjectWindow  ObjectKind = 2
	ObjectFile    ObjectKind = 3
)

// World is the identity of MPI_COMM_WORLD.
func World() ID { return digest('W') }

// Self is the identity of MPI_COMM_SELF of a rank.
func Self(rank int32) ID { return digest('S', uint64(rank)) }

// Child is the identity of a communicator that call number call on the parent made, for the members
// (world ranks in the communicator's order).
func Child(parent ID, call uint64, kind CreateKind, members []int32) ID {
	return digestMembers(members, 'C', words(parent), call, uint64(kind))
}

// Subset is the identity of a communicator made by MPI_Comm_create_group, which only the members
// call, so the identity cannot depend on the parent's count. n counts such calls with the same parent,
// tag and members.
func Subset(parent ID, tag int, members []int32, n uint64) ID {
	return digestMembers(members, 'G', words(parent), uint64(int64(tag)), n)
}

// Intercomm is the identity of an intercommunicator. Neither side knows the other's local
// communicator, so the leaders exchange its ID before the call. The order of the sides does not matter.
func Intercomm(a, b ID, tag int, n uint64) ID {
	if string(b[:]) < string(a[:]) {
		a, b = b, a
	}
	wa, wb := words(a), words(b)
	return digest('I', wa[0], wa[1], wb[0], wb[1], uint64(int64(tag)), n)
}

// Object is the identity of a window, file or persistent request that call number call on comm made.
func Object(comm ID, kind ObjectKind, call uint64) ID {
	w := words(comm)
	return digest('O', w[0], w[1], uint64(kind), call)
}

func words(id ID) [2]uint64 {
	return [2]uint64{binary.LittleEndian.Uint64(id[:8]), binary.LittleEndian.Uint64(id[8:])}
}

func digest(tag byte, values ...uint64) ID {
	buf := make([]byte, 1, 1+8*len(values))
	buf[0] = tag
	for _, v := range values {
		buf = binary.LittleEndian.AppendUint64(buf, v)
	}
	return cut(buf)
}

func digestMembers(members []int32, tag byte, of [2]uint64, values ...uint64) ID {
	buf := make([]byte, 1, 1+16+8*len(values)+8+4*len(members))
	buf[0] = tag
	buf = binary.LittleEndian.AppendUint64(buf, of[0])
	buf = binary.LittleEndian.AppendUint64(buf, of[1])
	for _, v := range values {
		buf = binary.LittleEndian.AppendUint64(buf, v)
	}
	buf = binary.LittleEndian.AppendUint64(buf, uint64(len(members)))
	for _, r := range members {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(r))
	}
	return cut(buf)
}

func cut(buf []byte) ID {
	sum := sha256.Sum256(buf)
	return ID(sum[:16])
}
