// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

var sizes = []int{1, 2, 3, 4, 7, 16, 64}

func TestEveryCollectiveOnEverySize(t *testing.T) {
	for _, size := range sizes {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			nets := join(t, size, Config{})
			ctx := testContext(t)
			root := size / 2
			var want [][]byte
			for r := range size {
				want = append(want, []byte(fmt.Sprint("rank ", r)))
			}
			must(t, each(size, func(r int) error {
				n := nets[r]
				for range 2 { // the same tags again
					if err := n.Barrier(ctx, 1); err != nil {
						return err
					}
					all, err := n.Allgather(ctx, 2, want[r])
					if err != nil {
						return err
					}
					if d := cmp.Diff(want, all); d != "" {
						return fmt.Errorf("allgather: %s", d)
					}
					b, err := n.Broadcast(ctx, 3, root, want[r])
					if err != nil {
						return err
					}
					if d := cmp.Diff(string(want[root]), string(b)); d != "" {
						return fmt.Errorf("broadcast: %s", d)
					}
					all, err = n.Gather(ctx, 4, root, want[r])
					if err != nil {
						return err
					}
					if r == root {
						if d := cmp.Diff(want, all); d != "" {
							return fmt.Errorf("gather: %s", d)
						}
					} else if all != nil {
						return fmt.Errorf("gather returns %q on a rank that is not root", all)
					}
					v, err := n.AllreduceUint64(ctx, 5, []uint64{uint64(r), uint64(size - r)}, Max)
					if err != nil {
						return err
					}
					if d := cmp.Diff([]uint64{uint64(size - 1), uint64(size)}, v); d != "" {
						return fmt.Errorf("allreduce: %s", d)
					}
					b, err = n.Reduce(ctx, 6, root, []byte{byte(r)}, concat)
					if err != nil {
						return err
					}
					if r == root {
						for i := range size {
							if int(b[i]) != i {
								return fmt.Errorf("reduce combines out of order: %v", b)
							}
						}
					}
				}
				return nil
			}))
			must(t, each(size, func(r int) error { return nets[r].Shutdown(ctx) }))
		})
	}
}

func TestExchange(t *testing.T) {
	const size = 9
	nets := join(t, size, Config{})
	ctx := testContext(t)
	must(t, each(size, func(r int) error {
		out, want := map[int][]byte{}, map[int][]byte{}
		for to := range size {
			if (r+to)%3 == 0 { // symmetric, so that want is as easy; includes some ranks themselves
				out[to] = []byte(fmt.Sprint(r, " to ", to))
				want[to] = []byte(fmt.Sprint(to, " to ", r))
			}
		}
		in, err := nets[r].Exchange(ctx, 1, out)
		if err != nil {
			return err
		}
		if d := cmp.Diff(want, in); d != "" {
			return errors.New(d)
		}
		return nil
	}))
}

// All ranks send to all others, in two kinds, messages of all sizes; they arrive once and in order
// although routes change under way as shortcuts come up.
func TestMessagesArriveOnceAndInOrder(t *testing.T) {
	const size, messages = 8, 40
	nets := join(t, size, Config{})
	ctx := testContext(t)
	kinds := []uint16{1, 2}
	lengths := []int{0, 1, chunk - 1, chunk, chunk + 1, 3*chunk + 5, 5}
	message := func(from, to int, kind uint16, i int) []byte {
		b := make([]byte, lengths[i%len(lengths)])
		rand.NewChaCha8([32]byte{byte(from), byte(to), byte(kind), byte(i)}).Read(b)
		return b
	}
	must(t, each(size, func(r int) error {
		var wg sync.WaitGroup
		errs := make(chan error, 3*size)
		for _, kind := range kinds {
			wg.Go(func() {
				next := make([]int, size)
				for range (size - 1) * messages {
					from, b, err := nets[r].Recv(ctx, kind)
					if err != nil {
						errs <- err
						return
					}
					if !bytes.Equal(b, message(from, r, kind, next[from])) {
						errs <- fmt.Errorf("message %d of rank %d, kind %d, is not what was sent", next[from], from, kind)
						return
					}
					next[from]++
				}
			})
			for to := range size {
				if to == r {
					continue
				}
				wg.Go(func() {
					for i := range messages {
						if err := nets[r].Send(ctx, to, kind, message(r, to, kind, i)); err != nil {
							errs <- err
							return
						}
					}
				})
			}
		}
		wg.Wait()
		close(errs)
		return <-errs
	}))
}

func TestLargeMessageOverOthers(t *testing.T) {
	nets := join(t, 6, Config{})
	ctx := testContext(t)
	want := make([]byte, 10<<20)
	rand.NewChaCha8([32]byte{}).Read(want)
	go func() { _ = nets[0].Send(ctx, 3, 1, want) }()
	from, got, err := nets[3].Recv(ctx, 1)
	if err != nil || from != 0 || !bytes.Equal(got, want) {
		t.Fatalf("got %d bytes from rank %d, %v; want %d from 0", len(got), from, err, len(want))
	}
}

// Traffic between ranks that are not neighbours makes a link between them.
func TestShortcutIsMadeWhereTrafficGoes(t *testing.T) {
	nets := join(t, 8, Config{})
	ctx := testContext(t)
	linked := func(a, b int) bool {
		nets[a].mu.Lock()
		defer nets[a].mu.Unlock()
		return nets[a].links[b] != nil
	}
	for _, pair := range [][2]int{{1, 5}, {6, 2}} {
		if linked(pair[0], pair[1]) {
			t.Fatalf("ranks %v are linked from the start", pair)
		}
		for range shortcutAt {
			if err := nets[pair[0]].Send(ctx, pair[1], 1, nil); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, fmt.Sprint("link between ", pair), func() bool { return linked(pair[0], pair[1]) && linked(pair[1], pair[0]) })
	}
}

func TestSendWaitsForSlowReceiver(t *testing.T) {
	nets := join(t, 3, Config{})
	ctx, cancel := context.WithCancel(testContext(t))
	sent := make(chan error)
	go func() {
		for range window {
			sent <- nets[0].Send(ctx, 1, 7, []byte("x"))
		}
		sent <- nets[0].Send(ctx, 1, 7, []byte("one more than the window"))
	}()
	for range window {
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-sent; !errors.Is(err, context.Canceled) {
		t.Fatalf("Send beyond the window returns %v, want that it waits until its context ends", err)
	}
	for range window {
		if _, _, err := nets[1].Recv(testContext(t), 7); err != nil {
			t.Fatal(err)
		}
	}
	if err := nets[0].Send(testContext(t), 1, 7, []byte("room again")); err != nil {
		t.Fatal(err)
	}
	if _, b, err := nets[1].Recv(testContext(t), 7); err != nil || string(b) != "room again" {
		t.Fatalf("got %q, %v", b, err)
	}
}

// A message given up halfway leaves no trace.
func TestSendGivenUpHalfway(t *testing.T) {
	nets := join(t, 2, Config{})
	ctx, cancel := context.WithCancel(testContext(t))
	for range window - 2 {
		if err := nets[0].Send(ctx, 1, 7, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error)
	go func() { done <- nets[0].Send(ctx, 1, 7, make([]byte, 10*chunk)) }()
	s := nets[0].outStreamOf(streamID{1, 7})
	eventually(t, "two pieces are sent", func() bool {
		nets[0].mu.Lock()
		defer nets[0].mu.Unlock()
		return s.next == window
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	go func() { _ = nets[0].Send(testContext(t), 1, 7, []byte("next")) }()
	for i := range window - 1 {
		_, b, err := nets[1].Recv(testContext(t), 7)
		if err != nil {
			t.Fatal(err)
		}
		want := "x"
		if i == window-2 {
			want = "next"
		}
		if string(b) != want {
			t.Fatalf("message %d is %d bytes %.10q, want %q", i, len(b), b, want)
		}
	}
}

func TestHandle(t *testing.T) {
	nets := join(t, 4, Config{})
	ctx := testContext(t)
	for _, n := range nets { // every rank answers, from inside its handler
		n.Handle(1, func(from int, b []byte) {
			if err := n.Send(ctx, from, 2, append(b, byte(n.Rank()))); err != nil {
				t.Error(err)
			}
		})
	}
	must(t, each(4, func(r int) error {
		for to := range 4 {
			if err := nets[r].Send(ctx, to, 1, []byte{byte(r)}); err != nil {
				return err
			}
		}
		var got []int
		for range 4 {
			from, b, err := nets[r].Recv(ctx, 2)
			if err != nil {
				return err
			}
			if d := cmp.Diff([]byte{byte(r), byte(from)}, b); d != "" {
				return errors.New(d)
			}
			got = append(got, from)
		}
		slices.Sort(got)
		if d := cmp.Diff([]int{0, 1, 2, 3}, got); d != "" {
			return errors.New(d)
		}
		return nil
	}))
}

func TestBadArguments(t *testing.T) {
	n := join(t, 1, Config{MaxMessage: 10})[0]
	ctx := testContext(t)
	_, rootErr := n.Broadcast(ctx, 1, 1, nil)
	_, exchangeErr := n.Exchange(ctx, 1, map[int][]byte{7: nil})
	for what, err := range map[string]error{
		"send to no rank":       n.Send(ctx, 1, 1, nil),
		"send a reserved kind":  n.Send(ctx, 0, FirstReservedKind, nil),
		"send too much":         n.Send(ctx, 0, 1, make([]byte, 11)),
		"broadcast from nobody": rootErr,
		"exchange with nobody":  exchangeErr,
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// On a busy machine the time may be over before the others have called: then there is more of it.
func TestCollectiveNamesWhoIsMissing(t *testing.T) {
	for timeout := 300 * time.Millisecond; ; timeout *= 8 {
		wrong := barrierWithoutFive(t, timeout)
		if wrong == nil {
			return
		}
		if timeout > patience/4 {
			t.Fatalf("with %v: %v", timeout, wrong)
		}
	}
}

// barrierWithoutFive has all of eight ranks but the sixth call a barrier, and says which of them does not
// name who is late.
func barrierWithoutFive(t *testing.T, timeout time.Duration) error {
	t.Helper()
	nets := join(t, 8, Config{})
	ctx, cancel := context.WithTimeout(testContext(t), timeout)
	defer cancel()
	errs := each(8, func(r int) error {
		if r == 5 {
			return nil // never calls
		}
		return nets[r].Barrier(ctx, 1)
	})
	var w *WaitError
	if !errors.As(errs[4], &w) || w.Rank != 5 || w.Last != 5 || !errors.Is(w, context.DeadlineExceeded) {
		return fmt.Errorf("rank 4 says %w, want that rank 5 is late", errs[4])
	}
	if !errors.As(errs[0], &w) || w.Rank != 4 || w.Last != 7 {
		return fmt.Errorf("rank 0 says %w, want that one of ranks 4 to 7 is late", errs[0])
	}
	// The latecomer's own call ends too, and the tag works again.
	if err := nets[5].Barrier(ctx, 1); err == nil {
		t.Error("the late rank's barrier succeeds")
	}
	must(t, each(8, func(r int) error { return nets[r].Barrier(testContext(t), 1) }))
	return nil
}

func TestCollectivesThatDoNotMatch(t *testing.T) {
	nets := join(t, 2, Config{})
	ctx, cancel := context.WithCancel(testContext(t))
	errs := each(2, func(r int) error {
		if r == 0 {
			defer cancel() // rank 1 waits for an answer that does not come
			return nets[r].Barrier(ctx, 1)
		}
		_, err := nets[r].Allgather(ctx, 1, nil)
		return err
	})
	if want := "rank 0: barrier: rank 1 calls allgather with tag 0x1, this rank calls barrier"; errs[0] == nil || errs[0].Error() != want {
		t.Errorf("got %v, want %s", errs[0], want)
	}
}

func TestSocketsAreCloseOnExec(t *testing.T) {
	join(t, 3, Config{})
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	sockets := 0
	for _, e := range fds {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK || fd <= 2 {
			continue
		}
		if _, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil {
			continue
		}
		sockets++
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("socket %d survives exec", fd)
		}
	}
	if want := 3 + 6; sockets < want {
		t.Errorf("looked at %d sockets, want at least %d", sockets, want)
	}
}
