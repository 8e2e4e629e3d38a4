// SPDX-License-Identifier: Apache-2.0

package sysv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System calls of semaphores and message queues, which package unix does not have.

// Commands of semctl, and flags.
const (
	semGetPID  = 11
	semGetVal  = 12
	semGetAll  = 13
	semGetNCnt = 14
	semGetZCnt = 15
	semSetAll  = 17

	semUndo = 0x1000 // of struct sembuf
	semMost = 32767  // the largest value

	msgCopy    = 0o40000 // msgrcv: the nth message, which stays
	msgNoError = 0o10000
)

// semStatus is struct semid64_ds.
type semStatus struct {
	Perm   unix.SysvIpcPerm
	Otime  int64
	_      uint64
	Ctime  int64
	_      uint64
	Number uint64
	_      [2]uint64
}

// queueStatus is struct msqid64_ds.
type queueStatus struct {
	Perm                unix.SysvIpcPerm
	Stime, Rtime, Ctime int64
	_                   uint64 // bytes
	Number, Most        uint64
	Sender, Receiver    int32
	_                   [2]uint64
}

func errnoOf(e unix.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

func semctl(id, number, cmd int, arg unsafe.Pointer) (int, error) {
	r, _, e := unix.Syscall6(unix.SYS_SEMCTL, uintptr(id), uintptr(number), uintptr(cmd), uintptr(arg), 0, 0)
	return int(r), errnoOf(e)
}

func msgctl(id, cmd int, arg unsafe.Pointer) error {
	_, _, e := unix.Syscall(unix.SYS_MSGCTL, uintptr(id), uintptr(cmd), uintptr(arg))
	return errnoOf(e)
}

func semValues(id, number int) ([]uint16, error) {
	values := make([]uint16, number)
	_, err := semctl(id, 0, semGetAll, unsafe.Pointer(&values[0]))
	return values, err
}

func setSemValues(id int, values []uint16) error {
	_, err := semctl(id, 0, semSetAll, unsafe.Pointer(&values[0]))
	return err
}

// semAdd adds to a semaphore, and never waits.
func semAdd(id, number, add, flags int) error {
	op := struct {
		number uint16
		add    int16
		flags  int16
	}{uint16(number), int16(add), int16(flags | unix.IPC_NOWAIT)}
	_, _, e := unix.Syscall(unix.SYS_SEMOP, uintptr(id), uintptr(unsafe.Pointer(&op)), 1)
	return errnoOf(e)
}

// Message is one of a queue.
type Message struct {
	Type int64  `json:"type"`
	Data []byte `json:"data,omitempty"`
}

// receive takes the message of this index, or a copy of it. most bounds its bytes.
func receive(id int, most uint64, index, flags int) (Message, error) {
	b := make([]byte, 8+most)
	n, _, e := unix.Syscall6(unix.SYS_MSGRCV, uintptr(id), uintptr(unsafe.Pointer(&b[0])), uintptr(most), uintptr(index),
		uintptr(flags|unix.IPC_NOWAIT), 0)
	if e != 0 {
		return Message{}, e
	}
	return Message{int64(binary.NativeEndian.Uint64(b)), bytes.Clone(b[8 : 8+n])}, nil
}

// messages are those of a queue, which has them still.
func messages(id int) (list []Message, err error) {
	var st queueStatus
	if err := msgctl(id, unix.IPC_STAT, unsafe.Pointer(&st)); err != nil {
		return nil, err
	}
	for i := range int(st.Number) {
		m, err := receive(id, st.Most, i, msgCopy)
		if errors.Is(err, unix.ENOSYS) {
			return nil, fmt.Errorf("%w: this kernel is built without CONFIG_CHECKPOINT_RESTORE, so that messages cannot be read without taking them", err)
		}
		if err != nil {
			return nil, fmt.Errorf("its message %d of %d: %w", i, st.Number, err)
		}
		list = append(list, m)
	}
	return list, nil
}

func send(id int, m Message) error {
	b := append(binary.NativeEndian.AppendUint64(nil, uint64(m.Type)), m.Data...)
	_, _, e := unix.Syscall6(unix.SYS_MSGSND, uintptr(id), uintptr(unsafe.Pointer(&b[0])), uintptr(len(m.Data)), unix.IPC_NOWAIT, 0, 0)
	return errnoOf(e)
}
