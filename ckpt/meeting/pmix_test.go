// SPDX-License-Identifier: Apache-2.0

package meeting

import (
	"errors"
	"fmt"
	"sync"
	"testing"
)

// server is a fake launcher that speaks PMIx.
type server struct {
	ranks int

	mu      sync.Mutex
	open    int               // clients
	waiting int               // in the fence
	fence   chan struct{}     // closed when all are there
	seen    map[string][]byte // what a fence has shown
	said    map[string][]byte
}

func newServer(ranks int) *server {
	return &server{ranks: ranks, fence: make(chan struct{}), seen: map[string][]byte{}, said: map[string][]byte{}}
}

// client is one process. It fails the call that fail names.
type client struct {
	*server
	rank int
	fail string
}

func (c *client) call(name string) error {
	if c.fail == name {
		return errors.New(name + " failed")
	}
	return nil
}

func (c *client) Init() (int, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	return c.rank, c.ranks, c.call("Init")
}

func (c *client) Put(key string, value []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	key = fmt.Sprint(c.rank, " ", key)
	if _, twice := c.seen[key]; twice || len(value) == 0 {
		return errors.New("put twice, or nothing")
	}
	c.said[key] = value
	return c.call("Put")
}

func (c *client) Fence() error {
	c.mu.Lock()
	mine := c.fence
	if c.waiting++; c.waiting == c.ranks {
		for k, v := range c.said {
			c.seen[k] = v
		}
		c.waiting, c.fence = 0, make(chan struct{})
		close(mine)
	}
	c.mu.Unlock()
	<-mine
	return c.call("Fence")
}

func (c *client) Get(rank int, key string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.seen[fmt.Sprint(rank, " ", key)]
	if !ok {
		return nil, errors.New("no such key")
	}
	return v, c.call("Get")
}

func (c *client) Finalize() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	return c.call("Finalize")
}

var pmixEnv = env{"PMIX_RANK": "0", "PMIX_NAMESPACE": "n"}

func TestPMIx(t *testing.T) {
	s := newServer(3)
	var all []Meeting
	for r := range 3 {
		m, err := Find(t.Context(), Options{Getenv: pmixEnv.get, PMIx: &client{server: s, rank: r}})
		if err != nil || m.Rank() != r || m.Ranks() != 3 {
			t.Fatalf("rank %d: %v, %v", r, m, err)
		}
		all = append(all, m)
	}
	wantGather(t, all)

	// Too much: the rank comes to the fence all the same, and all find out.
	_, errs := gather(all, func(rank int) []byte { return make([]byte, 1+rank/2*maxGive) })
	for r, err := range errs {
		wantError(t, fmt.Sprint("rank ", r), err, []string{"rank 2 gives 0 bytes, and rank 0 1", "rank 2 gives 0 bytes", "at most"}[r])
	}
	for _, m := range all {
		if _, err := m.Allgather(nil); err == nil {
			t.Error("a meeting went on after a failure")
		}
		if err := errors.Join(m.Close(), m.Close()); err != nil {
			t.Error(err)
		}
	}
	if s.open != 0 {
		t.Errorf("%d are not finalized", s.open)
	}
}

func TestPMIxErrors(t *testing.T) {
	for _, call := range []string{"Init", "Put", "Fence", "Get", "Finalize"} {
		m, err := Find(t.Context(), Options{Getenv: pmixEnv.get, PMIx: &client{server: newServer(1), fail: call}})
		if err == nil {
			_, err = m.Allgather([]byte("x"))
			err = errors.Join(err, m.Close())
		}
		wantError(t, call, err, call+" failed")
	}
	s := newServer(2)
	_, err := Find(t.Context(), Options{Getenv: pmixEnv.get, PMIx: &client{server: s, rank: 2}})
	wantError(t, "rank", err, "says rank 2 of 2")
	_, err = Find(t.Context(), Options{Getenv: pmixEnv.get, PMIx: &client{server: s, rank: 1}, Ranks: 3})
	wantError(t, "size", err, "the job has 3 ranks, and PMIx says 2")
	if s.open != 0 {
		t.Errorf("%d are not finalized", s.open)
	}
}

// Open MPI's launcher inside a job of Hydra's, and Hydra's inside a step of Slurm's with PMIx.
func TestNestedLaunchers(t *testing.T) {
	for want, e := range map[string]env{
		"PMIx": {"OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1", "PMI_FD": "x", "PMI_RANK": "0", "PMI_SIZE": "1"},
		"PMI":  {"PMIX_RANK": "0", "PMIX_NAMESPACE": "slurm", "PMI_FD": "x", "PMI_RANK": "1", "PMI_SIZE": "2", "SLURM_PROCID": "0"},
	} {
		_, err := Find(t.Context(), Options{Getenv: e.get})
		wantError(t, want, err, "which rank this is ("+want+")")
	}
}
