// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Device is what this process has of verbs.
type Device interface {
	// Used tells whether the program has opened a device.
	Used() bool
	// Root is where the program's objects begin.
	Root() uint64
	// TCP tells whether there is no adapter, and a library of ours stands in over TCP; after Make.
	TCP() bool
	// Holds are reasons for which the stopped program cannot be saved.
	Holds() []string
	// Descriptors are those of ours that the program's epoll sets watch.
	Descriptors() []int
	// Turn is a step of a drain. in is what others have told; told is for them, by rank, as Pairs reads it; left is how
	// much is not done, why what the first of it is.
	Turn(first bool, in []byte) (told []byte, left int, why string, err error)
	// End ends a drain.
	End()
	// Make makes the objects of a restarted program again, in two steps.
	Make(step int, root uint64) error
	// Answer answers another rank's question, at any time.
	Answer(from int, question uint32, id uint32) ([]byte, bool)
}

// Asker carries questions to other ranks.
type Asker struct {
	// Send sends a message of ours to a rank, which gives it to its Asker's Heard.
	Send func(to int, message []byte) error
	// Answer answers others' questions; false: there is nobody to answer yet.
	Answer func(from int, question, id uint32) ([]byte, bool)

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]waiting
}

type waiting struct {
	of     int // the rank that was asked
	answer chan []byte
}

// Patience bounds the wait for an answer: a rank that lives answers at once, whatever its program does.
const Patience = 30 * time.Second

// A message: 1 for a question, 2 for an answer, 3 for none; the question's number; then question and id, or the answer.
const (
	isQuestion = 1
	isAnswer   = 2
	isNone     = 3
	headBytes  = 9
)

// ErrNone says that the rank knows nothing of it.
var ErrNone = errors.New("it is not known there")

// Ask asks a rank.
func (a *Asker) Ask(ctx context.Context, rank int, question, id uint32) ([]byte, error) {
	w := waiting{rank, make(chan []byte, 1)}
	a.mu.Lock()
	if a.waiting == nil {
		a.waiting = map[uint64]waiting{}
	}
	a.next++
	number := a.next
	a.waiting[number] = w
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.waiting, number)
		a.mu.Unlock()
	}()
	b := binary.LittleEndian.AppendUint64([]byte{isQuestion}, number)
	b = binary.LittleEndian.AppendUint32(b, question)
	b = binary.LittleEndian.AppendUint32(b, id)
	if err := a.Send(rank, b); err != nil {
		return nil, fmt.Errorf("ask rank %d: %w", rank, err)
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	select {
	case answer := <-w.answer:
		if answer == nil {
			return nil, ErrNone
		}
		return answer, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("rank %d does not answer: %w", rank, context.Cause(ctx))
	}
}

// Heard takes a message. What makes no sense is dropped: whoever waits for it waits no longer than Patience.
func (a *Asker) Heard(from int, message []byte) {
	if len(message) < headBytes {
		return
	}
	number, rest := binary.LittleEndian.Uint64(message[1:]), message[headBytes:]
	switch message[0] {
	case isQuestion:
		if len(rest) != 8 {
			return
		}
		answer, ok := a.Answer(from, binary.LittleEndian.Uint32(rest), binary.LittleEndian.Uint32(rest[4:]))
		kind := byte(isAnswer)
		if !ok {
			kind = isNone
		}
		_ = a.Send(from, append(binary.LittleEndian.AppendUint64([]byte{kind}, number), answer...)) // or it has ended
	case isAnswer, isNone:
		a.mu.Lock()
		w, ok := a.waiting[number]
		if ok && w.of == from {
			delete(a.waiting, number)
		}
		a.mu.Unlock()
		if !ok || w.of != from {
			return
		}
		if message[0] == isNone {
			w.answer <- nil
		} else {
			w.answer <- append(make([]byte, 0, len(rest)), rest...)
		}
	}
}
