// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
	"github.com/libckpt/libckpt/internal/needmpi"
)

// endpoint is a sort of endpoint of libfabric, and the provider that makes it of verbs.
type endpoint struct{ kind, provider string }

func needLibfabric(t *testing.T) {
	t.Helper()
	need(t)
	if _, err := exec.LookPath("fi_pingpong"); err != nil {
		needmpi.Skip(t, "no libfabric", fmt.Sprintf("%v: make setup with `test` installs it", err))
	}
}

// newLibfabric prepares a job of libfabric's ping-pong. The data is looked at, and the two agree by TCP on how to begin.
func (e endpoint) newLibfabric(t *testing.T, iterations int) *e2e.Whole {
	t.Helper()
	port := strconv.Itoa(20000 + int(nextPort.Add(1)))
	options := []string{"-p", e.provider, "-e", e.kind, "-I", strconv.Itoa(iterations), "-S", "1024"}
	if e.kind != "dgram" {
		options = append(options, "-c")
	}
	return newPair(t, [2][]string{append([]string{"fi_pingpong", "-B", port}, options...), append(append([]string{"fi_pingpong", "-P", port}, options...), "127.0.0.1")})
}

// libfabricResult is the line of results: bytes, how often, and how often it was answered.
var libfabricResult = regexp.MustCompile(`(?m)^1k +\S+ +=\S* `)

func rightLibfabric(t *testing.T, w *e2e.Whole) {
	t.Helper()
	for r := range w.Ranks {
		said := mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, r))
		if !libfabricResult.MatchString(said) {
			t.Errorf("rank %d does not say that it is through: %s%s", r, said, w.Said())
		}
	}
}

// Datagrams may be lost, and then the ping-pong waits for ever: it is not saved.
func TestLibfabricUnderCkptrun(t *testing.T) {
	needLibfabric(t)
	e := endpoint{"dgram", "verbs"}
	for _, back := range []string{"ibv", "tcp"} {
		t.Run(e.kind+","+back, func(t *testing.T) {
			needmpi.Time(t)
			w := e.newLibfabric(t, 1000)
			w.Env = []string{"CKPT_VERBS=" + back}
			must(t, w.Start("shell"))
			must(t, w.MustEnd(jobLimit))
			rightLibfabric(t, w)
		})
	}
}

// libfabric above verbs is saved at a moment of its own, killed and continued, on the adapter and over TCP in turn.
func TestLibfabricSaved(t *testing.T) {
	needLibfabric(t)
	s := seed(t)
	for i, e := range []endpoint{{"msg", "verbs"}, {"rdm", "verbs;ofi_rxm"}} {
		backs := [][]string{{"ibv", "tcp"}, {"tcp", "ibv"}}[i]
		t.Run(e.kind+","+strings.Join(backs, ","), func(t *testing.T) {
			needmpi.Time(t)
			w := e.newLibfabric(t, 40000)
			l := life{t: t, w: w, random: rand.New(rand.NewPCG(s, uint64(i))), within: time.Second, lives: 2, backs: backs}
			l.run()
			rightLibfabric(t, w)
		})
	}
}
