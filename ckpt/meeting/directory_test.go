// SPDX-License-Identifier: Apache-2.0

package meeting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/handshake"
)

type env map[string]string

func (e env) get(name string) string { return e[name] }

// numbered is the environment of a rank that was started by hand.
func numbered(rank, ranks int, job string) env {
	return env{"CKPT_RANK": strconv.Itoa(rank), "CKPT_SIZE": strconv.Itoa(ranks), "CKPT_JOB": job}
}

// soon bounds what a test waits for; no result depends on it.
const soon = 20 * time.Second

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), soon, errors.New("the test took too long"))
	t.Cleanup(cancel)
	return ctx
}

type found struct {
	m   Meeting
	err error
}

// start begins to find a meeting and returns where the result will be.
func start(t *testing.T, dir string, e env, patience time.Duration) <-chan found {
	t.Helper()
	return startWith(t, dir, e, patience, nil)
}

func startWith(t *testing.T, dir string, e env, patience time.Duration, heard listener) <-chan found {
	t.Helper()
	ctx := within(t)
	out := make(chan found, 1)
	go func() {
		m, err := Find(ctx, Options{Getenv: e.get, Dir: dir, Patience: patience, Log: slog.New(heard)})
		if m != nil {
			t.Cleanup(func() { _ = m.Close() })
		}
		out <- found{m, err}
	}()
	return out
}

// listener is a log of which a test awaits certain lines.
type listener map[string]chan struct{}

func (listener) Enabled(context.Context, slog.Level) bool { return true }
func (l listener) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l listener) WithGroup(string) slog.Handler          { return l }
func (l listener) Handle(_ context.Context, r slog.Record) error {
	select {
	case l[r.Message] <- struct{}{}:
	default:
	}
	return nil
}

func (l listener) wait(t *testing.T, line string) {
	t.Helper()
	select {
	case <-l[line]:
	case <-within(t).Done():
		t.Fatalf("never heard: %s", line)
	}
}

// startAll starts ranks from to n-1 of n.
func startAll(t *testing.T, dir string, from, n int, job string) []<-chan found {
	t.Helper()
	var all []<-chan found
	for r := from; r < n; r++ {
		all = append(all, start(t, dir, numbered(r, n, job), soon))
	}
	return all
}

func members(t *testing.T, all []<-chan found) []Meeting {
	t.Helper()
	var out []Meeting
	for i, c := range all {
		f := <-c
		if f.err != nil {
			t.Fatalf("process %d: %v", i, f.err)
		}
		out = append(out, f.m)
	}
	return out
}

func wantError(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v, want an error with %q", what, err, w)
			return
		}
	}
}

// gather calls Allgather on all ranks with what give returns.
func gather(all []Meeting, give func(rank int) []byte) ([][][]byte, []error) {
	out, errs := make([][][]byte, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i, m := range all {
		wg.Go(func() { out[i], errs[i] = m.Allgather(give(m.Rank())) })
	}
	wg.Wait()
	return out, errs
}

// wantGather makes all-gathers of several sizes, several times.
func wantGather(t *testing.T, all []Meeting) {
	t.Helper()
	wantGatherOf(t, all, gatherSizes...)
}

var gatherSizes = []int{0, 1, 64, 25_000}

func wantGatherOf(t *testing.T, all []Meeting, sizes ...int) {
	t.Helper()
	for round, size := range sizes {
		give := func(rank int) []byte { return bytes.Repeat([]byte{byte(rank), byte(round), '\n', '='}, size) }
		got, errs := gather(all, give)
		for i := range all {
			if errs[i] != nil || len(got[i]) != len(all) {
				t.Fatalf("round %d, rank %d: %d parts, %v", round, i, len(got[i]), errs[i])
			}
			for r, p := range got[i] {
				if !bytes.Equal(p, give(r)) {
					t.Fatalf("round %d: rank %d has %d bytes of rank %d, and not those", round, i, len(p), r)
				}
			}
		}
	}
}

// awaitNote waits until a note is there that ok accepts.
func awaitNote(t *testing.T, dir string, ok func(*note) bool) *note {
	t.Helper()
	ctx := within(t)
	for ctx.Err() == nil {
		if n, err := readNote(dir); err == nil && n != nil && ok(n) {
			return n
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("no such note")
	return nil
}

func anyNote(*note) bool { return true }

func noNote(t *testing.T, dir string) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(dir, noteName+"*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRanksMeetInADirectory(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			dir := t.TempDir()
			all := members(t, startAll(t, dir, 0, n, ""))
			for r, m := range all {
				if m.Rank() != r || m.Ranks() != n {
					t.Errorf("rank %d is %d of %d", r, m.Rank(), m.Ranks())
				}
			}
			noNote(t, dir)
			wantGather(t, all)
			for _, m := range all {
				if err := errors.Join(m.Close(), m.Close()); err != nil {
					t.Error(err)
				}
				if _, err := m.Allgather(nil); !errors.Is(err, errClosed) {
					t.Errorf("after Close: %v", err)
				}
			}
		})
	}
}

// The key is for this user alone, and what killed jobs left is swept up.
func TestNoteOnDisk(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, noteName+".123.tmp"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	zero := start(t, dir, numbered(0, 2, ""), soon)
	awaitNote(t, dir, anyNote)
	st, err := os.Stat(filepath.Join(dir, noteName))
	if err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	// Somebody cleans up, and it is made again.
	if err := os.Remove(filepath.Join(dir, noteName)); err != nil {
		t.Fatal(err)
	}
	members(t, []<-chan found{zero, start(t, dir, numbered(1, 2, ""), soon)})
	noNote(t, dir)
}

// A stale note leads to whoever has the port now, or to nobody.
func TestStaleNote(t *testing.T) {
	stranger := func(serve func(net.Conn)) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go serve(c)
			}
		}()
		return ln.Addr().String()
	}
	stale := func(address string) []byte {
		return fmt.Appendf(nil, `{"format":1,"host":"gone","pid":7,"addresses":[%q],"key":"%s"}`, address, newKey())
	}
	other, err := handshake.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"nobody":    stale("127.0.0.1:1"),
		"closes":    stale(stranger(func(c net.Conn) { _ = c.Close() })),
		"talks":     stale(stranger(func(c net.Conn) { _, _ = c.Write(bytes.Repeat([]byte("220 ready\r\n"), 100)) })),
		"elsewhere": stale("[::1]:1"),
		// A job of ours that has the port now, with keys of its own.
		"another job": stale(stranger(func(c net.Conn) {
			_, _, _ = handshake.Server(context.Background(), c, other, func(handshake.Hello) (handshake.PublicKey, error) { return other.Public(), nil })
		})),
		"garbage": []byte("]["),
		"empty":   {},
		"future":  []byte(`{"format":9}`),
		"no key":  []byte(`{"format":1,"addresses":["127.0.0.1:1"]}`),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, noteName)
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			alone := <-start(t, dir, numbered(1, 2, ""), time.Millisecond)
			wantError(t, "without rank 0", alone.err, "rank 0 has not come within 0.001 s", noteName)

			one := start(t, dir, numbered(1, 2, ""), soon)
			wantGather(t, members(t, []<-chan found{start(t, dir, numbered(0, 2, ""), soon), one}))
			noNote(t, dir)
		})
	}
}

func TestRankDoesNotCome(t *testing.T) {
	dir := t.TempDir()
	one := start(t, dir, numbered(1, 4, ""), soon)
	zero := <-start(t, dir, numbered(0, 4, ""), 2*time.Second) // time for rank 1 to come
	wantError(t, "rank 0", zero.err, "ranks 2 and 3 have not come within 2 s")
	wantError(t, "rank 1", (<-one).err, "rank 0: ranks 2 and 3 have not come within 2 s")
	noNote(t, dir)

	zero = <-start(t, dir, numbered(0, 2, ""), time.Millisecond)
	wantError(t, "rank 0", zero.err, "rank 1 has not come within 0.001 s")
	wantError(t, "rank 1", (<-start(t, dir, numbered(1, 2, ""), time.Millisecond)).err, "rank 0 has not come within 0.001 s: ", ".meet is not there")
}

func TestRankTwice(t *testing.T) {
	dir := t.TempDir()
	zero := start(t, dir, numbered(0, 3, ""), soon)
	first := start(t, dir, numbered(1, 3, ""), soon)
	second := start(t, dir, numbered(1, 3, ""), soon)
	for what, c := range map[string]<-chan found{"rank 0": zero, "the first": first, "the second": second} {
		wantError(t, what, (<-c).err, "rank 1 came twice: process ", "CKPT_RANK", "two jobs")
	}
	noNote(t, dir)
}

func TestRanksDisagreeOnTheirNumber(t *testing.T) {
	dir := t.TempDir()
	heard := listener{"a rank has come": make(chan struct{}, 1)}
	zero := startWith(t, dir, numbered(0, 3, ""), soon, heard)
	one := start(t, dir, numbered(1, 3, ""), soon)
	heard.wait(t, "a rank has come")
	for what, c := range map[string]<-chan found{"rank 2": start(t, dir, numbered(2, 4, ""), soon), "rank 0": zero, "rank 1": one} {
		wantError(t, what, (<-c).err, "rank 2 (process ", "of 4 ranks (CKPT_RANK and CKPT_SIZE)", "of 3 (CKPT_RANK")
	}
}

// The first who meets goes on.
func TestSecondRankZero(t *testing.T) {
	for name, jobs := range map[string][2]string{"without names": {"", ""}, "other names": {"a", "b"}, "one name": {"a", "a"}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			zero := start(t, dir, numbered(0, 2, jobs[0]), soon)
			awaitNote(t, dir, anyNote)
			second := <-start(t, dir, numbered(0, 2, jobs[1]), soon)
			wantError(t, "the second", second.err, "another job meet in "+dir, "one job at a time")
			wantGather(t, members(t, []<-chan found{zero, start(t, dir, numbered(1, 2, jobs[0]), soon)}))
		})
	}
}

// Two that wrote their notes at the same moment: the one whose note was replaced ends, with its ranks.
func TestNoteIsReplaced(t *testing.T) {
	dir, aside := t.TempDir(), t.TempDir()
	heard := listener{"a rank has come": make(chan struct{}, 1)}
	zero, one := startWith(t, dir, numbered(0, 3, ""), soon, heard), start(t, dir, numbered(1, 3, ""), soon)
	heard.wait(t, "a rank has come")
	other := start(t, aside, numbered(0, 2, ""), soon)
	n := awaitNote(t, aside, anyNote)
	if err := os.Rename(filepath.Join(aside, noteName), filepath.Join(dir, noteName)); err != nil {
		t.Fatal(err)
	}
	wantError(t, "rank 0", (<-zero).err, "another job meet in "+dir)
	wantError(t, "rank 1", (<-one).err, "rank 0: the ranks of another job meet in "+dir)
	if there, err := readNote(dir); err != nil || there == nil || there.Key != n.Key {
		t.Errorf("the other's note is gone: %v", err)
	}
	members(t, []<-chan found{other, start(t, dir, numbered(1, 2, ""), soon)})
}

// Two jobs with names use one directory one after the other, though their ranks come in any order.
func TestNamedJobsDoNotMix(t *testing.T) {
	dir := t.TempDir()
	early := startAll(t, dir, 1, 3, "b")
	a := members(t, startAll(t, dir, 0, 3, "a"))
	b := members(t, append(early, start(t, dir, numbered(0, 3, "b"), soon)))
	wantGather(t, a)
	wantGather(t, b)
}

// A rank that left before all had come may come again.
func TestRankComesAgain(t *testing.T) {
	dir := t.TempDir()
	heard := listener{"a rank left before all had come": make(chan struct{}, 1)}
	zero := startWith(t, dir, numbered(0, 3, ""), soon, heard)
	conn, err := reach(t.Context(), awaitNote(t, dir, anyNote), 1)
	if err != nil {
		t.Fatal(err)
	}
	f, err := (&hello{Rank: 1, Ranks: 3, Host: "h", PID: 9}).frame()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.send(conn); err != nil {
		t.Fatal(err)
	}
	_ = conn.CloseWrite()
	heard.wait(t, "a rank left before all had come")
	wantGather(t, members(t, append(startAll(t, dir, 1, 3, ""), zero)))
}

func TestMissingRankHadCome(t *testing.T) {
	h := &host{o: Options{Patience: time.Second}, came: make([]*visitor, 3), left: map[int]string{2: "process 9 on h"}}
	wantError(t, "rank 0", h.absent(), "ranks 1 and 2 have not come within 1 s; process 9 on h, rank 2, came and left again")
}

func TestAllgatherErrors(t *testing.T) {
	meet := func(t *testing.T) []Meeting { return members(t, startAll(t, t.TempDir(), 0, 3, "")) }
	same := func(int) []byte { return []byte("x") }
	t.Run("lengths", func(t *testing.T) {
		all := meet(t)
		_, errs := gather(all, func(rank int) []byte { return make([]byte, 5+rank/2) })
		for r, err := range errs {
			wantError(t, fmt.Sprint("rank ", r), err, "rank 2 gives 6 bytes, and rank 0 5")
		}
		_, errs = gather(all, same)
		for r, err := range errs {
			wantError(t, fmt.Sprint("rank ", r, " again"), err, "rank 2 gives 6 bytes")
		}
	})
	t.Run("a rank leaves", func(t *testing.T) {
		all := meet(t)
		_ = all[2].Close()
		_, errs := gather(all[:2], same)
		for r, err := range errs {
			wantError(t, fmt.Sprint("rank ", r), err, "rank 2 (process ", "has left")
		}
	})
	t.Run("rank 0 leaves", func(t *testing.T) {
		all := meet(t)
		_ = all[0].Close()
		_, errs := gather(all[1:], same)
		for r, err := range errs {
			wantError(t, fmt.Sprint("rank ", r+1), err, "rank 0 has left")
		}
	})
	t.Run("too much", func(t *testing.T) {
		all := meet(t)
		_, err := all[1].Allgather(make([]byte, maxGive+1))
		wantError(t, "rank 1", err, "at most")
		_, err = all[0].Allgather(make([]byte, maxGive+1))
		wantError(t, "rank 0", err, "at most")
		_, err = all[2].Allgather(nil)
		wantError(t, "rank 2", err, "at most")
	})
}

func TestContextEndsAllgather(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(within(t))
	var all [2]found
	var wg sync.WaitGroup
	for r := range all {
		wg.Go(func() { all[r].m, all[r].err = Find(ctx, Options{Getenv: numbered(r, 2, "").get, Dir: dir}) })
	}
	wg.Wait()
	if err := errors.Join(all[0].err, all[1].err); err != nil {
		t.Fatal(err)
	}
	why := errors.New("enough")
	errs := make(chan error, 1)
	go func() { _, err := all[1].m.Allgather(nil); errs <- err }()
	cancel(why)
	if err := <-errs; !errors.Is(err, why) {
		t.Errorf("rank 1: %v", err)
	}
	if _, err := all[0].m.Allgather(nil); !errors.Is(err, why) && !strings.Contains(err.Error(), "has left") {
		t.Errorf("rank 0: %v", err)
	}
	_ = all[0].m.Close()
	_ = all[1].m.Close()

	ctx, cancel = context.WithCancelCause(within(t))
	cancel(why)
	for r := range 2 {
		if _, err := Find(ctx, Options{Getenv: numbered(r, 2, "").get, Dir: dir}); !errors.Is(err, why) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
