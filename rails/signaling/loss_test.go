// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// crash ends a rank of this process as a kill would: its sockets close, and it says nothing.
func crash(n *Network) {
	n.mu.Lock()
	n.closed = true
	for _, l := range n.links {
		if l.wire != nil {
			_ = l.wire.conn.Close()
		}
	}
	n.mu.Unlock()
	n.guard.Close()
}

// Whatever the others wait in, all of them learn who is lost.
func TestLossIsToldToAll(t *testing.T) {
	const size, victim = 16, 5
	waits := map[string]func(context.Context, *Network) error{
		"barrier":  func(ctx context.Context, n *Network) error { return n.Barrier(ctx, 1) },
		"recv":     func(ctx context.Context, n *Network) error { _, _, err := n.Recv(ctx, 1); return err },
		"shutdown": func(ctx context.Context, n *Network) error { return n.Shutdown(ctx) },
		"exchange": func(ctx context.Context, n *Network) error { _, err := n.Exchange(ctx, 1, nil); return err },
		"send": func(ctx context.Context, n *Network) error {
			for {
				if err := n.Send(ctx, victim, 1, make([]byte, chunk)); err != nil {
					return err
				}
			}
		},
	}
	for name, wait := range waits {
		t.Run(name, func(t *testing.T) {
			nets := join(t, size, Config{})
			told := make(chan error, size)
			for r, n := range nets {
				if r != victim {
					n.OnLost(func(rank int, err error) {
						if rank != victim {
							err = fmt.Errorf("rank %d is told that rank %d is lost: %w", r, rank, err)
							told <- err
							return
						}
						told <- nil
					})
				}
			}
			errs := make(chan []error)
			go func() {
				errs <- each(size, func(r int) error {
					if r == victim {
						return nil
					}
					return wait(testContext(t), nets[r])
				})
			}()
			crash(nets[victim])
			for r, err := range <-errs {
				var lost *LostError
				if r != victim && (!errors.As(err, &lost) || lost.Rank != victim) {
					t.Errorf("rank %d got %v, want that rank %d is lost", r, err, victim)
				}
			}
			for range size - 1 {
				if err := <-told; err != nil {
					t.Error(err)
				}
			}
			late := make(chan int, 1) // who asks after the fact is told too
			nets[0].OnLost(func(rank int, _ error) { late <- rank; nets[0].Close() })
			if rank := <-late; rank != victim {
				t.Errorf("late: rank %d", rank)
			}
		})
	}
}

// Neighbours lost together cut the ring; both pieces notice.
func TestLossOfSeveral(t *testing.T) {
	nets := join(t, 12, Config{})
	for _, victim := range []int{2, 3, 8} {
		crash(nets[victim])
	}
	for r, n := range nets {
		if r == 2 || r == 3 || r == 8 {
			continue
		}
		err := n.Barrier(testContext(t), 1)
		var lost *LostError
		if !errors.As(err, &lost) || lost.Rank != 2 && lost.Rank != 3 && lost.Rank != 8 {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func TestRankThatLeavesEarlyIsNamed(t *testing.T) {
	nets := join(t, 5, Config{})
	nets[3].Close()
	for r, n := range nets {
		var lost *LostError
		if err := n.Barrier(testContext(t), 1); r == 3 {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("the one who left: %v", err)
			}
		} else if !errors.As(err, &lost) || lost.Rank != 3 || !strings.Contains(lost.Cause, "left the job") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// After a loss the survivors close one by one; nobody takes that for more losses.
func TestClosingAfterALossAccusesNobody(t *testing.T) {
	nets := join(t, 6, Config{})
	var mu sync.Mutex
	accused := map[int]bool{}
	for _, n := range nets {
		n.OnLost(func(rank int, _ error) {
			mu.Lock()
			defer mu.Unlock()
			accused[rank] = true
		})
	}
	crash(nets[1])
	for r, n := range nets {
		if r != 1 {
			<-n.Failed()
		}
	}
	for _, n := range nets {
		n.Close()
	}
	mu.Lock()
	defer mu.Unlock()
	for rank := range accused {
		if rank != 1 {
			t.Errorf("rank %d was taken for lost", rank)
		}
	}
}

// On a busy machine the time may be over before those that do come have met: then there is more of it.
func TestJoinNamesWhoDoesNotCome(t *testing.T) {
	for timeout := 300 * time.Millisecond; ; timeout *= 8 {
		wrong := joinWithoutTheLast(t, timeout)
		if wrong == nil {
			return
		}
		if timeout > patience/4 {
			t.Fatalf("with %v: %v", timeout, wrong)
		}
	}
}

// joinWithoutTheLast has ranks 0 and 1 of three join, and says which of them does not miss rank 2.
func joinWithoutTheLast(t *testing.T, timeout time.Duration) error {
	t.Helper()
	eps, cards := endpoints(t, 3, Config{JoinTimeout: timeout})
	errs := each(3, func(r int) error {
		if r == 2 {
			return nil
		}
		n, err := eps[r].Join(context.Background(), r, cards)
		if err == nil {
			n.Close()
		}
		return err
	})
	for r := range 2 {
		if errs[r] == nil {
			t.Fatalf("rank %d has joined without rank 2", r)
		}
		if !strings.Contains(errs[r].Error(), "rank 2") && !strings.Contains(errs[r].Error(), "left the job") {
			return fmt.Errorf("rank %d: %w, want an error that names rank 2", r, errs[r])
		}
	}
	return nil
}

// ---- real processes ----------------------------------------------------------------------------

const childEnv = "CKPT_TEST_SIGNALING_RANK"

func TestMain(m *testing.M) {
	if rank := os.Getenv(childEnv); rank != "" {
		if err := child(rank); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is one rank: it prints its card, reads all cards, and then does a barrier for each line.
func child(name string) error {
	var rank, size int
	var silence time.Duration
	if _, err := fmt.Sscan(name, &rank, &size, &silence); err != nil {
		return err
	}
	ep, err := Listen(Config{LoopbackOnly: true, Silence: silence})
	if err != nil {
		return err
	}
	fmt.Println(hex.EncodeToString(ep.Card()))
	in := bufio.NewScanner(os.Stdin)
	cards := make([][]byte, size)
	for r := range cards {
		if !in.Scan() {
			return io.ErrUnexpectedEOF
		}
		if cards[r], err = hex.DecodeString(in.Text()); err != nil {
			return err
		}
	}
	n, err := ep.Join(context.Background(), rank, cards)
	if err != nil {
		return err
	}
	n.OnLost(func(rank int, err error) { fmt.Println("lost", rank) })
	before := false
	n.OnReach(func(all []Missing) {
		for _, m := range all {
			fmt.Println("missing", m.Rank)
		}
		if before && len(all) == 0 {
			fmt.Println("all here")
		}
		before = len(all) > 0
	})
	fmt.Println("joined")
	for in.Scan() {
		if err := n.Barrier(context.Background(), 1); err == nil {
			fmt.Println("barrier")
		}
	}
	return n.Shutdown(context.Background())
}

type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func (p *process) expect(t *testing.T, want string) {
	t.Helper()
	if !p.out.Scan() {
		t.Fatalf("process ends, want %q", want)
	}
	if got := p.out.Text(); want != "" && got != want {
		t.Fatalf("process says %q, want %q", got, want)
	}
}

func processes(t *testing.T, size int, silence time.Duration) []*process {
	t.Helper()
	var all []*process
	var cards []string
	for rank := range size {
		p := &process{cmd: exec.Command(os.Args[0])}
		p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %d", childEnv, rank, size, silence))
		p.cmd.Stderr = os.Stderr
		var err error
		if p.in, err = p.cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		out, err := p.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		p.out = bufio.NewScanner(out)
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		})
		p.expect(t, "")
		cards = append(cards, p.out.Text())
		all = append(all, p)
	}
	for _, p := range all {
		if _, err := fmt.Fprintln(p.in, strings.Join(cards, "\n")); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range all {
		p.expect(t, "joined")
	}
	return all
}

func barrier(t *testing.T, all []*process) {
	t.Helper()
	for _, p := range all {
		if _, err := fmt.Fprintln(p.in); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range all {
		p.expect(t, "barrier")
	}
}

func TestKilledProcessIsNoticed(t *testing.T) {
	all := processes(t, 4, time.Hour) // so it is the end of the connection that is noticed
	barrier(t, all)
	if err := all[2].cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, r := range []int{0, 1, 3} {
		all[r].expect(t, "lost 2")
	}
}

// A rank that is paused for longer than anybody may be silent is named, once, and goes on with the others
// when it runs again: nothing is lost. Who cannot be reached may be a pair: the paused one, when it runs
// again, has not heard of the others either.
func TestStoppedProcessIsNoticedBySilence(t *testing.T) {
	all := processes(t, 3, 4*time.Second)
	barrier(t, all)
	if err := all[1].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	all[0].expect(t, "missing 1")
	all[2].expect(t, "missing 1")
	for _, r := range []int{0, 2} { // on its way to the paused rank meanwhile
		if _, err := fmt.Fprintln(all[r].in); err != nil {
			t.Fatal(err)
		}
	}
	if err := all[1].cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(all[1].in); err != nil {
		t.Fatal(err)
	}
	for r, p := range all {
		said := map[string]bool{}
		for !said["barrier"] || r != 1 && !said["all here"] {
			if !p.out.Scan() {
				t.Fatalf("rank %d ends after it said %v", r, said)
			}
			said[p.out.Text()] = true
		}
		if said["lost 1"] || said["lost 0"] || said["lost 2"] {
			t.Errorf("rank %d says %v", r, said)
		}
	}
}

// A job that is suspended as a whole, for longer than anybody may be silent, goes on afterwards.
func TestSuspendedJobAccusesNobody(t *testing.T) {
	const silence = 4 * time.Second
	all := processes(t, 3, silence)
	barrier(t, all)
	for _, sig := range []os.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		for _, p := range all {
			if err := p.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
		}
		if sig == syscall.SIGSTOP {
			time.Sleep(3 * silence / 2) // what is tested is time going by
		}
	}
	barrier(t, all)
	for _, p := range all {
		_ = p.in.Close()
	}
	for _, p := range all {
		if p.out.Scan() {
			t.Errorf("process says %q, want nothing", p.out.Text())
		}
		if err := p.cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}
