// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
	"github.com/libckpt/libckpt/internal/needmpi"
)

// pingpong is one of ibverbs-utils' programs, with options: two processes, the second finds the first by a port.
type pingpong struct {
	name    string
	options []string
}

func (p pingpong) String() string { return p.name + strings.Join(p.options, "") }

// With -c the received data is checked, with -e they sleep on events, with -N they post by ibv_qp_ex.
var pingpongs = []pingpong{
	{"rc", []string{"-c"}},
	{"rc", []string{"-c", "-e"}},
	{"rc", []string{"-c", "-N"}},
	{"rc", []string{"-c", "-e", "-N"}},
	{"uc", []string{"-c"}},
	{"uc", []string{"-c", "-e"}},
	{"ud", []string{"-c"}},
	{"ud", []string{"-c", "-e"}},
	{"srq", []string{"-c"}},
	{"srq", []string{"-c", "-e"}},
}

var nextPort atomic.Int32

// argv is the command of the server, and of the client.
func (p pingpong) argv(iterations int) [2][]string {
	common := []string{"ibv_" + p.name + "_pingpong", "-p", strconv.Itoa(20000 + int(nextPort.Add(1))), "-n", strconv.Itoa(iterations)}
	server := slices.Concat(common, rxeOptions("-d", "rxe0", "-g", "1"), p.options)
	return [2][]string{server, append(append([]string{}, server...), "127.0.0.1")}
}

// listens tells whether a port of this network is open.
func listens(port string) bool {
	n, err := strconv.Atoi(port)
	if err != nil {
		return false
	}
	want := regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: [0-9A-F]+:%04X [0-9A-F:]+ 0A `, n))
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if text, err := os.ReadFile(name); err == nil && want.Match(text) {
			return true
		}
	}
	return false
}

// timing is what differs from run to run.
var timing = regexp.MustCompile(`(?m)^\d+ bytes in .* Mbit/sec$|^\d+ iters in .* usec/iter$|^ *(local|remote) address: .*$`)

// without is what a ping-pong printed, but for times and addresses.
func without(text string) string { return timing.ReplaceAllString(text, "...") }

// finished tells that a ping-pong has made all its exchanges.
func finished(t *testing.T, said string, iterations int) {
	t.Helper()
	if !strings.Contains(said, fmt.Sprintf("\n%d iters in ", iterations)) || strings.Contains(said, "invalid data") {
		t.Errorf("it did not do %d exchanges with right data: %s", iterations, said)
	}
}

func TestDevice(t *testing.T) {
	needBed(t, "ibv_devinfo")
	if onRxe {
		wantRxe(t)
		return
	}
	out, err := exec.Command("ibv_devinfo", "-v").CombinedOutput()
	must(t, err)
	for _, want := range []string{"hca_id:\tsoft0", "PORT_ACTIVE (4)", "port_lid:\t\t1", "fe80:0000:0000:0000:0253:4f46:5400:0001", "ATOMIC_HCA (1)"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("ibv_devinfo does not say %q: %s", want, out)
		}
	}
}

func TestPingpongNatively(t *testing.T) {
	needBed(t, "ibv_rc_pingpong")
	for _, p := range pingpongs {
		t.Run(p.String(), func(t *testing.T) {
			needmpi.Time(t)
			iterations := p.times(2000)
			argv := p.argv(iterations)
			for _, said := range bothNatively(t, argv, func() bool { return listens(argv[0][2]) }) {
				finished(t, said, iterations)
			}
		})
	}
}

// bothNatively runs a server, and when it listens a client, and returns what they print.
func bothNatively(t *testing.T, argv [2][]string, listens func() bool) (said [2]string) {
	t.Helper()
	mark := e2e.NewMark()
	t.Cleanup(mark.KillAll)
	var run [2]*e2e.Run
	var process [2]*e2e.Process
	for i := range run {
		var err error
		run[i], err = e2e.NewRun(filepath.Join(t.TempDir(), "run"))
		must(t, err)
		process[i], err = run[i].Start(mark, argv[i]...)
		must(t, err)
		if i == 0 && !e2e.Poll(patience, process[0].Done(), listens) {
			t.Fatalf("the server does not listen: %s", mustRead(t, run[0].Stderr))
		}
	}
	for i := range run {
		exit, err := process[i].Wait(time.Minute + patience)
		must(t, err)
		said[i] = mustRead(t, run[i].Stdout)
		if exit != (e2e.Exit{}) {
			t.Errorf("process %d: %v: %s%s", i, exit, said[i], mustRead(t, run[i].Stderr))
		}
	}
	return said
}
