// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
)

// portsOfIDs are for one test of programs/ids, which listens at several.
const portsOfIDs = 10

// newIDs prepares a job of `ids`, one rank for each list of arguments; PORT stands for the port.
func newIDs(t *testing.T, port string, arguments ...[]string) *e2e.Whole {
	t.Helper()
	var argv [][]string
	for _, rank := range arguments {
		words := []string{filepath.Join(built.Bin, "ids")}
		for _, word := range rank {
			words = append(words, strings.ReplaceAll(word, "PORT", port))
		}
		argv = append(argv, words)
	}
	w, err := e2e.NewWhole(built, t.TempDir(), argv[0]...)
	must(t, err)
	w.Ranks, w.Together = len(argv), true
	w.RankArgv, w.RankEnv = map[int][]string{}, map[int][]string{}
	for r := 1; r < len(argv); r++ {
		w.RankArgv[r] = argv[r]
		w.RankEnv[r] = []string{"LD_PRELOAD=" + filepath.Join(built.Bin, "late"), "LATE_PORT=" + port}
	}
	t.Cleanup(w.Mark.KillAll)
	return w
}

func newPortsOfIDs() string {
	return strconv.Itoa(20000 + int(nextPort.Add(portsOfIDs)) - portsOfIDs + 1)
}

// says waits until a rank has printed a line.
func says(t *testing.T, w *e2e.Whole, rank int, line string) {
	t.Helper()
	path := fmt.Sprintf("%s.out.%d", w.Files, rank)
	if !e2e.Poll(jobLimit, nil, func() bool {
		said, err := os.ReadFile(path)
		return w.Ended() || err == nil && strings.Contains("\n"+string(said), "\n"+line+"\n")
	}) || w.Ended() {
		t.Fatalf("rank %d does not say %q: %s", rank, line, w.Said())
	}
}

func wantFile(t *testing.T, got, name string) {
	t.Helper()
	if want := mustRead(t, filepath.Join("testdata", name)); got != want {
		t.Errorf("it prints\n%s\nwant\n%s", got, want)
	}
}

// Ids that are refused, unanswered, ended by both sides, moved and misused: events and errors are those of librdmacm.
func TestIDs(t *testing.T) {
	needConnections(t)
	w := newIDs(t, newPortsOfIDs(), []string{"cases", "PORT"})
	must(t, w.Start("shell"))
	must(t, w.MustEnd(jobLimit))
	wantFile(t, mustRead(t, fmt.Sprintf("%s.out.0", w.Files)), "ids.txt")
}

// Connections that are half made, refused or ended while nobody has taken the event, go on after a restart.
func TestIDsHalfMade(t *testing.T) {
	needConnections(t)
	for i, backs := range [][]string{{"ibv"}, {"tcp", "ibv"}} {
		t.Run(strings.Join(backs, ","), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "go")
			w := newIDs(t, newPortsOfIDs(), []string{"server", "PORT", file}, []string{"client", "PORT", file})
			l := life{t: t, w: w, backs: backs}
			l.environment(0)
			must(t, w.Start("shell"))
			for n := range 2 - i {
				for r := range w.Ranks {
					says(t, w, r, "ready")
				}
				if !l.begun() || !l.save("kill") {
					t.Fatalf("it ended too early: %s", w.Said())
				}
				_, err := w.Wait(jobLimit)
				must(t, err)
				l.environment(n + 1)
				anotherDevice(t)
				must(t, w.Restart("shell"))
			}
			must(t, os.WriteFile(file, nil, 0o644))
			must(t, w.MustEnd(jobLimit))
			for r, name := range []string{"ids-server.txt", "ids-client.txt"} {
				wantFile(t, mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, r)), name)
			}
		})
	}
}

// The end of a peer that is killed is a DISCONNECTED.
func TestPeerKilled(t *testing.T) {
	needConnections(t)
	port := newPortsOfIDs()
	stays, leaves := newIDs(t, port, []string{"stays", "PORT"}), newIDs(t, port, []string{"leaves", "PORT"})
	must(t, stays.Start("shell"))
	says(t, stays, 0, "listens")
	must(t, leaves.Start("shell"))
	says(t, leaves, 0, "connected")
	says(t, stays, 0, `server: RDMA_CM_EVENT_ESTABLISHED 0 ""`)
	must(t, leaves.Kill(jobLimit, false))
	must(t, stays.MustEnd(jobLimit))
	want := `listens
server: RDMA_CM_EVENT_CONNECT_REQUEST 0 "hello"
server: RDMA_CM_EVENT_ESTABLISHED 0 ""
server: RDMA_CM_EVENT_DISCONNECTED 0 ""
rdma_disconnect: 0
server: no event
done
`
	if got := mustRead(t, fmt.Sprintf("%s.out.0", stays.Files)); got != want {
		t.Errorf("it prints\n%s\nwant\n%s", got, want)
	}
}

// With CKPT_RDMACM=kernel the program gets the machine's library, which fails as natively where the kernel has no connections.
func TestConnectionsOfTheKernel(t *testing.T) {
	needConnections(t)
	first := func(start func(*e2e.Whole) error, env ...string) string {
		w := newIDs(t, "", []string{"first"})
		w.Env = env
		must(t, start(w))
		must(t, w.MustEnd(jobLimit))
		return mustRead(t, fmt.Sprintf("%s.out.0", w.Files))
	}
	natively := first((*e2e.Whole).Natively)
	start := func(w *e2e.Whole) error { return w.Start("shell") }
	if got := first(start, "CKPT_RDMACM=kernel"); got != natively {
		t.Errorf("it prints %q, natively %q", got, natively)
	}
	ours := first(start)
	if !strings.Contains(ours, "a channel\n") || !strings.Contains(ours, "a list\n") {
		t.Errorf("without it: %q", ours)
	}
	if _, err := os.Stat("/dev/infiniband/rdma_cm"); err != nil && natively == ours {
		t.Errorf("there is no rdma_cm here, and natively it prints %q", natively)
	}
	if onRxe {
		t.Run("outside", connectedOutside)
	}
}

// connectedOutside: a client under ckptrun is connected to a server that is not. It is not saved, and goes on.
func connectedOutside(t *testing.T) {
	mark := e2e.NewMark()
	t.Cleanup(mark.KillAll)
	c := connections[slices.IndexFunc(connections, func(c connection) bool { return c.name == "ucmatose" })]
	port := c.anyPort()
	argv := c.argv(port)
	dir := t.TempDir()
	held, checkpoints := filepath.Join(dir, "client"), filepath.Join(dir, "ckpt")
	argv[1] = append([]string{"env", "CKPT_RDMACM=kernel", "LD_PRELOAD=" + filepath.Join(built.Bin, "late"), "LATE_HOLD=" + held,
		built.CkptRun(), "--dir", checkpoints, "--"}, argv[1]...)
	var run [2]*e2e.Run
	var process [2]*e2e.Process
	for i := range run {
		var err error
		run[i], err = e2e.NewRun(filepath.Join(dir, fmt.Sprint(i)))
		must(t, err)
		process[i], err = run[i].Start(mark, argv[i]...)
		must(t, err)
		if i == 0 && !e2e.Poll(patience, process[0].Done(), func() bool { return listensNatively(port) }) {
			t.Fatalf("the server does not listen: %s", mustRead(t, run[0].Stderr))
		}
	}
	if !e2e.Poll(jobLimit, process[1].Done(), func() bool { _, err := os.Stat(held + ".held"); return err == nil }) {
		t.Fatalf("the client is not connected: %s%s", mustRead(t, run[1].Stdout), mustRead(t, run[1].Stderr))
	}
	w := &e2e.Whole{Built: built}
	exit, said, err := w.Ckptctl(t.TempDir(), jobLimit, "checkpoint", checkpoints, "--timeout", "5s")
	must(t, err)
	if exit == (e2e.Exit{}) || !strings.Contains(said, ", which is no process of this job") {
		t.Errorf("%v: %q, want the queue pair's name", exit, said)
	}
	must(t, os.WriteFile(held+".go", nil, 0o644))
	for i := range run {
		exit, err := process[i].Wait(jobLimit)
		must(t, err)
		if said := mustRead(t, run[i].Stdout); exit != (e2e.Exit{}) || !strings.Contains(said, c.says[i]) {
			t.Errorf("process %d: %v: it does not say %q: %s%s", i, exit, c.says[i], said, mustRead(t, run[i].Stderr))
		}
	}
}

// Who connects to a port of librdmacm and does not say what its peers say is dropped; the program does not notice, and is saved.
func TestStrangersOfConnections(t *testing.T) {
	needConnections(t)
	c := connections[slices.IndexFunc(connections, func(c connection) bool { return c.name == "ucmatose" })]
	w, held := c.newConnection(t, "LATE_HOLD")
	w.Env = []string{"CKPT_RDMACM_SILENT_MS=1000"}
	must(t, w.Start("shell"))
	if !e2e.Poll(jobLimit, nil, func() bool { _, err := os.Stat(held + ".held"); return err == nil || w.Ended() }) || w.Ended() {
		t.Fatalf("the client is not connected: %s", w.Said())
	}
	at := "127.0.0.1:" + w.Argv[2]
	var silent []net.Conn
	for i := range 100 { // more than may wait
		stranger, err := net.Dial("tcp4", at)
		must(t, err)
		defer stranger.Close()
		if i >= 10 {
			silent = append(silent, stranger)
			continue
		}
		if _, err := stranger.Write([]byte("GET / HTTP/1.0\r\nHost: a stranger\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		dropped(t, stranger)
	}
	// Those that are there hold a checkpoint up until they are dropped.
	l := life{t: t, w: w}
	if !l.begun() || !l.save("kill") {
		t.Fatalf("it ended too early: %s", w.Said())
	}
	for _, stranger := range silent {
		dropped(t, stranger)
	}
	_, err := w.Wait(jobLimit)
	must(t, err)
	must(t, w.Restart("shell"))
	must(t, os.WriteFile(held+".go", nil, 0o644))
	c.right(t, w)
}

// dropped waits until the other side closes a connection, having said nothing.
func dropped(t *testing.T, c net.Conn) {
	t.Helper()
	must(t, c.SetReadDeadline(time.Now().Add(patience)))
	if n, err := io.Copy(io.Discard, c); n > 0 || os.IsTimeout(err) {
		t.Errorf("a stranger was answered with %d bytes, or let wait: %v", n, err)
	}
}

// A perftest that is connected by librdmacm is saved while it measures, killed and continued.
func TestPerftestOfConnectionsSaved(t *testing.T) {
	needConnections(t)
	needPerftest(t)
	s := seed(t)
	argv := [2][]string{{"ib_send_bw", "-p", strconv.Itoa(20000 + int(nextPort.Add(1))), "-R", "-F", "-D", strconv.Itoa(few(4, 30))}}
	argv[1] = append(slices.Clone(argv[0]), address())
	w := newPair(t, argv)
	w.RankEnv[1] = append(w.RankEnv[1], "LATE_LINGER="+filepath.Join(w.Run.Dir, "client"))
	l := life{t: t, w: w, random: rand.New(rand.NewPCG(s, 0)), within: within(time.Second), lives: few(2, 1), backs: []string{"ibv", "tcp"}[:few(2, 1)]}
	l.ends = func() { must(t, os.WriteFile(filepath.Join(w.Run.Dir, "client.go"), nil, 0o644)) }
	l.run()
	got := mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, 1))
	m := perftestResult.FindStringSubmatch(got)
	if m == nil || m[2] == "0" || !strings.Contains(got, " rdma_cm QPs\t : ON\n") {
		t.Errorf("the client does not say what it has measured: %s%s", got, w.Said())
	}
}

// XRC is refused, and the programs say what failed.
func TestExtendedConnections(t *testing.T) {
	needConnections(t)
	port := strconv.Itoa(20000 + int(nextPort.Add(1)))
	w, err := e2e.NewWhole(built, t.TempDir(), "rdma_xserver", "-p", port, "-c", "x")
	must(t, err)
	w.Ranks, w.Together = 2, true
	w.RankArgv = map[int][]string{1: {"rdma_xclient", "-p", port, "-c", "x", "-s", "127.0.0.1"}}
	t.Cleanup(w.Mark.KillAll)
	must(t, w.Start("shell"))
	exits, err := w.Wait(jobLimit)
	must(t, err)
	said := w.Said()
	for r, exit := range exits {
		if exit == (e2e.Exit{}) {
			t.Errorf("rank %d ends well", r)
		}
	}
	if strings.Count(said, "rdma_create_ep: Protocol not supported") != w.Ranks {
		t.Errorf("they say %q", said)
	}
}
