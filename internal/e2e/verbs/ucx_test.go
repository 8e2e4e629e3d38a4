// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
	"github.com/libckpt/libckpt/internal/needmpi"
)

// ucxResult is the line of results of ucx_perftest: iterations, then times.
var ucxResult = regexp.MustCompile(`(?m)^ +(\d+)( +\d+[.]?\d*)+$`)

// ucxFatal is what it says when it gives up.
var ucxFatal = regexp.MustCompile(`[a-z_]+\.c:\d+ +Fatal: .*`)

// UCX above verbs, with the System V memory that it attaches, is saved at a moment of its own, killed and continued.
func TestUCXSaved(t *testing.T) {
	need(t)
	if _, err := exec.LookPath("ucx_perftest"); err != nil {
		needmpi.Skip(t, "no UCX", fmt.Sprintf("%v: make setup with `test` installs it", err))
	}
	iterations := strconv.Itoa(few(60000, 1500))
	s := seed(t)
	device, env := "soft0:1", []string(nil)
	if onRxe { // natively its datagrams do not arrive by the gid of an IPv4 address
		device, env = "rxe0:1", []string{"UCX_IB_GID_INDEX=0"}
	}
	for i, transport := range []string{"rc_verbs", "ud_verbs"} {
		t.Run(transport, func(t *testing.T) {
			needmpi.Time(t)
			ucx := func(iterations string) [2][]string {
				port := strconv.Itoa(20000 + int(nextPort.Add(1)))
				server := []string{"ucx_perftest", "-p", port, "-d", device, "-x", transport, "-t", "am_lat", "-n", iterations, "-w", "10", "-f"}
				return [2][]string{server, append(slices.Clone(server), "127.0.0.1")}
			}
			if onRxe { // with which UCX may not get on
				native := newPair(t, ucx("100"))
				native.Env = env
				must(t, native.Natively())
				fatal := ""
				if !e2e.Poll(jobLimit, nil, func() bool { fatal = ucxFatal.FindString(native.Said()); return fatal != "" || native.Ended() }) {
					t.Fatalf("natively it does not end: %s", native.Said())
				}
				if fatal != "" {
					native.Mark.KillAll()
					needmpi.Skip(t, "no UCX on rdma_rxe", "natively it says "+fatal)
				}
				must(t, native.MustEnd(patience))
			}
			w := newPair(t, ucx(iterations))
			w.Env = env
			l := life{t: t, w: w, random: rand.New(rand.NewPCG(s, uint64(100+i))), within: within(time.Second), lives: few(2, 1)}
			l.run()
			if l.saved == 0 {
				t.Errorf("it was never saved: %s", w.Said())
			}
			got := mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, 1))
			if m := ucxResult.FindStringSubmatch(got); m == nil || m[1] != iterations {
				t.Errorf("the client does not say that it is through: %s%s", got, w.Said())
			}
		})
	}
}

// A thread of UCX that takes its time with an asynchronous event: at its end UCX counts on it that a queue pair is there until the
// event is given back, and frees what the thread looks at next.
func TestUCXLateEvents(t *testing.T) {
	need(t)
	if _, err := exec.LookPath("ucx_perftest"); err != nil {
		needmpi.Skip(t, "no UCX", fmt.Sprintf("%v: make setup with `test` installs it", err))
	}
	if onRxe {
		needmpi.Skip(t, "no such event on rdma_rxe", "it does not say that a queue pair was flushed")
	}
	late := []string{"LD_PRELOAD=" + filepath.Join(built.Bin, "late"), "LATE_EVENT=300"}
	for range few(4, 1) {
		port := strconv.Itoa(20000 + int(nextPort.Add(1)))
		server := []string{"ucx_perftest", "-p", port, "-d", "soft0:1", "-x", "rc_verbs", "-t", "am_lat", "-n", "500", "-w", "10", "-f"}
		w := newPair(t, [2][]string{server, append(slices.Clone(server), "127.0.0.1")})
		w.RankEnv = map[int][]string{0: late, 1: append(slices.Clone(late), "LATE_PORT="+port)}
		must(t, w.Start("shell"))
		must(t, w.MustEnd(jobLimit))
	}
}
