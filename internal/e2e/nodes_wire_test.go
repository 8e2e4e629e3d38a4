// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// wireFaults are what a wire does to frames, each with a probability. The kernel's netem would do the same; many kernels
// are built without it.
type wireFaults struct {
	Loss, Double, Reorder float64
	Delay, Jitter         time.Duration
}

// wireName is the variable by which this program is told to be a wire; its value is a wireJob.
const wireName = "CKPT_E2E_WIRE"

type wireJob struct {
	Ends   [2]string // names of network devices, which the wire makes
	Faults wireFaults
	Seed   uint64
}

// wireMain carries frames between two devices until its standard input ends, and says what it did to them.
func wireMain() error {
	var job wireJob
	if err := json.Unmarshal([]byte(os.Getenv(wireName)), &job); err != nil {
		return err
	}
	var ends [2]int
	for i, name := range job.Ends {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("/dev/net/tun: %w", err)
		}
		ifreq, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		ifreq.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifreq); err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
		ends[i] = fd
	}
	fmt.Println("ready")
	var did wireCounts
	for i := range ends {
		go wireForward(ends[i], ends[1-i], job.Faults, rand.New(rand.NewPCG(job.Seed, uint64(i))), &did)
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	fmt.Printf("%d frames, %d lost, %d doubled, %d reordered\n", did.frames.Load(), did.lost.Load(), did.doubled.Load(), did.reordered.Load())
	return err
}

type wireCounts struct{ frames, lost, doubled, reordered atomic.Int64 }

func wireForward(from, to int, f wireFaults, random *rand.Rand, did *wireCounts) {
	var frame [65536]byte
	for {
		n, err := unix.Read(from, frame[:])
		if err != nil {
			if err == unix.EINTR || err == unix.EAGAIN || err == unix.EIO {
				time.Sleep(time.Millisecond) // EIO: the device is down
				continue
			}
			return
		}
		did.frames.Add(1)
		if random.Float64() < f.Loss {
			did.lost.Add(1)
			continue
		}
		copies := 1
		if random.Float64() < f.Double {
			did.doubled.Add(1)
			copies = 2
		}
		for range copies {
			wait := f.Delay + time.Duration(random.Float64()*float64(f.Jitter))
			if random.Float64() < f.Reorder {
				did.reordered.Add(1)
				wait += 5 * time.Millisecond
			}
			if wait == 0 {
				_, _ = unix.Write(to, frame[:n]) // a device that is down loses it
				continue
			}
			later := append([]byte(nil), frame[:n]...)
			time.AfterFunc(wait, func() { _, _ = unix.Write(to, later) })
		}
	}
}

// wire puts a wire with faults in the place of a node's link. What it did is logged when the test ends.
func (r *room) wire(node int, f wireFaults) {
	r.t.Helper()
	sh := func(node int, script string) {
		r.t.Helper()
		argv := r.on(node, "/bin/sh", "-ec", script)
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			r.t.Fatalf("%s: %v: %s", script, err, out)
		}
	}
	// With the link goes its end on the bridge, whose name the wire's end gets: nodes.sh cuts and joins it as before.
	sh(node, fmt.Sprintf("ip -o -4 address show dev eth0 | awk '{print $4}' >%s/address%d; ip link del eth0", r.dir, node))
	link, tap := fmt.Sprintf("link%d", node), fmt.Sprintf("tap%d", node)
	job, err := json.Marshal(wireJob{Ends: [2]string{link, tap}, Faults: f, Seed: uint64(node)})
	must(r.t, err)
	self, err := os.Executable()
	must(r.t, err)
	argv := r.on(0, "env", wireName+"="+string(job), self)
	cmd := exec.Command(argv[0], argv[1:]...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	hold, err := cmd.StdinPipe()
	must(r.t, err)
	said, err := cmd.StdoutPipe()
	must(r.t, err)
	must(r.t, cmd.Start())
	lines := bufio.NewScanner(said)
	if !lines.Scan() || lines.Text() != "ready" {
		hold.Close()
		_ = cmd.Wait()
		r.t.Fatalf("the wire says %q: %s", lines.Text(), complaints.String())
	}
	r.t.Cleanup(func() {
		hold.Close()
		if lines.Scan() {
			r.t.Logf("link of node %d: %s", node, lines.Text())
		}
		_ = cmd.Wait() // the room may have killed it
	})
	sh(0, fmt.Sprintf("ip link set %s master bridge up; ip link set %s netns $(cat %s/nodes/%d/pid)", link, tap, r.dir, node))
	sh(node, fmt.Sprintf("ip link set %s name eth0; ip address add $(cat %s/address%d) dev eth0; ip link set eth0 up", tap, r.dir, node))
}

// linkFaults are what links do in TestNodesLinks; the last one does all of it, and is the only one of the short form.
var linkFaults = []struct {
	name   string
	faults wireFaults
}{
	{"none", wireFaults{}},
	{"loses 1 of 100", wireFaults{Loss: 0.01}},
	{"loses 1 of 10", wireFaults{Loss: 0.1}},
	{"loses 3 of 10", wireFaults{Loss: 0.3}},
	{"doubles", wireFaults{Double: 0.2}},
	{"reorders", wireFaults{Reorder: 0.25}},
	{"is slow", wireFaults{Delay: 20 * time.Millisecond}},
	{"is slow, unsteadily", wireFaults{Delay: 5 * time.Millisecond, Jitter: 30 * time.Millisecond}},
	{"does it all", wireFaults{Loss: 0.05, Double: 0.05, Reorder: 0.1, Delay: 2 * time.Millisecond, Jitter: 5 * time.Millisecond}},
}

// Links lose, delay, double and reorder frames: a job over three nodes is saved, killed and continued over them, twice, and
// comes to the right result. `make links` takes each fault on each node, CKPT_E2E_LINKS=all.
func TestNodesLinks(t *testing.T) {
	needNodes(t)
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skipf("no nodes whose links have faults: %v", err)
	}
	which, nodes, over := linkFaults[len(linkFaults)-1:], []int{3}, mpis[:1]
	all := os.Getenv("CKPT_E2E_LINKS") == "all"
	if all {
		which, nodes, over = linkFaults, []int{1, 3}, mpis
	}
	for _, mpi := range over {
		for _, node := range nodes {
			for _, f := range which {
				t.Run(fmt.Sprintf("%s node%d %s", mpi, node, f.name), func(t *testing.T) {
					// UCX takes a peer for dead that does not answer for some seconds.
					t.Setenv("UCX_TCP_KEEPIDLE", "inf")
					t.Setenv("UCX_KEEPALIVE_INTERVAL", "inf")
					a := newAwaits(t, mpi)
					r := newRoom(t, a.run.Dir, 3)
					r.wire(node, f.faults)
					places := map[int]int{1: 1, 2: 1, 3: 1}
					p := a.start(r, places)
					a.stands(p)
					a.save(r, p, "kill")
					if all {
						p = a.restart(r, places, "--lease", "2s")
						a.save(r, p, "continue")
						a.save(r, p, "kill")
					}
					a.letGo()
					a.ends(a.restart(r, map[int]int{1: 2, 3: 1}, "--lease", "2s"), 3)
				})
			}
		}
	}
}
