// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/internal/e2e"
	"github.com/libckpt/libckpt/internal/needmpi"
)

// shuffle is our random program: ranks that send, write, read and add by a plan, and check what arrives against it.
type shuffle struct {
	ranks, seed, steps int
	pace, lazy         int // us a round; one of so many receives is posted again at once
}

// newShuffle prepares the job.
func newShuffle(t *testing.T, s shuffle) *e2e.Whole {
	t.Helper()
	dir := t.TempDir()
	meet := filepath.Join(dir, "shuffle")
	must(t, os.Mkdir(meet, 0o755))
	w, err := e2e.NewWhole(built, dir, filepath.Join(built.Bin, "shuffle"), meet, strconv.Itoa(s.seed), strconv.Itoa(s.steps), strconv.Itoa(s.pace), strconv.Itoa(s.lazy))
	must(t, err)
	w.Ranks, w.Together = s.ranks, true
	t.Cleanup(w.Mark.KillAll)
	return w
}

// natively runs it by itself.
func (s shuffle) natively(t *testing.T) *e2e.Whole {
	t.Helper()
	s.pace = 0
	w := newShuffle(t, s)
	must(t, w.Natively())
	must(t, w.MustEnd(patience))
	return w
}

// right tells that each rank has found everything right.
func (s shuffle) right(t *testing.T, w *e2e.Whole) {
	t.Helper()
	said, err := w.Printed("out")
	must(t, err)
	if n := strings.Count(said, ": right\n"); n != s.ranks {
		t.Errorf("%d of %d ranks say that all was right: %s%s", n, s.ranks, said, w.Said())
	}
}

var shuffles = []shuffle{
	{ranks: 1, seed: 3, steps: steps(2000)},
	{ranks: 2, seed: 4, steps: steps(2000)},
	{ranks: 4, seed: 5, steps: steps(2000)},
	{ranks: 4, seed: 6, steps: steps(2000), lazy: 6}, // often without a receive
}

func init() {
	if onRxe {
		shuffles = []shuffle{shuffles[1], shuffles[3]}
	}
}

func (s shuffle) String() string {
	return fmt.Sprintf("ranks=%d,seed=%d,lazy=%d", s.ranks, s.seed, s.lazy)
}

func TestShuffleNatively(t *testing.T) {
	needBed(t)
	for _, s := range shuffles {
		t.Run(s.String(), func(t *testing.T) { s.right(t, s.natively(t)) })
	}
}

// What is done twice by one rank is seen by another, or by itself.
func TestShuffleSees(t *testing.T) {
	needBed(t)
	for name, op := range map[string]int{"send": 0, "write with a receive": 3, "add": 5, "swap": 6, "unreliable send": 7} {
		t.Run(name, func(t *testing.T) {
			w := newShuffle(t, shuffle{ranks: 2, seed: 4, steps: 500})
			w.RankEnv = map[int][]string{0: {fmt.Sprint("SHUFFLE_TWICE=", op)}}
			must(t, w.Natively())
			// The other rank may wait for ever for what the one that gave up would have sent.
			if !e2e.Poll(patience, nil, func() bool { return strings.Contains(w.Said(), "shuffle: rank ") }) {
				t.Errorf("nobody says what was wrong: %s", w.Said())
			}
			w.Mark.KillAll()
		})
	}
}

// overTCP is the environment in which the library for machines without InfiniBand is a program's libibverbs. The
// machine's own would find no device there.
func overTCP() []string {
	return []string{"LD_PRELOAD=" + filepath.Join(built.Root, "build/lib/ckpt/back/libckptverbs-tcp.so"), "SYSFS_PATH=/nowhere", "IBV_DRIVERS="}
}

func TestShuffleOverTCP(t *testing.T) {
	needBed(t)
	for _, s := range shuffles {
		t.Run(s.String(), func(t *testing.T) {
			needmpi.Time(t)
			w := newShuffle(t, s)
			w.Env = overTCP()
			must(t, w.Natively())
			must(t, w.MustEnd(patience))
			s.right(t, w)
		})
	}
}
