// SPDX-License-Identifier: Apache-2.0

package meeting

import (
	"context"
	"errors"
	"testing"
)

func TestFind(t *testing.T) {
	m, err := Find(t.Context(), Options{Getenv: env{}.get})
	if err != nil || m.Rank() != 0 || m.Ranks() != 1 {
		t.Fatalf("%v, %v", m, err)
	}
	wantGather(t, []Meeting{m})
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := m.Allgather(nil); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}

	find := func(e env, o Options) error {
		o.Getenv = e.get
		m, err := Find(context.Background(), o)
		if m != nil {
			t.Errorf("%v: found one", e)
		}
		return err
	}
	wantError(t, "too few", find(env{}, Options{Ranks: 2}), "the job has 2 ranks, and no launcher says 1")
	wantError(t, "too many", find(numbered(0, 3, ""), Options{Ranks: 2, Dir: t.TempDir()}), "the job has 2 ranks, and CKPT_RANK and CKPT_SIZE says 3")
	wantError(t, "no directory", find(numbered(0, 3, ""), Options{}), "no directory to meet in")
	wantError(t, "wrong directory", find(numbered(0, 3, ""), Options{Dir: "/nonexistent"}), "/nonexistent")
	wantError(t, "no number", find(env{"CKPT_RANK": "x", "CKPT_SIZE": "2"}, Options{}), `CKPT_RANK is "x"`)
	wantError(t, "only a rank", find(env{"PMI_RANK": "1", "PMI_SIZE": "2"}, Options{}), "PMI_RANK says that a launcher")
	wantError(t, "only a rank", find(env{"OMPI_COMM_WORLD_RANK": "1"}, Options{}), "OMPI_COMM_WORLD_RANK says that a launcher")
	wantError(t, "no library", find(env{"PMIX_RANK": "1"}, Options{}), "no library")
}

func TestRanksText(t *testing.T) {
	for want, ranks := range map[string][]int{
		"rank 3":                          {3},
		"ranks 3 and 5":                   {3, 5},
		"ranks 1, 2, 3, 4, 5, 6, 7 and 8": {1, 2, 3, 4, 5, 6, 7, 8},
		"ranks 1, 2, 3, 4, 5, 6, 7, 8 and 2 more": {1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
	} {
		if got := ranksText(ranks); got != want {
			t.Errorf("%v: %q, want %q", ranks, got, want)
		}
	}
}
