// SPDX-License-Identifier: Apache-2.0

package where

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/libckpt/libckpt/ckpt/control"
)

// Wait is how long rank 0 waits for the answers, and others for an answer to leave.
const Wait = 300 * time.Millisecond

// Asker asks all ranks. It lives on rank 0; several may ask at the same time.
type Asker struct {
	ranks int
	here  func() Rank                                                // what rank 0 itself would answer
	send  func(ctx context.Context, rank int, question []byte) error // to another rank
	lost  <-chan struct{}                                            // closed when no answer can come any more

	mu   sync.Mutex
	last uint64
	open map[uint64]*look
}

// look is one question to all ranks.
type look struct {
	all  map[int]Rank
	done chan struct{} // all have answered
}

// NewAsker is for a job of so many ranks.
func NewAsker(ranks int, here func() Rank, send func(ctx context.Context, rank int, question []byte) error,
	lost <-chan struct{}) *Asker {
	return &Asker{ranks: ranks, here: here, send: send, lost: lost, open: map[uint64]*look{}}
}

// message is a question, without At, or its answer.
type message struct {
	Number uint64 `json:"number"`
	At     Rank   `json:"at"`
}

// Doing says what each rank is doing.
func (a *Asker) Doing() []control.RankStatus { return explain(a.ask(), a.ranks) }

// ask returns what the ranks have answered in time.
func (a *Asker) ask() map[int]Rank {
	l := &look{all: map[int]Rank{}, done: make(chan struct{})}
	a.mu.Lock()
	a.last++
	number := a.last
	a.open[number] = l
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), Wait)
	defer cancel()
	question, _ := json.Marshal(message{Number: number})
	go func() {
		for r := 1; r < a.ranks && ctx.Err() == nil; r++ {
			_ = a.send(ctx, r, question) // who does not hear it is silent
		}
	}()
	a.heard(0, message{number, a.here()})
	select {
	case <-l.done:
	case <-ctx.Done():
	case <-a.lost:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.open, number)
	return l.all
}

// Heard takes a rank's answer.
func (a *Asker) Heard(rank int, answer []byte) {
	var m message
	if json.Unmarshal(answer, &m) == nil {
		a.heard(rank, m)
	}
}

func (a *Asker) heard(rank int, m message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.open[m.Number]
	if l == nil {
		return // nobody wants to know any more
	}
	l.all[rank] = m.At
	if len(l.all) == a.ranks {
		close(l.done)
		delete(a.open, m.Number)
	}
}

// Answer is what a rank sends back for a question.
func Answer(question []byte, here func() Rank) ([]byte, error) {
	var m message
	if err := json.Unmarshal(question, &m); err != nil {
		return nil, err
	}
	m.At = here()
	b, err := json.Marshal(m)
	if err == nil && len(b) > math.MaxInt32 {
		err = errors.New("too long for a message")
	}
	return b, err
}
