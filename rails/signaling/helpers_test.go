// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait of a test: generous, since it only matters when something hangs.
const patience = 2 * time.Minute

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// endpoints opens size endpoints on loopback and gathers their cards.
func endpoints(t testing.TB, size int, cfg Config) ([]*Endpoint, [][]byte) {
	t.Helper()
	cfg.LoopbackOnly = true
	var eps []*Endpoint
	var cards [][]byte
	for range size {
		ep, err := Listen(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(ep.Close)
		eps = append(eps, ep)
		cards = append(cards, ep.Card())
	}
	return eps, cards
}

// join builds a network of size ranks in this process.
func join(t testing.TB, size int, cfg Config) []*Network {
	t.Helper()
	eps, cards := endpoints(t, size, cfg)
	nets := make([]*Network, size)
	must(t, each(size, func(r int) (err error) {
		nets[r], err = eps[r].Join(testContext(t), r, cards)
		return err
	}))
	t.Cleanup(func() {
		must(t, each(size, func(r int) error { nets[r].Close(); return nil }))
	})
	return nets
}

// each runs f for all ranks at the same time.
func each(size int, f func(rank int) error) []error {
	errs := make([]error, size)
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() {
			if err := f(r); err != nil {
				errs[r] = fmt.Errorf("rank %d: %w", r, err)
			}
		})
	}
	wg.Wait()
	return errs
}

func must(t testing.TB, errs []error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// eventually polls until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
