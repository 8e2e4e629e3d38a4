// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
)

var listening = regexp.MustCompile(`(?m)^ *\d+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F:]+ 0A `)

// ports are the open ones of this network.
func ports(t *testing.T) []int {
	t.Helper()
	text, err := os.ReadFile("/proc/net/tcp")
	must(t, err)
	var all []int
	for _, m := range listening.FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseUint(m[1], 16, 16)
		must(t, err)
		all = append(all, int(n))
	}
	return all
}

// Who connects to a queue pair's port and does not say what its peers say is dropped, and the program does not notice.
func TestStrangers(t *testing.T) {
	needBed(t)
	job := shuffle{ranks: 2, seed: 5, steps: 3000, pace: 200}
	w := newShuffle(t, job)
	w.Env = overTCP()
	must(t, w.Natively())
	if !e2e.Poll(patience, nil, func() bool {
		said, err := w.Printed("out")
		return err == nil && strings.Count(said, " begins\n") == w.Ranks
	}) {
		t.Fatalf("it does not begin: %s", w.Said())
	}
	dropped := 0
	for _, port := range ports(t) {
		at := fmt.Sprintf("127.0.0.1:%d", port)
		for i := range 10 {
			c, err := net.Dial("tcp4", at)
			if err != nil {
				t.Fatalf("port %d: %v", port, err)
			}
			defer c.Close()
			if i%2 == 1 { // says nothing
				continue
			}
			if _, err := c.Write([]byte("GET / HTTP/1.0\r\nHost: a stranger\r\n\r\n")); err != nil {
				t.Fatal(err)
			}
			must(t, c.SetReadDeadline(time.Now().Add(patience)))
			if n, err := io.Copy(io.Discard, c); n > 0 || os.IsTimeout(err) {
				t.Errorf("port %d answered a stranger with %d bytes, or let it wait: %v", port, n, err)
			}
			dropped++
		}
	}
	if dropped != 5*w.Ranks {
		t.Errorf("%d strangers were dropped at the ports of %d ranks", dropped, w.Ranks)
	}
	must(t, w.MustEnd(patience))
	job.right(t, w)
}
