// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// twoAskers are joined to each other; rank 1 knows the answer to question 2 of id 7 only.
func twoAskers() (a, b *Asker) {
	a, b = &Asker{}, &Asker{}
	a.Send = func(_ int, m []byte) error { go b.Heard(0, slices.Clone(m)); return nil }
	b.Send = func(_ int, m []byte) error { go a.Heard(1, slices.Clone(m)); return nil }
	a.Answer = func(int, uint32, uint32) ([]byte, bool) { return nil, false }
	b.Answer = func(from int, question, id uint32) ([]byte, bool) {
		return []byte("here"), from == 0 && question == 2 && id == 7
	}
	return a, b
}

func TestAsk(t *testing.T) {
	a, _ := twoAskers()
	got, err := a.Ask(context.Background(), 1, 2, 7)
	if err != nil || string(got) != "here" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := a.Ask(context.Background(), 1, 2, 8); !errors.Is(err, ErrNone) {
		t.Errorf("what nobody knows: %v", err)
	}
	if len(a.waiting) != 0 {
		t.Errorf("%d questions are left", len(a.waiting))
	}
}

// A rank that does not answer is not waited for for ever, and an answer of another rank is none.
func TestAskInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Asker{}
		a.Send = func(_ int, m []byte) error {
			answer := append([]byte{isAnswer}, m[1:headBytes]...)
			go a.Heard(2, append(answer, "not yours"...))
			return nil
		}
		if got, err := a.Ask(context.Background(), 1, 2, 7); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestHeardNonsense(t *testing.T) {
	a := &Asker{Send: func(int, []byte) error { t.Error("answered"); return nil },
		Answer: func(int, uint32, uint32) ([]byte, bool) { t.Error("asked"); return nil, true }}
	for n := range headBytes + 10 {
		if n == headBytes+8 {
			continue // a question
		}
		a.Heard(1, bytes.Repeat([]byte{isQuestion}, n))
		a.Heard(1, bytes.Repeat([]byte{isAnswer}, n))
		a.Heard(1, bytes.Repeat([]byte{9}, n))
	}
}

func pair(from, to uint32, lengths ...uint32) []byte {
	b := make([]byte, pairBytes)
	binary.LittleEndian.PutUint32(b, from)
	binary.LittleEndian.PutUint32(b[pairTo:], to)
	binary.LittleEndian.PutUint32(b[pairLengths:], uint32(len(lengths)))
	for _, l := range lengths {
		b = binary.LittleEndian.AppendUint32(b, l)
	}
	return b
}

// Each rank hears of its own queue pairs, from all.
func TestIn(t *testing.T) {
	one, two, three := pair(0x20005, 0x10007, 8, 9), pair(0x20006, 0x00001), pair(0x00001, 0x10008)
	words := []Word{{Told: three}, {}, {Told: slices.Concat(one, two)}}
	for rank, want := range [][]byte{two, slices.Concat(three, one), nil} {
		if got, err := In(rank, words); err != nil || !bytes.Equal(got, want) {
			t.Errorf("rank %d hears %x, %v, want %x", rank, got, err, want)
		}
	}
}

func TestInDamaged(t *testing.T) {
	whole := pair(1, 0x10007, 8, 9)
	for n := 1; n < len(whole); n++ {
		if _, err := In(1, []Word{{Told: whole[:n]}}); !errors.Is(err, ErrTold) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	binary.LittleEndian.PutUint32(whole[pairLengths:], 1<<32-1)
	if _, err := In(1, []Word{{Told: whole}}); !errors.Is(err, ErrTold) {
		t.Errorf("too many lengths: %v", err)
	}
}

func TestOver(t *testing.T) {
	if !Dry([]Word{{}, {}}) || Dry([]Word{{}, {Left: 1}}) {
		t.Error("dry is when nobody has anything left")
	}
	if !GivenUp([]Word{{}, {Left: 2, Why: "2 sends"}, {Over: true}}) {
		t.Error("one has given up")
	}
	if GivenUp([]Word{{Left: 1}}) {
		t.Error("nobody has given up")
	}
}
