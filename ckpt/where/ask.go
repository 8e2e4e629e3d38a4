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

// Places says which ranks live in which process: one in each, but for runtimes whose ranks are tasks.
type Places interface {
	Ranks() int
	Process(rank int) int
	Of(process int) []int32
	Several() bool
}

// Asker asks all processes. It lives on rank 0; several may ask at the same time.
type Asker struct {
	places    Places
	processes int
	here      func() []Rank                                                 // what process 0 itself would answer: of each rank
	send      func(ctx context.Context, process int, question []byte) error // to another process
	lost      <-chan struct{}                                               // closed when no answer can come any more

	mu   sync.Mutex
	last uint64
	open map[uint64]*look
}

// look is one question to all processes.
type look struct {
	all  map[int][]Rank // by process
	done chan struct{}  // all have answered
}

// NewAsker is for a job of so many processes.
func NewAsker(processes int, places Places, here func() []Rank, send func(ctx context.Context, process int, question []byte) error,
	lost <-chan struct{}) *Asker {
	return &Asker{places: places, processes: processes, here: here, send: send, lost: lost, open: map[uint64]*look{}}
}

// message is a question, without At, or its answer.
type message struct {
	Number uint64 `json:"number"`
	At     Rank   `json:"at"`
	More   []Rank `json:"more,omitempty"` // the other ranks of a process that has several
}

// Doing says what each rank is doing.
func (a *Asker) Doing() []control.RankStatus { return explain(a.byRank(a.ask()), a.places.Ranks()) }

// byRank sorts what processes have said of their ranks.
func (a *Asker) byRank(said map[int][]Rank) map[int]Rank {
	all := map[int]Rank{}
	for process, list := range said {
		ranks := a.places.Of(process)
		for i := range min(len(list), len(ranks)) {
			all[int(ranks[i])] = list[i]
		}
	}
	return all
}

// Processes says what each process is doing, from what its ranks are.
func (a *Asker) Processes() []control.RankStatus {
	ranks := a.Doing()
	if !a.places.Several() {
		return ranks
	}
	return fold(ranks, a.processes, a.places)
}

// ask returns what the processes have answered in time.
func (a *Asker) ask() map[int][]Rank {
	l := &look{all: map[int][]Rank{}, done: make(chan struct{})}
	a.mu.Lock()
	a.last++
	number := a.last
	a.open[number] = l
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), Wait)
	defer cancel()
	question, _ := json.Marshal(message{Number: number})
	go func() {
		for r := 1; r < a.processes && ctx.Err() == nil; r++ {
			_ = a.send(ctx, r, question) // who does not hear it is silent
		}
	}()
	a.heard(0, answerOf(number, a.here()))
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

func answerOf(number uint64, ranks []Rank) message {
	return message{Number: number, At: ranks[0], More: ranks[1:]}
}

// Heard takes a process's answer.
func (a *Asker) Heard(process int, answer []byte) {
	var m message
	if json.Unmarshal(answer, &m) == nil {
		a.heard(process, m)
	}
}

func (a *Asker) heard(process int, m message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.open[m.Number]
	if l == nil {
		return // nobody wants to know any more
	}
	l.all[process] = append([]Rank{m.At}, m.More...)
	if len(l.all) == a.processes {
		close(l.done)
		delete(a.open, m.Number)
	}
}

// Answer is what a process sends back for a question.
func Answer(question []byte, here func() []Rank) ([]byte, error) {
	var m message
	if err := json.Unmarshal(question, &m); err != nil {
		return nil, err
	}
	b, err := json.Marshal(answerOf(m.Number, here()))
	if err == nil && len(b) > math.MaxInt32 {
		err = errors.New("too long for a message")
	}
	return b, err
}
