// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"regexp"
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
	const iterations = "60000"
	s := seed(t)
	for i, transport := range []string{"rc_verbs", "ud_verbs"} {
		t.Run(transport, func(t *testing.T) {
			argv := perftestArgv("ucx_perftest", "-d", "soft0:1", "-x", transport, "-t", "am_lat", "-n", iterations, "-w", "10", "-f")
			for r := range argv { // it has another -F
				argv[r] = append(argv[r][:3:3], argv[r][4:]...)
			}
			w := newPair(t, argv)
			l := life{t: t, w: w, random: rand.New(rand.NewPCG(s, uint64(100+i))), within: time.Second, lives: 2}
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
