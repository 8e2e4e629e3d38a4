// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
)

// The same tests above a kernel's adapter: rdma_rxe, in the machine that scripts/verbs-vm.sh starts. Its processor is
// emulated, as a rule, so there is less of everything.
const (
	forVM  = "LIBCKPT_VERBS_FOR_VM" // build the programs into this folder, and end
	netdev = "RXE_NETDEV"           // in the machine: the network that a device is made on
)

var onRxe = os.Getenv(netdev) != ""

func inVM() (int, error) {
	built.Bin = os.Getenv(forVM)
	if err := build(); err != nil {
		return 1, err
	}
	return 0, nil
}

func rxeOptions(options ...string) []string {
	if onRxe {
		return options
	}
	return nil
}

// times is how many exchanges a ping-pong makes: there two programs that poll take 20 ms for one, if nothing makes them give way.
func (p pingpong) times(iterations int) int {
	switch {
	case !onRxe:
		return iterations
	case iterations <= 2000:
		return 100
	case slices.Contains(p.options, "-e"), p.name == "srq":
		return iterations / 3
	}
	return iterations / 120
}

// few is the first number, or the second where all is slow.
func few(n, slow int) int {
	if onRxe {
		return slow
	}
	return n
}

func steps(n int) int { return few(n, n/10) }

// within is a time from which a moment to save is chosen.
func within(d time.Duration) time.Duration {
	if onRxe {
		return 4 * d
	}
	return d
}

// address is where connections by librdmacm are made.
func address() string {
	if onRxe {
		return "10.9.0.1" // of the adapter's network: the kernel's own connections are made there alone
	}
	return "127.0.0.1"
}

// listensNatively tells whether somebody listens at a port by the kernel's librdmacm.
func listensNatively(port string) bool {
	said, err := exec.Command("rdma", "resource", "show", "cm_id").Output()
	return err == nil && regexp.MustCompile(`state LISTEN .*src-addr [^ ]*:`+port+" ").Match(said)
}

func wantRxe(t *testing.T) {
	t.Helper()
	out, err := exec.Command("ibv_devinfo", "-v").CombinedOutput()
	must(t, err)
	for _, want := range []string{"hca_id:\trxe0", "PORT_ACTIVE (4)", "link_layer:\t\tEthernet", "::ffff:10.9.0.1, RoCE v2", "ATOMIC_HCA (1)"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("ibv_devinfo does not say %q: %s", want, out)
		}
	}
}

func rdma(t *testing.T, argv ...string) {
	t.Helper()
	if said, err := exec.Command("rdma", argv...).CombinedOutput(); err != nil {
		t.Fatalf("rdma %q: %v: %s", argv, err, said)
	}
}

// noDevice takes the adapter away, until again is called or the test ends.
func noDevice(t *testing.T) (again func()) {
	t.Helper()
	if !onRxe {
		return func() {}
	}
	rdma(t, "link", "delete", "rxe0")
	again = sync.OnceFunc(func() { rdma(t, "link", "add", "rxe0", "type", "rxe", "netdev", os.Getenv(netdev)) })
	t.Cleanup(again)
	return again
}

// anotherDevice makes the adapter anew, when nobody uses it, and spends some of its numbers.
func anotherDevice(t *testing.T) {
	t.Helper()
	if onRxe {
		newDevice(t, "ffff:0a09:0001")
	}
}

// newDevice is one whose second gid ends like this.
func newDevice(t *testing.T, like string) {
	t.Helper()
	rdma(t, "link", "delete", "rxe0")
	rdma(t, "link", "add", "rxe0", "type", "rxe", "netdev", os.Getenv(netdev))
	if !e2e.Poll(patience, nil, func() bool {
		gid, err := os.ReadFile("/sys/class/infiniband/rxe0/ports/1/gids/1")
		return err == nil && strings.Contains(string(gid), like)
	}) {
		t.Fatal("the new device has no address")
	}
	for range 1 + rand.IntN(3) {
		// Nobody listens: it makes its queue pair, and ends.
		if said, err := exec.Command("ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-p", "9", "127.0.0.1").CombinedOutput(); err == nil {
			t.Fatalf("somebody listens at port 9: %s", said)
		}
	}
}

// anotherAddress gives the machine 10.9.0.2 in the place of 10.9.0.1, until the end of the test, and makes the adapter anew.
func anotherAddress(t *testing.T) {
	t.Helper()
	is := func(address string) {
		t.Helper()
		for _, argv := range [][]string{{"flush", "dev", os.Getenv(netdev), "scope", "global"}, {"add", address + "/24", "dev", os.Getenv(netdev)}} {
			if said, err := exec.Command("ip", append([]string{"addr"}, argv...)...).CombinedOutput(); err != nil {
				t.Fatalf("ip addr %q: %v: %s", argv, err, said)
			}
		}
	}
	t.Cleanup(func() {
		is("10.9.0.1")
		anotherDevice(t)
	})
	is("10.9.0.2")
	newDevice(t, "ffff:0a09:0002")
}
