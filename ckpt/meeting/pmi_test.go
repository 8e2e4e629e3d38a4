// SPDX-License-Identifier: Apache-2.0

package meeting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// launcher is a fake one: one space of keys, and a barrier.
type launcher struct {
	ranks, maxValue int
	maxName         int // bytes of the name of the space
	dribbles        bool
	replies         int // how many it gives before it goes away; -1: all

	mu      sync.Mutex
	values  map[string]string
	waiting []net.Conn
}

func newLauncher(ranks, maxValue int) *launcher {
	return &launcher{ranks: ranks, maxValue: maxValue, maxName: 256, replies: -1, values: map[string]string{}}
}

// serve answers one process.
func (l *launcher) serve(conn net.Conn, rank int) {
	defer conn.Close()
	var b [1024]byte // a request is what one read gives, as for Slurm
	for given := 0; ; given++ {
		n, err := conn.Read(b[:])
		if err != nil || given == l.replies {
			return
		}
		text, whole := strings.CutSuffix(string(b[:n]), "\n")
		q, err := parsePMI(text)
		if err != nil || !whole || strings.Contains(text, "\n") {
			_, _ = fmt.Fprintf(conn, "not one request: %.40q of %d bytes\n", text, n)
			return
		}
		if answer := l.answer(conn, q, rank); answer != "" {
			for _, piece := range l.pieces(answer + "\n") {
				if _, err := conn.Write(piece); err != nil {
					return
				}
			}
		}
	}
}

// pieces is how an answer is written: at once, or byte by byte.
func (l *launcher) pieces(answer string) [][]byte {
	if !l.dribbles {
		return [][]byte{[]byte(answer)}
	}
	return bytes.SplitAfter([]byte(answer), nil)
}

func (l *launcher) answer(conn net.Conn, q pmiLine, rank int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := q.fields["kvsname"] + " " + q.fields["key"]
	switch q.cmd {
	case "initack":
		return fmt.Sprintf("cmd=initack rc=0\ncmd=set size=%d\ncmd=set rank=%s\ncmd=set debug=0", l.ranks, q.fields["pmiid"])
	case "init":
		return "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"
	case "get_maxes":
		return fmt.Sprintf("cmd=maxes vallen_max=%d keylen_max=64 kvsname_max=256", l.maxValue)
	case "get_my_kvsname":
		return "cmd=my_kvsname kvsname=" + strings.Repeat("k", l.maxName)
	case "put":
		if _, twice := l.values[key]; twice || len(q.fields["value"]) >= l.maxValue {
			return "cmd=put_result rc=-1 msg=duplicate key or too long"
		}
		l.values[key] = q.fields["value"]
		return "cmd=put_result rc=0 msg=success"
	case "barrier_in":
		if l.waiting = append(l.waiting, conn); len(l.waiting) == l.ranks {
			for _, c := range l.waiting {
				_, _ = fmt.Fprintln(c, "cmd=barrier_out")
			}
			l.waiting = nil
		}
		return ""
	case "get":
		if v, ok := l.values[key]; ok {
			return "cmd=get_result rc=0 msg=success value=" + v
		}
		return "cmd=get_result rc=-1 msg=key not found value=unknown"
	case "finalize":
		return "cmd=finalize_ack"
	}
	return "cmd=what"
}

// pair is a connection within the process, with room in both directions.
func pair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		conns[i], err = net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		t.Cleanup(func() { _ = conns[i].Close() })
	}
	return conns[0], conns[1]
}

// member connects a rank to a launcher.
func (l *launcher) member(t *testing.T, rank int, id string) (Meeting, error) {
	t.Helper()
	ours, theirs := pair(t)
	go l.serve(theirs, rank)
	if id != "" {
		return newPMI(within(t), Options{Patience: soon}, ours, -1, -1, id)
	}
	return newPMI(within(t), Options{Patience: soon}, ours, rank, l.ranks, "")
}

func TestPMI(t *testing.T) {
	for name, c := range map[string]struct {
		maxValue int
		port     bool
		dribbles bool
		sizes    []int
	}{
		"descriptor":   {1024, false, false, gatherSizes},
		"port":         {1024, true, false, gatherSizes},
		"short values": {200, false, false, gatherSizes},
		"long values":  {1 << 29, false, false, gatherSizes},
		"byte by byte": {1024, true, true, []int{64, 500}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLauncher(3, c.maxValue)
			l.dribbles = c.dribbles
			var all []Meeting
			for r := range 3 {
				id := ""
				if c.port {
					id = strconv.Itoa(r)
				}
				m, err := l.member(t, r, id)
				if err != nil || m.Rank() != r || m.Ranks() != 3 {
					t.Fatalf("rank %d: %v, %v", r, m, err)
				}
				all = append(all, m)
			}
			wantGatherOf(t, all, c.sizes...)
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

// Wherever the launcher goes away, that is an error which says so.
func TestPMIEnds(t *testing.T) {
	for n := 0; ; n++ {
		if n > 50 {
			t.Fatal("it never succeeds")
		}
		l := newLauncher(1, 64)
		l.replies = n
		m, err := l.member(t, 0, "0")
		if err == nil {
			_, err = m.Allgather(make([]byte, 100))
			if err != nil {
				if _, again := m.Allgather(nil); again == nil || again.Error() != err.Error() {
					t.Errorf("after %d answers, again: %v", n, again)
				}
				if closing := m.Close(); closing != nil {
					t.Errorf("after %d answers: %v", n, closing)
				}
			} else {
				err = m.Close()
			}
		}
		if err == nil {
			if n < 12 { // initack, init, maxes, kvsname, 3 put, barrier, 3 get, finalize
				t.Errorf("succeeded after %d answers", n)
			}
			return
		}
		wantError(t, fmt.Sprintf("after %d answers", n), err, "the launcher has closed the connection")
	}
}

// A launcher that says something else.
func TestPMIErrors(t *testing.T) {
	const (
		begin = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
		maxes = begin + "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"
		named = maxes + "cmd=my_kvsname kvsname=kvs\n"
		put   = named + "cmd=put_result rc=0 msg=success\n"
		met   = put + "cmd=barrier_out\n"
		first = met + "cmd=get_result rc=0 msg=success value=3.YWJj\n"
	)
	for name, c := range map[string]struct{ says, want string }{
		"garbage":          {"SSH-2.0-OpenSSH_9.2\n", `"SSH-2.0-OpenSSH_9.2", which is not PMI version 1`},
		"empty line":       {"\n", "which is not PMI version 1"},
		"PMI 2":            {"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n", `speaks PMI version "2"`},
		"refuses":          {"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n", "response_to_init says rc=\"-1\""},
		"aborts":           {"cmd=abort exitcode=7\n", `ends the job (exit code "7")`},
		"other answer":     {"cmd=barrier_out\n", `says "barrier_out", want response_to_init`},
		"twice":            {"cmd=response_to_init rc=0 rc=1\n", "says rc twice"},
		"short":            {begin[:20], "ends early"},
		"very long":        {"cmd=" + strings.Repeat("x", maxPMILine) + "\n", fmt.Sprintf("more than %d bytes", maxPMILine)},
		"no limits":        {begin + "cmd=maxes\n", "keylen_max"},
		"tiny values":      {begin + "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1\n", "vallen_max=\"1\""},
		"negative":         {begin + "cmd=maxes kvsname_max=256 keylen_max=-64 vallen_max=1024\n", "keylen_max=\"-64\""},
		"long name":        {maxes + "cmd=my_kvsname kvsname=" + strings.Repeat("k", 1000) + "\n", "name of 1000 bytes"},
		"no name":          {maxes + "cmd=my_kvsname\n", "has no kvsname"},
		"put fails":        {named + "cmd=put_result rc=-1 msg=no space left\n", `put_result says rc="-1" "no space left"`},
		"abort at barrier": {put + "cmd=abort exitcode=1\n", "ends the job"},
		"no such key":      {met + "cmd=get_result rc=-1 msg=key_not_found value=unknown\n", "what rank 0 gave: the launcher's get_result"},
		"no value":         {met + "cmd=get_result rc=0 msg=success\n", "has no value"},
		"another length":   {met + "cmd=get_result rc=0 msg=success value=4.YWJjZA\n", "has 4 bytes, and what rank 0 gives 3: all must"},
		"no length":        {met + "cmd=get_result rc=0 msg=success value=YWJj.3\n", "all must"},
		"no base64":        {met + "cmd=get_result rc=0 msg=success value=3.YW*j\n", "illegal base64"},
		"too much":         {met + "cmd=get_result rc=0 msg=success value=3.YWJjYWJj\n", "damaged: 6 bytes, want 3"},
		"second rank":      {first + "cmd=get_result rc=0 msg=success value=2.YWI\n", "what rank 1 gave: it has 2 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := pair(t)
			if _, err := theirs.Write([]byte(c.says)); err != nil {
				t.Fatal(err)
			}
			if err := theirs.(*net.UnixConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			m, err := newPMI(within(t), Options{Patience: soon}, ours, 0, 2, "")
			if err == nil {
				_, err = m.Allgather([]byte("abc"))
			}
			wantError(t, "it", err, c.want)
		})
	}
}

func TestPMISilence(t *testing.T) {
	ours, _ := pair(t)
	_, err := newPMI(within(t), Options{Patience: time.Millisecond}, ours, 0, 1, "")
	wantError(t, "no answer", err, "the launcher has not answered within 0.001 s")

	// The barrier takes as long as it takes, or until the caller gives up.
	l := newLauncher(2, 1024)
	ours, theirs := pair(t)
	go l.serve(theirs, 0)
	ctx, cancel := context.WithCancelCause(within(t))
	m, err := newPMI(ctx, Options{Patience: soon}, ours, 0, 2, "")
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("enough")
	time.AfterFunc(10*time.Millisecond, func() { cancel(why) })
	if _, err := m.Allgather(nil); !errors.Is(err, why) {
		t.Errorf("cancelled: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// Ranks that give too much meet all the same, and fail.
func TestPMITooMuch(t *testing.T) {
	l := newLauncher(2, 1024)
	var all []Meeting
	for r := range 2 {
		m, err := l.member(t, r, "")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	_, errs := gather(all, func(rank int) []byte { return make([]byte, rank*(maxGive+1)) })
	wantError(t, "rank 1", errs[1], "at most")
	if errs[0] != nil { // which gives nothing, as rank 1 did in the end
		t.Error(errs[0])
	}
	for _, m := range all { // the launcher is told, so that it does not take this for a crash
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The launcher's descriptor stays as it is, and the one that is used is out of the program's way.
func TestPMIDescriptor(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	f := os.NewFile(uintptr(fds[1]), "launcher")
	theirs, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	go newLauncher(1, 1024).serve(theirs, 0)

	nonblocking := func() bool {
		flags, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFL, 0)
		if err != nil {
			t.Fatal(err)
		}
		return flags&unix.O_NONBLOCK != 0
	}
	before := descriptors(t)
	m, err := Find(within(t), Options{Getenv: env{"PMI_FD": strconv.Itoa(fds[0]), "PMI_RANK": "0", "PMI_SIZE": "1"}.get})
	if err != nil {
		t.Fatal(err)
	}
	wantGather(t, []Meeting{m})
	added := 0
	for fd := range descriptors(t) {
		if before[fd] {
			continue
		}
		added++
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 || fd < highNumber {
			t.Errorf("descriptor %d, flags %x, %v", fd, flags, err)
		}
	}
	if added != 1 {
		t.Errorf("%d descriptors were opened", added)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	for fd := range descriptors(t) {
		if !before[fd] {
			t.Errorf("descriptor %d is left open", fd)
		}
	}
	if nonblocking() {
		t.Error("the launcher's descriptor does not block any more")
	}
}

// descriptors are those of sockets, whose numbers nothing else of this process changes meanwhile.
func descriptors(t *testing.T) map[int]bool {
	t.Helper()
	names, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]bool{}
	for _, name := range names {
		if to, _ := os.Readlink(name); strings.HasPrefix(to, "socket:") {
			fd, err := strconv.Atoi(filepath.Base(name))
			if err != nil {
				t.Fatal(err)
			}
			out[fd] = true
		}
	}
	return out
}

func TestPMIEnvironment(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for want, e := range map[string]env{
		`PMI_FD is set, but PMI_RANK is "" and PMI_SIZE is "4"`: {"PMI_FD": "5", "PMI_SIZE": "4"},
		`PMI_FD is set, but PMI_RANK is "0" and PMI_SIZE is ""`: {"PMI_FD": "5", "PMI_RANK": "0"},
		`PMI_FD is "x"`:                                     {"PMI_FD": "x", "PMI_RANK": "0", "PMI_SIZE": "4"},
		`PMI_FD is 987654, which is not open`:               {"PMI_FD": "987654", "PMI_RANK": "0", "PMI_SIZE": "4"},
		fmt.Sprintf("PMI_FD is %d, which is no", r.Fd()):    {"PMI_FD": fmt.Sprint(r.Fd()), "PMI_RANK": "0", "PMI_SIZE": "4"},
		`PMI_PORT is set, but PMI_ID is ""`:                 {"PMI_PORT": "127.0.0.1:1"},
		"the launcher at PMI_PORT: dial tcp 127.0.0.1:1":    {"PMI_PORT": "127.0.0.1:1", "PMI_ID": "0"},
		"the launcher at PMI_PORT: dial tcp: address there": {"PMI_PORT": "there", "PMI_ID": "0"},
	} {
		_, err := Find(within(t), Options{Getenv: e.get})
		wantError(t, fmt.Sprint(e), err, "which rank this is (PMI): "+want)
	}
	for name, says := range map[string]string{
		"no size":  "cmd=initack\ncmd=set rank=0\ncmd=set debug=0\ncmd=set x=1\n",
		"no rank":  "cmd=initack\ncmd=set size=2\ncmd=set debug=0\ncmd=set x=1\n",
		"too many": "cmd=initack\ncmd=set size=99999999999\ncmd=set rank=0\ncmd=set debug=0\n",
		"rank":     "cmd=initack\ncmd=set size=2\ncmd=set rank=2\ncmd=set debug=0\n",
	} {
		ours, theirs := pair(t)
		_, _ = theirs.Write([]byte(says + "cmd=response_to_init pmi_version=1\ncmd=maxes keylen_max=64 vallen_max=64\ncmd=my_kvsname kvsname=k\n"))
		if m, err := newPMI(within(t), Options{Patience: soon}, ours, -1, -1, "0"); err == nil {
			t.Errorf("%s: rank %d of %d", name, m.Rank(), m.Ranks())
		} else {
			wantError(t, name, err, "the launcher")
		}
	}
}

// canned is a launcher that says what it says, whatever it is asked.
type canned struct{ *bytes.Reader }

func (canned) Write(p []byte) (int, error) { return len(p), nil }
func (canned) Close() error                { return nil }
func (canned) SetDeadline(time.Time) error { return nil }

func FuzzPMI(f *testing.F) {
	good := "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\ncmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n" +
		"cmd=my_kvsname kvsname=kvs\ncmd=put_result rc=0 msg=success\ncmd=barrier_out\n" +
		"cmd=get_result rc=0 msg=success value=3.YWJj\ncmd=get_result rc=0 msg=success value=3.ZGVm\ncmd=finalize_ack\n"
	f.Add([]byte(good), false)
	f.Add([]byte("cmd=initack\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0\n"+good), true)
	f.Add([]byte("cmd=abort exitcode=1\n"), false)
	f.Add([]byte("cmd=maxes rc=0 = == a b c=\n"), false)
	f.Fuzz(func(t *testing.T, says []byte, port bool) {
		id := ""
		if port {
			id = "1"
		}
		m, err := newPMI(context.Background(), Options{Patience: soon}, canned{bytes.NewReader(says)}, 1, 2, id)
		if err != nil {
			return
		}
		if r, n := m.Rank(), m.Ranks(); r < 0 || r >= n {
			t.Errorf("rank %d of %d", r, n)
		}
		all, err := m.Allgather([]byte("abc"))
		if err == nil && len(all) != m.Ranks() {
			t.Errorf("%d parts of %d ranks", len(all), m.Ranks())
		}
		for r, b := range all {
			if len(b) != 3 {
				t.Errorf("rank %d gave %q", r, b)
			}
		}
		_ = m.Close()
	})
}

func FuzzNote(f *testing.F) {
	f.Add([]byte(`{"format":1,"host":"h","pid":7,"host_id":"aa","loopback":"127.0.0.1:1","addresses":["10.0.0.1:2"],"key":"` + newKey() + `"}`))
	f.Add([]byte(`{"format":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := parseNote(b)
		if err != nil {
			return
		}
		if _, err := n.identity(); err != nil {
			t.Error(err)
		}
		_ = n.ways()
	})
}

func FuzzFrame(f *testing.F) {
	var b bytes.Buffer
	q, err := (&hello{Rank: 1, Ranks: 2}).frame()
	if err != nil {
		f.Fatal(err)
	}
	_ = q.send(&b)
	f.Add(b.Bytes())
	f.Add([]byte("h\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := readHello(bytes.NewReader(b)); err == nil && (h.Rank < 0 || h.Rank >= h.Ranks) {
			t.Errorf("%+v", h)
		}
	})
}
