// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
	"github.com/libckpt/libckpt/internal/needmpi"
)

// connection is a pair of programs that are connected by librdmacm.
type connection struct {
	name string
	argv func(port string) [2][]string
	port string // the only one that it can have
	says [2]string
}

// connections are programs of rdmacm-utils, and perftest by librdmacm.
var connections = []connection{
	{name: "rping", argv: rping(20), says: [2]string{"", ""}},
	{name: "ucmatose", argv: func(port string) [2][]string {
		common := []string{"ucmatose", "-p", port, "-c", "3", "-C", "20", "-S", "5000"}
		return [2][]string{common, append(slices.Clone(common), "-s", address())}
	}, says: [2]string{"\nreturn status 0\n", "\nreturn status 0\n"}},
	{name: "udaddy", port: "7174", argv: func(string) [2][]string {
		common := []string{"udaddy", "-c", "2", "-C", "20", "-S", "1000"}
		return [2][]string{common, append(slices.Clone(common), "-s", address())}
	}, says: [2]string{"\nreturn status 0\n", "\nreturn status 0\n"}},
	{name: "rdma_client", argv: func(port string) [2][]string {
		return [2][]string{{"rdma_server", "-p", port}, {"rdma_client", "-p", port, "-s", address()}}
	}, says: [2]string{"rdma_server: end 0\n", "rdma_client: end 0\n"}},
	{name: "ib_send_bw", argv: func(port string) [2][]string {
		common := []string{"ib_send_bw", "-p", port, "-R", "-F", "-n", "200"}
		return [2][]string{common, append(slices.Clone(common), address())}
	}, says: [2]string{" rdma_cm QPs\t : ON\n", " rdma_cm QPs\t : ON\n"}},
}

// rping writes and reads memory of the other side, and looks at each byte.
func rping(iterations int) func(port string) [2][]string {
	return func(port string) [2][]string {
		common := []string{"rping", "-p", port, "-a", address(), "-V", "-C", strconv.Itoa(iterations), "-S", "1000"}
		return [2][]string{append(slices.Clone(common), "-s"), append(slices.Clone(common), "-c")}
	}
}

func needConnections(t *testing.T) {
	t.Helper()
	need(t)
	if _, err := exec.LookPath("rping"); err != nil {
		needmpi.Skip(t, "no rdmacm-utils", fmt.Sprintf("%v: make setup with `test` installs it", err))
	}
}

// newConnection prepares a job of a server and a client, which waits until there is a file: with LATE_HOLD when it is connected,
// with LATE_LINGER before it disconnects.
func (c connection) newConnection(t *testing.T, hold string) (w *e2e.Whole, held string) {
	t.Helper()
	port := c.anyPort()
	argv := c.argv(port)
	w, err := e2e.NewWhole(built, t.TempDir(), argv[0]...)
	must(t, err)
	w.Ranks, w.Together = 2, true
	w.RankArgv = map[int][]string{1: argv[1]}
	w.RankEnv = map[int][]string{1: {"LD_PRELOAD=" + filepath.Join(built.Bin, "late"), "LATE_PORT=" + port}}
	if hold != "" {
		held = filepath.Join(w.Run.Dir, "client")
		w.RankEnv[1] = append(w.RankEnv[1], hold+"="+held)
	}
	t.Cleanup(w.Mark.KillAll)
	return w, held
}

// right tells that both sides ended well and say so.
func (c connection) right(t *testing.T, w *e2e.Whole) {
	t.Helper()
	must(t, w.MustEnd(jobLimit))
	for r := range w.Ranks {
		if said := mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, r)); !strings.Contains(said, c.says[r]) {
			t.Errorf("rank %d does not say %q: %s%s", r, c.says[r], said, w.Said())
		}
	}
}

// anyPort is one that the programs can listen at.
func (c connection) anyPort() string {
	if c.port != "" {
		return c.port
	}
	return strconv.Itoa(20000 + int(nextPort.Add(1)))
}

// Where the kernel has connections, the programs are run with these first.
func TestConnectionsUnderCkptrun(t *testing.T) {
	needConnections(t)
	backs := []string{"ibv", "tcp"}
	if onRxe {
		backs = backs[:1]
		for _, c := range connections {
			t.Run(c.name+",natively", func(t *testing.T) {
				needmpi.Time(t)
				port := c.anyPort()
				for i, said := range bothNatively(t, c.argv(port), func() bool { return listensNatively(port) }) {
					if !strings.Contains(said, c.says[i]) {
						t.Errorf("process %d does not say %q: %s", i, c.says[i], said)
					}
				}
			})
		}
	}
	for _, back := range backs {
		for _, c := range connections {
			t.Run(c.name+","+back, func(t *testing.T) {
				needmpi.Time(t)
				w, _ := c.newConnection(t, "")
				w.Env = []string{"CKPT_VERBS=" + back}
				must(t, w.Start("shell"))
				c.right(t, w)
			})
		}
	}
}

// A thread asks for the next event of a channel that another has destroyed, before the process ends. The channel was read
// after it was freed.
func TestChannelGone(t *testing.T) {
	needConnections(t)
	needmpi.Time(t)
	if onRxe {
		needmpi.Skip(t, "librdmacm of the machine", "it does not keep what was freed")
	}
	c := connection{name: "rping", argv: rping(20)}
	for _, back := range []string{"ibv", "tcp"} {
		t.Run(back, func(t *testing.T) {
			w, _ := c.newConnection(t, "")
			w.Env = []string{"CKPT_VERBS=" + back}
			w.RankEnv[0] = []string{"LD_PRELOAD=" + filepath.Join(built.Bin, "late"), "LATE_GONE=200"}
			must(t, w.Start("shell"))
			c.right(t, w)
		})
	}
}

// A ping-pong that is connected by librdmacm is saved at moments of its own, killed, and continued, on the adapter and over TCP in turn.
func TestPingsSaved(t *testing.T) {
	needConnections(t)
	s := seed(t)
	for i, backs := range [][]string{{"ibv"}, {"tcp", "ibv"}} {
		t.Run(strings.Join(backs, ","), func(t *testing.T) {
			needmpi.Time(t)
			c := connection{name: "rping", argv: rping(few(3000, 300))}
			w, held := c.newConnection(t, "LATE_LINGER")
			l := life{t: t, w: w, random: rand.New(rand.NewPCG(s, uint64(i))), within: within(time.Second / 2), lives: few(3, 2), backs: backs}
			l.ends = func() { must(t, os.WriteFile(held+".go", nil, 0o644)) }
			l.run()
		})
	}
}

// Programs are saved while they are connected, before they have sent anything or when they want to end, killed and
// continued, twice.
func TestConnectionsSaved(t *testing.T) {
	needConnections(t)
	for i, c := range connections {
		if c.name == "rping" || c.name == "ib_send_bw" {
			continue // at any moment: TestPingsSaved, TestPerftestSaved
		}
		backs := [][]string{{"ibv"}, {"ibv", "tcp"}, {"tcp"}}[i%3]
		if onRxe && backs[0] == "tcp" {
			backs = []string{"ibv"}
		}
		t.Run(c.name+","+strings.Join(backs, ","), func(t *testing.T) {
			needmpi.Time(t)
			w, held := c.newConnection(t, "LATE_HOLD")
			l := life{t: t, w: w, backs: backs}
			l.environment(0)
			must(t, w.Start("shell"))
			if !e2e.Poll(jobLimit, nil, func() bool { _, err := os.Stat(held + ".held"); return err == nil }) {
				t.Fatalf("the client is not connected: %s", w.Said())
			}
			for n := range 2 {
				if !l.begun() || !l.save("kill") {
					t.Fatalf("it ended too early: %s", w.Said())
				}
				_, err := w.Wait(jobLimit)
				must(t, err)
				l.environment(n + 1)
				anotherDevice(t)
				must(t, w.Restart("shell"))
			}
			must(t, os.WriteFile(held+".go", nil, 0o644))
			c.right(t, w)
		})
	}
}

// A connection by librdmacm that leads to another job is named, and the job goes on.
func TestConnectionOfAnotherJob(t *testing.T) {
	needConnections(t)
	c := connections[slices.IndexFunc(connections, func(c connection) bool { return c.name == "ucmatose" })]
	both, held := c.newConnection(t, "LATE_HOLD")
	var job [2]*e2e.Whole
	for i := range job {
		argv := both.Argv
		if i == 1 {
			argv = both.RankArgv[1]
		}
		w, err := e2e.NewWhole(built, t.TempDir(), argv...)
		must(t, err)
		w.Ranks, w.Together = 1, true
		t.Cleanup(w.Mark.KillAll)
		if i == 1 {
			w.RankEnv = map[int][]string{0: both.RankEnv[1]}
		}
		must(t, w.Start("shell"))
		job[i] = w
	}
	if !e2e.Poll(jobLimit, nil, func() bool { _, err := os.Stat(held + ".held"); return err == nil }) {
		t.Fatalf("the client is not connected: %s%s", job[0].Said(), job[1].Said())
	}
	exit, said, err := job[0].Ckptctl(t.TempDir(), jobLimit, "checkpoint", job[0].Run.Checkpoints(), "--timeout", "5s")
	must(t, err)
	if exit == (e2e.Exit{}) || !strings.Contains(said, "which is no process of this job") {
		t.Errorf("%v: %q, want the connection's name", exit, said)
	}
	must(t, os.WriteFile(held+".go", nil, 0o644))
	for i, w := range job {
		must(t, w.MustEnd(jobLimit))
		if said := mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, 0)); !strings.Contains(said, c.says[i]) {
			t.Errorf("job %d does not say %q: %s", i, c.says[i], said)
		}
	}
}
