// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/ckpt/where"
	"github.com/libckpt/libckpt/vid"
)

// testRuntime is an MPI of ranks that are goroutines of this test.
type testRuntime struct {
	rank   int
	rounds []chan []byte // one for each pair of ranks
	ranks  int
	holds  string
	left   atomic.Int32
}

func (*testRuntime) Name() string             { return "mpich" }
func (*testRuntime) Version() string          { return "4" }
func (r *testRuntime) Rank() int              { return r.rank }
func (r *testRuntime) Ranks() int             { return r.ranks }
func (*testRuntime) Progress()                {}
func (*testRuntime) StartDeferred()           {}
func (*testRuntime) Finalize() error          { return nil }
func (r *testRuntime) Holds() string          { return r.holds }
func (*testRuntime) Waiting() []where.Waiting { return nil }
func (*testRuntime) Threads() int             { return 1 }

// Inside: nothing waits outside the job.
func (r *testRuntime) Inside() string { return "" }

// Nothing is ever under way between these ranks.
func (*testRuntime) OneSided() bool                                 { return false }
func (*testRuntime) Settle() error                                  { return nil }
func (*testRuntime) Synchronous() bool                              { return false }
func (*testRuntime) Claims() []Claim                                { return nil }
func (*testRuntime) Judge([]Claim)                                  {}
func (*testRuntime) Answered([]Claim)                               {}
func (*testRuntime) Save(func(int) ([]byte, error)) ([]byte, error) { return nil, nil }
func (*testRuntime) Memory() []uint64                               { return nil }

func (*testRuntime) Files() (all, own []files.Named, err error) { return nil, nil, nil }
func (*testRuntime) Load([]byte) error                          { return errors.New("nothing is restored here") }

// Drain has something left for as long as a test wants.
func (r *testRuntime) Drain() (int, error) { return int(r.left.Load()), nil }

// Allgather has each pair of ranks give each other what they have; values wait in order.
func (r *testRuntime) Allgather(mine []byte) ([][]byte, error) {
	for to := range r.ranks {
		r.rounds[r.rank*r.ranks+to] <- mine
	}
	all := make([][]byte, r.ranks)
	for from := range all {
		all[from] = <-r.rounds[from*r.ranks+r.rank]
	}
	return all, nil
}

func (*testRuntime) Rebuild(uint32, uint32, []byte, uint64) (uint64, error) {
	return 0, errors.New("nothing is restored here")
}

// rank is one of the ranks of a job, all in this process: so each image holds the same memory.
type rank struct {
	*Job
	host   *testHost
	rt     *testRuntime
	tables *vid.Tables
	out    struct {
		state State
		err   error
	}
}

// ranks starts a job of n ranks over a signaling network.
func ranks(t *testing.T, n int) []*rank {
	t.Helper()
	all := unopened(t, n)
	errs := make([]error, n)
	together(all, func(r *rank) { errs[r.rt.rank] = r.OpenRuntime(r.rt, r.tables) })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return all
}

// unopened makes the ranks of a job that does not run yet. They are closed when the test ends.
func unopened(t *testing.T, n int) []*rank {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ckpt")
	rounds := make([]chan []byte, n*n)
	for i := range rounds {
		rounds[i] = make(chan []byte, 2)
	}
	meta, err := describe(testOptions(dir), launch.Program{Exe: "/bin/program", Argv: []string{"program"}})
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*rank, n)
	for i := range all {
		h := newTestHost(t)
		tables, err := vid.Open(0, vid.MinWindow)
		if err != nil {
			t.Fatal(err)
		}
		r := &rank{Job: newJob(h, testOptions(dir), meta, zap.NewNop()), host: h, tables: tables,
			rt: &testRuntime{rank: i, rounds: rounds, ranks: n}}
		t.Cleanup(func() {
			// An attempt that has let its program run may still be opening the gates. A program's tables stay.
			r.turn.Lock()
			defer r.turn.Unlock()
			if err := tables.Close(); err != nil {
				t.Error(err)
			}
		})
		all[i] = r
	}
	t.Cleanup(func() {
		together(all, func(r *rank) {
			if r.net == nil {
				return
			}
			broken := r.net.Err() != nil
			if err := r.Close(); err != nil && !broken {
				t.Errorf("rank %d: close: %v", r.rt.rank, err)
			}
			r.owned.release() // the end of the process
		})
	})
	return all
}

// patience is what the ranks may take on a loaded machine. Nothing is decided by it.
const patience = time.Minute

func together(all []*rank, f func(*rank)) {
	var wg sync.WaitGroup
	for _, r := range all {
		wg.Go(func() { f(r) })
	}
	wg.Wait()
}

// try has all ranks call MPIX_Checkpoint and waits until it is over.
func try(t *testing.T, all []*rank) {
	t.Helper()
	together(all, func(r *rank) {
		r.out.state, r.out.err = r.Cooperative()
		r.settle()
	})
	for _, r := range all {
		r.host.wantRunning()
	}
}

func TestRanksCommit(t *testing.T) {
	all := ranks(t, 3)
	for epoch := 1; epoch <= 2; epoch++ {
		try(t, all)
		for i, r := range all {
			if o := last(t, r.Job); r.out.state != StateCheckpoint || r.out.err != nil || o.Epoch != epoch || o.Bytes == 0 {
				t.Errorf("rank %d: state %d, %v; %+v", i, r.out.state, r.out.err, o)
			}
		}
	}
	wantEpochs(t, all[0].store, 1, 2)
	r, err := OpenRestart(all[0].store.Dir()+"@1", true)
	if err != nil {
		t.Fatal(err)
	}
	if r.Ranks() != 3 || !r.MPI() || r.MPIName() != "mpich" {
		t.Errorf("manifest %+v", r.manifest)
	}
	for i := range all {
		f, meta, err := r.open(i)
		if err != nil {
			t.Error(err)
			continue
		}
		if meta.Rank != i || meta.Ranks != 3 || meta.Epoch != 1 {
			t.Errorf("rank %d: %+v", i, meta)
		}
		f.Close()
	}
}

// TestRankHolds: one rank holds the checkpoint back, or cannot be stopped; none is saved.
func TestRankHolds(t *testing.T) {
	all := ranks(t, 2)
	refused := func(words ...string) {
		t.Helper()
		try(t, all)
		for i, r := range all {
			var e *control.RefusedError
			if r.out.state != StateIgnore || !errors.As(r.out.err, &e) || len(e.Reasons) != 1 {
				t.Errorf("rank %d: state %d, %v", i, r.out.state, r.out.err)
				continue
			}
			names(t, e.Reasons[0], words...)
		}
		wantEpochs(t, all[0].store)
	}
	all[1].rt.holds = "2 requests are pending"
	refused("rank 1: 2 requests are pending")
	all[1].rt.holds = ""

	all[1].host.arm(1)
	refused("rank 1: Park", errHost.Error())
	all[1].host.arm(0)
	try(t, all)
	wantEpochs(t, all[0].store, 1)
}

// TestRankFails: one rank, each in turn, cannot be captured.
func TestRankFails(t *testing.T) {
	all := ranks(t, 2)
	for i, bad := range all {
		bad.host.arm(4) // State
		try(t, all)
		bad.host.arm(0)
		for k, r := range all {
			if r.out.state != StateError || r.out.err == nil {
				t.Errorf("rank %d fails, rank %d: state %d, %v", i, k, r.out.state, r.out.err)
				continue
			}
			names(t, r.out.err.Error(), "rank "+string(rune('0'+i)), "State: "+errHost.Error())
		}
		wantEpochs(t, all[0].store)
	}
}

// TestRankCannotWrite: rank 1 sees another directory than rank 0, as when it is not shared.
func TestRankCannotWrite(t *testing.T) {
	all := ranks(t, 2)
	shared := all[1].store
	other, err := store.Create(filepath.Join(t.TempDir(), "other"))
	if err != nil {
		t.Fatal(err)
	}
	all[1].store = other
	try(t, all)
	for i, r := range all {
		o := last(t, r.Job)
		names(t, o.Error, "epoch 1 given up", "rank 1", "no such file")
		if s := (*controlled)(r.Job).Status(); s.Counters != (control.Counters{Failed: 1}) {
			t.Errorf("rank %d: counters %+v", i, s.Counters)
		}
	}
	wantEpochs(t, all[0].store)

	all[1].store = shared
	try(t, all)
	wantEpochs(t, all[0].store, 1)
}

// TestRankLost: a rank goes away while its image is written, or before.
func TestRankLost(t *testing.T) {
	t.Run("mid-write", func(t *testing.T) {
		all := ranks(t, 2)
		try(t, all)
		all[1].host.onThaw = func() { all[1].net.Close() }
		try(t, all)
		o := last(t, all[0].Job)
		names(t, o.Error, "epoch given up", "rank 1")
		if o := last(t, all[1].Job); o.Error == "" {
			t.Errorf("the rank without network: %+v", o)
		}
		wantEpochs(t, all[0].store, 1)
	})
	t.Run("before", func(t *testing.T) {
		all := ranks(t, 2)
		all[1].net.Close()
		try(t, all[:1])
		if all[0].out.state != StateError || all[0].out.err == nil || all[0].host.parks != 0 {
			t.Fatalf("state %d, %v; stopped %d times", all[0].out.state, all[0].out.err, all[0].host.parks)
		}
		names(t, all[0].out.err.Error(), "rank 1")
		wantEpochs(t, all[0].store)
	})
	// The others cannot know whether rank 0 committed; they must not wait for it.
	t.Run("rank 0", func(t *testing.T) {
		all := ranks(t, 2)
		all[0].host.onThaw = func() { all[0].net.Close() }
		try(t, all)
		names(t, last(t, all[1].Job).Error, "epoch given up", "rank 0")
	})
}

// TestEarlySignal: a rank is asked for a checkpoint before rank 0 serves requests, which it does as soon
// as it can.
func TestEarlySignal(t *testing.T) {
	all := unopened(t, 2)
	connected := func(r *rank) {
		if err := r.connect(r.rt, r.tables); err != nil {
			t.Error(err)
		}
	}
	var err error
	if all[0].owned, err = own(all[0].host, all[0].options, "", "program", false, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	together(all, connected)
	if t.Failed() {
		t.FailNow()
	}
	if err := all[1].net.Send(t.Context(), 0, kindTrigger, []byte(after.Continue)); err != nil {
		t.Fatal(err)
	}
	for _, r := range all { // rank 0 first: it asks rank 1 before that is ready
		if err := r.openStore(); err != nil {
			t.Fatal(err)
		}
		if err := r.serve(); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(patience); (*controlled)(all[0].Job).Status().Counters.Committed == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no epoch")
		}
	}
	wantEpochs(t, all[0].store, 1)
}

// TestOneCannotServe: while a rank cannot use the directory, operators are not told of a job that is about to end.
func TestOneCannotServe(t *testing.T) {
	all := unopened(t, 2)
	dir := all[0].options.Dir
	all[1].options.Dir = filepath.Join("/dev/null", "ckpt")
	together(all, func(r *rank) {
		if r.out.err = r.OpenRuntime(r.rt, r.tables); r.rt.rank == 1 {
			r.net.Close() // as the end of its process does
		}
	})
	names(t, all[1].out.err.Error(), "/dev/null")
	if all[0].out.err == nil {
		t.Error("rank 0 goes on alone")
	}
	if _, err := os.Stat(filepath.Join(dir, "job.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("job.json: %v", err)
	}
}

// TestRequest: what an operator asked for is made while the ranks are anywhere.
func TestRequest(t *testing.T) {
	all := ranks(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := ask(all[0].Job, ctx, after.Continue, func(control.Event) {})
	if err != nil || res.Epoch != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	for _, r := range all {
		r.settle()
		r.host.wantRunning()
	}
	wantEpochs(t, all[0].store, 1)
}

// TestFailureSaidOnce: a request fails, before anything is written or after. All ranks know, and one of them
// says it, once.
func TestFailureSaidOnce(t *testing.T) {
	for _, where := range []string{"snapshot", "write"} {
		t.Run(where, func(t *testing.T) {
			core, said := observer.New(zap.WarnLevel)
			all := unopened(t, 3)
			for _, r := range all {
				r.log = zap.New(core)
			}
			errs := make([]error, len(all))
			together(all, func(r *rank) { errs[r.rt.rank] = r.OpenRuntime(r.rt, r.tables) })
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			if where == "write" {
				other, err := store.Create(filepath.Join(t.TempDir(), "other"))
				if err != nil {
					t.Fatal(err)
				}
				all[1].store = other
			} else {
				all[1].host.arm(3) // State
			}
			if _, err := ask(all[0].Job, t.Context(), after.Continue, func(control.Event) {}); err == nil {
				t.Fatal("it does not fail")
			}
			together(all, func(r *rank) { r.settle() })
			if said.Len() != 1 || said.All()[0].Message != "checkpoint failed; the job goes on" {
				t.Errorf("it is said %d times: %+v", said.Len(), said.All())
			}
			if s := (*controlled)(all[0].Job).Status(); s.Counters != (control.Counters{Failed: 1}) {
				t.Errorf("counters %+v", s.Counters)
			}
		})
	}
}

// TestCopyKilled: the frozen copy of a rank is killed, as by the kernel for want of memory. The request ends with
// that reason, the failure is counted once, and the next one is made.
func TestCopyKilled(t *testing.T) {
	all := ranks(t, 2)
	all[1].host.onFreeze = func(pid int) {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
		for !hasEnded(pid) {
			time.Sleep(time.Millisecond)
		}
	}
	memory(t, privateAt, unix.MAP_PRIVATE)[0] = 1 // a page that an image must hold
	_, err := ask(all[0].Job, t.Context(), after.Continue, func(control.Event) {})
	if err == nil {
		t.Fatal("an image was written of nothing")
	}
	names(t, err.Error(), "rank 1", "the frozen copy of the program", "was killed")
	for i, r := range all {
		r.settle()
		r.host.wantRunning()
		if s := (*controlled)(r.Job).Status(); s.Counters != (control.Counters{Failed: 1}) {
			t.Errorf("rank %d: counters %+v", i, s.Counters)
		}
	}
	all[1].host.onFreeze = nil
	if _, err := ask(all[0].Job, t.Context(), after.Continue, func(control.Event) {}); err != nil {
		t.Error(err)
	}
	for _, r := range all {
		r.settle()
	}
}

// TestLearnAlone: rank 0 has committed an epoch and ended before it said so. The others find it in the directory, and know
// it by their own images.
func TestLearnAlone(t *testing.T) {
	all := ranks(t, 2)
	try(t, all)
	m, err := all[0].store.Manifest(1)
	if err != nil {
		t.Fatal(err)
	}
	lost := errors.New("rank 0 is lost")
	for _, c := range []struct {
		name   string
		epoch  int
		digest string
		want   error
	}{
		{"it is there", 1, m.Images[1].Digest, nil},
		{"it is another's", 1, m.Images[0].Digest, lost},
		{"it is not there", 2, m.Images[1].Digest, lost},
	} {
		a := &attempt{j: all[1].Job, epoch: c.epoch, told: make(chan decision, 1), image: imageReport{Digest: c.digest}}
		if err := a.learnAlone(lost); err != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if want := uint64(m.Images[0].Bytes + m.Images[1].Bytes); c.want == nil && a.total.Bytes != want {
			t.Errorf("%s: %d bytes, want %d", c.name, a.total.Bytes, want)
		}
	}
	a := &attempt{j: all[1].Job, epoch: 1, told: make(chan decision, 1), image: imageReport{Digest: m.Images[1].Digest}}
	a.told <- decision{Error: "no epoch"}
	if err := a.learnAlone(lost); err == nil || err.Error() != "no epoch" {
		t.Errorf("rank 0's word: %v", err)
	}
}
