// SPDX-License-Identifier: Apache-2.0

package regions

import (
	"context"
	"errors"
	"os"

	"github.com/libckpt/libckpt/ckpt/meeting"
)

// Comm is how the ranks of a job reach each other before there is a network. Its methods are called on the goroutine
// that is inside Open.
type Comm interface {
	Rank() int
	Size() int
	// Allgather returns what each rank gave, by rank. Collective; each gives the same number of bytes.
	Allgather(mine []byte) ([][]byte, error)
}

type alone struct{}

func (alone) Rank() int                               { return 0 }
func (alone) Size() int                               { return 1 }
func (alone) Allgather(mine []byte) ([][]byte, error) { return [][]byte{mine}, nil }

// Alone is the Comm of a job of one rank.
func Alone() Comm { return alone{} }

// Launched are the processes that a launcher has started: mpiexec of MPICH, srun (PMI), or with CKPT_RANK and CKPT_SIZE
// in the environment of each, in which case they meet in dir; without any of these this process alone. leave is called
// when the program ends as it should.
func Launched(ctx context.Context, dir string) (c Comm, leave func() error, err error) {
	if dir == "" {
		return nil, nil, errors.New("the ranks need a directory to meet in")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	m, err := meeting.Find(ctx, meeting.Options{Getenv: os.Getenv, Dir: dir})
	if err != nil {
		return nil, nil, err
	}
	return met{m}, m.Close, nil
}

type met struct{ meeting.Meeting }

func (m met) Size() int { return m.Ranks() }

// Group is n ranks that are goroutines of this process: one Comm each.
func Group(n int) []Comm {
	g := &group{n: n, give: make(chan given), take: make([]chan [][]byte, n)}
	comms := make([]Comm, n)
	for i := range comms {
		g.take[i] = make(chan [][]byte, 1)
		comms[i] = member{g, i}
	}
	return comms
}

// group gathers without a goroutine of its own: rank 0 collects what the others give.
type group struct {
	n    int
	give chan given
	take []chan [][]byte
}

type given struct {
	rank int
	b    []byte
}

type member struct {
	g    *group
	rank int
}

func (m member) Rank() int { return m.rank }
func (m member) Size() int { return m.g.n }

func (m member) Allgather(mine []byte) ([][]byte, error) {
	if m.rank != 0 {
		m.g.give <- given{m.rank, mine}
		return <-m.g.take[m.rank], nil
	}
	all := make([][]byte, m.g.n)
	all[0] = mine
	for range m.g.n - 1 {
		one := <-m.g.give
		all[one.rank] = one.b
	}
	for rank := 1; rank < m.g.n; rank++ {
		m.g.take[rank] <- all
	}
	return all, nil
}
