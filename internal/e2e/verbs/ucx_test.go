// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// ucxResult is the line of results of ucx_perftest: iterations, then times.
var ucxResult = regexp.MustCompile(`(?m)^ +(\d+)( +\d+[.]?\d*)+$`)

// UCX above verbs, with the System V memory that it attaches, is saved at a moment of its own, killed and continued.
func TestUCXSaved(t *testing.T) {
	need(t)
	if _, err := exec.LookPath("ucx_perftest"); err != nil {
		needmpi.Skip(t, "no UCX", fmt.Sprintf("%v: make setup with `test` installs it", err))
	}
	iterations := strconv.Itoa(few(60000, 3000))
	s := seed(t)
	device := "soft0:1"
	if onRxe {
		device = "rxe0:1"
	}
	for i, transport := range []string{"rc_verbs", "ud_verbs"} {
		t.Run(transport, func(t *testing.T) {
			ucx := func(iterations string) [2][]string {
				port := strconv.Itoa(20000 + int(nextPort.Add(1)))
				server := []string{"ucx_perftest", "-p", port, "-d", device, "-x", transport, "-t", "am_lat", "-n", iterations, "-w", "10", "-f"}
				return [2][]string{server, append(slices.Clone(server), "127.0.0.1")}
			}
			if onRxe { // with which UCX may not get on
				native := newPair(t, ucx("100"))
				must(t, native.Natively())
				if err := native.MustEnd(patience); err != nil {
					needmpi.Skip(t, "no UCX on rdma_rxe", fmt.Sprintf("natively: %v", err))
				}
			}
			w := newPair(t, ucx(iterations))
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
