// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/internal/handshake"
	"github.com/libckpt/libckpt/internal/hostaddr"
)

const patience = time.Minute

// fakeJob is a job whose checkpoints the test steers.
type fakeJob struct {
	calls    chan *call // one for each Checkpoint under way
	deaf     bool       // it does not heed its context
	finished chan after.Action

	mu     sync.Mutex
	status Status
}

// call is one Checkpoint that waits for the test to end it.
type call struct {
	ctx      context.Context
	request  Request
	progress func(Event)
	end      chan answer
}

type answer struct {
	result Result
	err    error
}

func newFakeJob() *fakeJob {
	return &fakeJob{
		calls:    make(chan *call),
		finished: make(chan after.Action, 1),
		status:   Status{State: Running, Ranks: []RankStatus{{Rank: 0, Phase: "computing"}}},
	}
}

func (j *fakeJob) Checkpoint(ctx context.Context, r Request, progress func(Event)) (Result, error) {
	c := &call{ctx, r, progress, make(chan answer)}
	select {
	case j.calls <- c:
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	}
	end := ctx.Done()
	if j.deaf {
		end = nil
	}
	select {
	case a := <-c.end:
		return a.result, a.err
	case <-end:
		return Result{}, errors.New("rank 3 waits in MPI_Recv for rank 1")
	}
}

func (j *fakeJob) Finish(t after.Action) { j.finished <- t }

func (j *fakeJob) Status() Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.status
}

func serve(t *testing.T) (*Server, *fakeJob, *Client) {
	t.Helper()
	s, err := Listen(Config{LoopbackOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	job := newFakeJob()
	if err := s.Serve(job); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, job, NewClient(s.Address())
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// asked is a client's request under way.
type asked struct {
	done   chan answer
	events chan Event
}

func request(ctx context.Context, c *Client, r Request) *asked {
	a := &asked{make(chan answer, 1), make(chan Event, 100)}
	go func() {
		result, err := c.Checkpoint(ctx, r, func(e Event) { a.events <- e })
		a.done <- answer{result, err}
	}()
	return a
}

func get[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("never: %s", what)
		panic("unreachable")
	}
}

func TestCheckpoint(t *testing.T) {
	_, job, client := serve(t)
	a := request(testContext(t), client, Request{Then: after.Continue, Timeout: time.Hour})
	c := get(t, "the job is asked", job.calls)
	if c.request.Then != after.Continue || c.request.Timeout <= 59*time.Minute || c.request.Timeout > time.Hour {
		t.Errorf("the job is asked %+v", c.request)
	}
	want := Event{Epoch: 3, Phase: "write", Ranks: 1, Of: 4, Done: 10, Total: 100, Detail: "slow disk"}
	c.progress(want)
	if d := cmp.Diff(want, get(t, "an event", a.events)); d != "" {
		t.Error(d)
	}
	c.end <- answer{result: Result{Epoch: 3, Bytes: 100, Seconds: 1.5, Stopped: 0.25}}
	got := get(t, "the result", a.done)
	if d := cmp.Diff(Result{Epoch: 3, Bytes: 100, Seconds: 1.5, Stopped: 0.25}, got.result); d != "" || got.err != nil {
		t.Error(got.err, d)
	}
	select {
	case then := <-job.finished:
		t.Errorf("the job is told to %s", then)
	default:
	}
}

func TestRefusedAndFailed(t *testing.T) {
	_, job, client := serve(t)
	a := request(testContext(t), client, Request{Then: after.Kill})
	get(t, "the job is asked", job.calls).end <- answer{err: fmt.Errorf("epoch 4: %w", &RefusedError{[]string{"2 messages", "a socket"}})}
	var refused *RefusedError
	if err := get(t, "the answer", a.done).err; !errors.As(err, &refused) {
		t.Errorf("got %v, want a RefusedError", err)
	} else if d := cmp.Diff([]string{"2 messages", "a socket"}, refused.Reasons); d != "" {
		t.Error(d)
	}
	a = request(testContext(t), client, Request{Then: after.Kill}) // the refusal did not end the job
	get(t, "the job is asked", job.calls).end <- answer{err: errors.New("disk full")}
	if err := get(t, "the answer", a.done).err; err == nil || err.Error() != "disk full" {
		t.Errorf("got %v, want: disk full", err)
	}
}

// Requests that want the same share a checkpoint; others wait their turn.
func TestJoinAndQueue(t *testing.T) {
	s, job, client := serve(t)
	ctx := testContext(t)
	first := request(ctx, client, Request{Then: after.Continue})
	c := get(t, "the job is asked", job.calls)
	c.progress(Event{Phase: "agree"})
	get(t, "an event", first.events)

	kill := request(ctx, client, Request{Then: after.Kill})
	for queued := false; !queued; time.Sleep(time.Millisecond) {
		s.desk.mu.Lock()
		queued = len(s.desk.runs) == 2
		s.desk.mu.Unlock()
	}
	joined := request(ctx, client, Request{Then: after.Continue})
	if e := get(t, "the event of before", joined.events); e.Phase != "agree" {
		t.Errorf("one who joins is told %+v", e)
	}
	c.end <- answer{result: Result{Epoch: 1}}
	if r := get(t, "the result", first.done); r.err != nil || r.result.Epoch != 1 || r.result.Joined {
		t.Errorf("the first got %+v", r)
	}
	if r := get(t, "the result", joined.done); r.err != nil || r.result.Epoch != 1 || !r.result.Joined {
		t.Errorf("the one who joined got %+v", r)
	}

	c = get(t, "the job is asked again", job.calls)
	if c.request.Then != after.Kill {
		t.Errorf("the job is asked %+v, want kill", c.request)
	}
	late := request(ctx, client, Request{Then: after.Exit})
	for queued := false; !queued; time.Sleep(time.Millisecond) {
		s.desk.mu.Lock()
		queued = len(s.desk.runs) == 2
		s.desk.mu.Unlock()
	}
	c.end <- answer{result: Result{Epoch: 2}}
	if r := get(t, "the result", kill.done); r.err != nil || r.result.Epoch != 2 {
		t.Errorf("kill got %+v", r)
	}
	if then := get(t, "the job is told to end", job.finished); then != after.Kill {
		t.Errorf("the job is told to %s, want kill", then)
	}
	if r := get(t, "the late one is refused", late.done); !errors.Is(r.err, ErrEnding) {
		t.Errorf("the late one got %v, want ErrEnding", r.err)
	}
	if _, err := s.Request(ctx, Request{Then: after.Continue}, nil); !errors.Is(err, ErrEnding) {
		t.Errorf("a request after the end: got %v, want ErrEnding", err)
	}
}

// instantJob is saved at once, and says how often it was asked two things at a time.
type instantJob struct {
	fakeJob
	inside, twice atomic.Int32
}

func (j *instantJob) Checkpoint(context.Context, Request, func(Event)) (Result, error) {
	if j.inside.Add(1) != 1 {
		j.twice.Add(1)
	}
	defer j.inside.Add(-1)
	return Result{Epoch: 1}, nil
}

// TestRequestsOnTheHeelsOfOthers: a request that comes when the last one is just over is done once.
func TestRequestsOnTheHeelsOfOthers(t *testing.T) {
	job := &instantJob{}
	d := newDesk(job)
	defer d.close()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5000 {
				tk, err := d.ask(Request{Then: after.Continue})
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case <-tk.done:
				case <-time.After(patience):
					t.Error("a request has no answer")
					return
				}
				tk.release()
				if tk.err != nil {
					t.Error(tk.err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := job.twice.Load(); n != 0 {
		t.Errorf("the job was asked %d times while it was at another checkpoint", n)
	}
}

func TestTimeoutSaysWhoHoldsItUp(t *testing.T) {
	_, job, client := serve(t)
	a := request(testContext(t), client, Request{Then: after.Continue, Timeout: 50 * time.Millisecond})
	get(t, "the job is asked", job.calls)
	err := get(t, "the answer", a.done).err
	if want := "timeout: rank 3 waits in MPI_Recv for rank 1"; !errors.Is(err, ErrTimeout) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A checkpoint lasts as long as the most patient of those who asked for it.
func TestTimeoutOfOneOfTwo(t *testing.T) {
	s, job, client := serve(t)
	ctx := testContext(t)
	short := request(ctx, client, Request{Then: after.Continue, Timeout: 200 * time.Millisecond})
	c := get(t, "the job is asked", job.calls)
	long := make(chan answer, 1)
	go func() {
		r, err := s.Request(ctx, Request{Then: after.Continue}, nil)
		long <- answer{r, err}
	}()
	if err := get(t, "the answer", short.done).err; !errors.Is(err, ErrTimeout) {
		t.Errorf("got %v, want a timeout", err)
	}
	if c.ctx.Err() != nil {
		t.Error("the checkpoint was given up although one still waits for it")
	}
	c.end <- answer{result: Result{Epoch: 9}}
	if r := get(t, "the result", long); r.err != nil || r.result.Epoch != 9 {
		t.Errorf("got %+v", r)
	}
}

func TestClientThatDisappearsStopsNothing(t *testing.T) {
	s, job, client := serve(t)
	ctx, leave := context.WithCancel(testContext(t))
	a := request(ctx, client, Request{Then: after.Exit})
	c := get(t, "the job is asked", job.calls)
	leave()
	if err := get(t, "the client gives up", a.done).err; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	for gone := false; !gone; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		gone = len(s.clients) == 0
		s.mu.Unlock()
	}
	if c.ctx.Err() != nil {
		t.Error("the checkpoint was given up")
	}
	c.end <- answer{result: Result{Epoch: 1}}
	if then := get(t, "the job is told to end", job.finished); then != after.Exit {
		t.Errorf("the job is told to %s", then)
	}
}

func TestCloseTellsThoseWhoWait(t *testing.T) {
	s, job, client := serve(t)
	a := request(testContext(t), client, Request{Then: after.Continue})
	c := get(t, "the job is asked", job.calls)
	s.Close()
	if !errors.Is(context.Cause(c.ctx), ErrEnding) {
		t.Errorf("the job's checkpoint ends because of %v", context.Cause(c.ctx))
	}
	if err := get(t, "the answer", a.done).err; !errors.Is(err, ErrEnding) {
		t.Errorf("got %v, want ErrEnding", err)
	}
}

func TestStatusAndWatch(t *testing.T) {
	s, job, client := serve(t)
	ctx := testContext(t)
	want := Status{
		State: Checkpointing, Phase: "drain", Program: "heat", Started: time.Unix(1e9, 0), Epoch: 2, Pending: 3,
		Ranks:    []RankStatus{{Rank: 0, Host: "n1", PID: 7, Phase: "drain", Detail: "3 messages", Done: 1, Total: 2, Rate: 3}},
		Last:     &Outcome{When: time.Unix(2e9, 0), Refused: []string{"a socket"}, Error: "refused"},
		Counters: Counters{1, 2, 3},
	}
	job.mu.Lock()
	job.status = want
	job.mu.Unlock()
	got, err := client.Status(ctx)
	if d := cmp.Diff(want, got, cmpopts.EquateApproxTime(0)); d != "" || err != nil {
		t.Error(err, d)
	}
	seen := 0
	err = client.Watch(ctx, minPeriod, func(st Status) bool {
		if d := cmp.Diff(want, st, cmpopts.EquateApproxTime(0)); d != "" {
			t.Error(d)
		}
		if seen++; seen == 3 {
			go s.Close() // the job ends
		}
		return true
	})
	if !errors.Is(err, io.EOF) || seen < 3 {
		t.Errorf("watch ends after %d with %v, want EOF", seen, err)
	}
	if _, err := client.Status(ctx); !errors.Is(err, ErrNotRunning) {
		t.Errorf("status of a job that ended: got %v, want ErrNotRunning", err)
	}
}

func TestWrongTokenIsNotServed(t *testing.T) {
	s, _, _ := serve(t)
	a := s.Address()
	a.Token = newToken()
	if _, err := NewClient(a).Status(testContext(t)); !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v, want ErrNotRunning", err)
	}
}

// Who has the token of one job is not let in by another that has its address now, and neither is who speaks a
// protocol of ranks; the log says why.
func TestAnotherJobAtTheAddress(t *testing.T) {
	s, _, _ := serve(t)
	me, err := s.Address().identity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := Address{Token: newToken()}.identity()
	if err != nil {
		t.Fatal(err)
	}
	rank := hello(me)
	rank.Protocol = [8]byte([]byte("ckptsig3"))
	for want, h := range map[string]handshake.Hello{"another job": hello(other), "it speaks": rank} {
		if _, err := s.guard.KeyOf(h); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", h, err, want)
		}
	}
}

// A job on a slow machine answers late: it is waited for, and does not take its operator for a stranger who has gone.
func TestSlowAnswer(t *testing.T) {
	t.Parallel()
	s, _, _ := serve(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go relay(from, s.Address().Loopback, connectTimeout+500*time.Millisecond)
		}
	}()
	a := s.Address()
	a.Loopback = l.Addr().String()
	if _, err := NewClient(a).Status(testContext(t)); err != nil {
		t.Error(err)
	}
}

// relay hands on what comes, and the answers late.
func relay(from net.Conn, address string, late time.Duration) {
	defer func() { _ = from.Close() }()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	go func() { _, _ = io.Copy(to, from) }()
	time.Sleep(late)
	_, _ = io.Copy(from, to)
}

// The token of a libckpt of before TLS is told apart from a damaged one.
func TestTokenOfAnotherVersion(t *testing.T) {
	_, err := ParseAddress("n1", "x@127.0.0.1:4", strings.Repeat("ab", handshake.KeySize))
	if err == nil || !strings.Contains(err.Error(), "another version of libckpt") {
		t.Errorf("a token without its kind: %v", err)
	}
	_, err = ParseAddress("n1", "x@127.0.0.1:4", tokenKind+"abcd")
	if err == nil || !strings.Contains(err.Error(), "32 bytes") {
		t.Errorf("a short token: %v", err)
	}
}

// Strangers that say nothing, or nonsense, do not keep the operator out.
func TestStrangers(t *testing.T) {
	s, _, client := serve(t)
	for i := range 300 {
		conn, err := net.Dial("tcp", s.Address().Loopback)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		switch i % 3 {
		case 0:
			_, _ = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		case 1:
			_, _ = conn.Write(make([]byte, 1000))
		}
	}
	if _, err := client.Status(testContext(t)); err != nil {
		t.Error(err)
	}
}

// Nonsense from one who knows the token gets an answer, and hurts nobody.
func TestBadRequests(t *testing.T) {
	_, _, client := serve(t)
	ctx := testContext(t)
	for _, line := range []string{"", "{}", "[1]", `{"do":"dance"}`, `{"do":"checkpoint","then":"dance"}`, `{"do":"watch","period_ms":-1}`} {
		me, err := client.address.identity()
		if err != nil {
			t.Fatal(err)
		}
		conn, err := dial(ctx, client.address.Loopback, me)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, line+"\n"); err != nil {
			t.Fatal(err)
		}
		p, err := nextReply(lines(conn, maxReply))
		if err != nil || p.Error == nil {
			t.Errorf("%q is answered by %+v, %v; want an error", line, p, err)
		}
		_ = conn.Close()
	}
	if _, err := client.Status(ctx); err != nil {
		t.Error(err)
	}
}

func TestAddressInJobRecord(t *testing.T) {
	for _, want := range []Address{
		{Host: "n1", HostID: "ab12", Loopback: "127.0.0.1:4", Addresses: []string{"10.0.0.1:5", "[fe80::1]:5"}, Token: newToken()},
		{Host: "n1", HostID: "ab12", Addresses: []string{"10.0.0.1:5"}, Token: newToken()},
		{Host: "n1", HostID: "ab12", Loopback: "127.0.0.1:4", Token: newToken()},
	} {
		got, err := ParseAddress(want.Host, want.Control(), want.Token)
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" || err != nil {
			t.Error(err, d)
		}
	}
	for _, bad := range [][2]string{{"", newToken()}, {"x", newToken()}, {"x@y", newToken()}, {"x@127.0.0.1:4", "short"}, {"x@127.0.0.1:4 z", newToken()}} {
		if _, err := ParseAddress("n1", bad[0], bad[1]); err == nil {
			t.Errorf("%q is taken for an address", bad)
		}
	}
}

func FuzzDecodeAsk(f *testing.F) {
	f.Add([]byte(`{"do":"checkpoint","then":"exit","timeout_ms":5}`))
	f.Add([]byte(`{"do":"watch","period_ms":9223372036854775807}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAsk(b)
		if err != nil {
			return
		}
		if a.TimeoutMS < 0 || time.Duration(a.TimeoutMS)*time.Millisecond < 0 || time.Duration(a.PeriodMS)*time.Millisecond < 0 {
			t.Errorf("%s has negative times: %+v", b, a)
		}
		if a.Do == doCheckpoint && a.Then != after.Continue && a.Then != after.Exit && a.Then != after.Kill {
			t.Errorf("%s: then is %q", b, a.Then)
		}
	})
}

func FuzzDecodeReply(f *testing.F) {
	f.Add([]byte(`{"event":{"epoch":3,"phase":"write"}}`))
	f.Add([]byte(`{"error":{"kind":"refused","message":"m","reasons":["a"]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeReply(b); err == nil && r.Error != nil && r.Error.err() == nil {
			t.Errorf("%s is an error and none", b)
		}
	})
}

func FuzzParseAddress(f *testing.F) {
	token := newToken()
	f.Add("ab@127.0.0.1:4 10.0.0.1:5")
	f.Fuzz(func(t *testing.T, control string) {
		a, err := ParseAddress("h", control, token)
		if err != nil {
			return
		}
		b, err := ParseAddress("h", a.Control(), token)
		if d := cmp.Diff(a, b, cmpopts.EquateEmpty()); d != "" || err != nil {
			t.Error(err, d)
		}
	})
}

// TestWhere: where a server listens, and what a client elsewhere is told.
func TestWhere(t *testing.T) {
	s, _, _ := serve(t)
	a := s.Address()
	if len(a.Addresses) != 0 || !strings.HasPrefix(a.Loopback, "127.0.0.1:") && !strings.HasPrefix(a.Loopback, "[::1]:") {
		t.Errorf("local: %+v", a)
	}
	a.HostID = "another"
	if _, err := NewClient(a).Status(testContext(t)); !errors.Is(err, ErrElsewhere) || errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), a.Host) {
		t.Errorf("from another host: %v", err)
	}
	published, err := hostaddr.Published()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range published {
		s, err := Listen(Config{Only: []string{p.String()}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Serve(newFakeJob()); err != nil {
			t.Fatal(err)
		}
		a := s.Address()
		if len(s.listeners) != 2 || len(a.Addresses) != 1 || hostaddr.Of(s.listeners[1]).Addr() != p {
			t.Errorf("only %v: %+v, %v", p, a, hostaddr.Of(s.listeners[1]))
		}
		a.HostID = "another"
		if _, err := NewClient(a).Status(testContext(t)); err != nil {
			t.Errorf("by %v: %v", p, err)
		}
		s.Close()
	}
	if s, err := Listen(Config{Only: []string{"192.0.2.1"}}); err == nil {
		s.Close()
		t.Error("listens on an address that this host has not")
	} else if !strings.Contains(err.Error(), "192.0.2.1") {
		t.Error(err)
	}
}

// A job that is late is not ended after those who asked for that were told that their time is over.
func TestNothingHappensAfterTheAnswer(t *testing.T) {
	job := newFakeJob()
	job.deaf = true
	d := newDesk(job)
	defer d.close()
	asked, err := d.ask(Request{Then: after.Exit, Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	stays := get(t, "the job is asked", job.calls)
	asked.deadline = time.Now().Add(-grace)
	if _, err := asked.wait(testContext(t), func(Event) {}); !errors.Is(err, ErrTimeout) {
		t.Fatalf("got %v, want that the time is over", err)
	}
	asked.release()
	stays.end <- answer{result: Result{Epoch: 1}}
	if then := get(t, "the job goes on", job.finished); then != after.Continue {
		t.Errorf("the job is told to %s", then)
	}
	if again, err := d.ask(Request{Then: after.Continue}); err != nil {
		t.Error(err)
	} else {
		get(t, "the job is asked again", job.calls).end <- answer{result: Result{Epoch: 2}}
		<-again.done
	}
}
