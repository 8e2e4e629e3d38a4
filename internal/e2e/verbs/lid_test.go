// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// lid is how a ping-pong says where it is, and its peer.
var lid = regexp.MustCompile(`(?m)^ *(?:local|remote) address: *LID (0x[0-9a-f]{4})`)

// Programs that go by lid and take no port without one begin over TCP, and go on over an adapter and over TCP.
func TestLidOverTCP(t *testing.T) {
	need(t)
	s := seed(t)
	for i, p := range []pingpong{{"rc", []string{"-c"}}, {"ud", []string{"-c", "-e"}}} {
		t.Run(p.String(), func(t *testing.T) {
			iterations := p.times(30000)
			w := newPingpong(t, p, iterations)
			l := life{t: t, w: w, random: rand.New(rand.NewPCG(s, uint64(i))), within: within(time.Second / 2), lives: 2, backs: []string{"tcp", "ibv"}}
			l.run()
			p.same(t, w, iterations)
			for r := range w.Ranks {
				said := mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, r))
				all := lid.FindAllStringSubmatch(said, -1)
				if len(all) != 2 || all[0][1] == "0x0000" || all[1][1] == "0x0000" {
					t.Errorf("rank %d knows lids %v: %s", r, all, said)
				}
			}
		})
	}
}

// What ibv_devinfo says of the port over TCP: it is there, has a lid, and knows who gives them.
func TestPortOverTCP(t *testing.T) {
	need(t)
	argv := []string{"--dir", filepath.Join(t.TempDir(), "ckpt"), "--", "ibv_devinfo"}
	cmd := exec.Command(built.CkptRun(), argv...)
	cmd.Env = append(os.Environ(), "CKPT_VERBS=tcp")
	out, err := cmd.CombinedOutput()
	must(t, err)
	for _, want := range []string{`hca_id:\s+tcp0`, `state:\s+PORT_ACTIVE \(4\)`, `sm_lid:\s+1\n`, `port_lid:\s+[1-9]\d*\n`, `link_layer:\s+Ethernet`} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("ibv_devinfo does not say %q: %s", want, out)
		}
	}
}
