// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"fmt"
	goruntime "runtime"
	"sort"
	"strings"
	"time"

	"github.com/libckpt/libckpt/vid"
)

// drainTimeout bounds one try to receive all messages that are under way. All their senders stand
// still and drive their communication, so it takes as long as the network does.
const drainTimeout = 30 * time.Second

// lane is a direction between two ranks on one communicator; here towards this rank.
type lane struct {
	comm uint64
	from int
}

// owed lists how many messages every rank has sent to rank me over the whole run.
func owed(all []standing, me int) map[lane]uint64 {
	sent := map[lane]uint64{}
	for r, one := range all {
		for _, m := range one.Marks {
			if int(m.Peer) == me && m.Sent > 0 {
				sent[lane{m.Comm, r}] += m.Sent
			}
		}
	}
	return sent
}

// missing says which messages this rank has not received yet.
func missing(sent map[lane]uint64, marks []vid.Bookmark) []string {
	received := map[lane]uint64{}
	names := map[uint64]string{}
	for _, m := range marks {
		received[lane{m.Comm, int(m.Peer)}] += m.Received
		if m.Name != "" {
			names[m.Comm] = m.Name
		}
	}
	var out []string
	for l, n := range sent {
		if got := received[l]; got != n {
			name := names[l.comm]
			if name == "" {
				name = fmt.Sprintf("%x", l.comm)
			}
			out = append(out, fmt.Sprintf("rank %d sent %d messages on communicator %q, of which %d are received", l.from, n, name, got))
		}
	}
	sort.Strings(out)
	return out
}

// drain receives what other ranks have sent to this one, until nothing is under way between them.
func (j *Job) drain(all []standing) error {
	sent := owed(all, j.group.rank())
	end := time.Now().Add(drainTimeout)
	for {
		left, err := j.runtime.Drain()
		if err != nil {
			return err
		}
		if left == 0 && len(missing(sent, j.tables.Bookmarks())) == 0 {
			break
		}
		if time.Now().After(end) {
			reasons := missing(sent, j.tables.Bookmarks())
			if left > 0 {
				reasons = append(reasons, fmt.Sprintf("%d operations do not end", left))
			}
			return fmt.Errorf("messages under way did not arrive in %v: %s", drainTimeout, strings.Join(reasons, "; "))
		}
		goruntime.Gosched()
	}
	if why := j.runtime.Holds(); why != "" {
		return fmt.Errorf("%s", why)
	}
	return nil
}
