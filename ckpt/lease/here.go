// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Life is what is known of an owner.
type Life int

// What can be known.
const (
	Unknown Life = iota // it is on another node, or its record is damaged
	Dead
	Dying   // killed, and not gone yet
	Stopped // it lives and does not run, as after SIGSTOP
	Alive
	Self // it is this process, before an exec
)

// Lives tells whether it is known to live.
func (l Life) Lives() bool { return l >= Stopped }

// node is this process and where it runs. Tests play several.
type node struct {
	host, boot, space string
	pid               int
	start             uint64
	life              func(pid int, start uint64) Life
	// lock takes and frees the lock of a file; it reports errors as flock does.
	lock func(f *os.File, how int) error
}

func here() (*node, error) {
	n := &node{pid: os.Getpid(), life: processLife, lock: flock}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("tell this node from others: %w", err)
	}
	n.boot = strings.TrimSpace(string(boot))
	if n.space, err = os.Readlink("/proc/self/ns/pid"); err != nil {
		return nil, fmt.Errorf("tell this node's processes from those of other containers: %w", err)
	}
	n.host, _ = os.Hostname() // for people
	st, err := readStat(fmt.Sprintf("/proc/%d/stat", n.pid))
	n.start = st.start
	return n, err
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}

// knows tells what this node knows of the owner of a record, whose file is at path.
func (n *node) knows(r *Record, path string) Life {
	switch {
	case r.Boot == "" || r.Boot != n.boot:
		return Unknown
	case r.Space == n.space && r.PID == n.pid && r.Start == n.start:
		return Self
	case r.Space == n.space:
		return n.life(r.PID, r.Start)
	case !r.Locked:
		return Unknown
	}
	// Another container of this machine: its process numbers mean nothing here. Shared, so that two who
	// look do not take each other for the owner.
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return Unknown
	}
	defer f.Close()
	switch err := n.lock(f, unix.LOCK_SH|unix.LOCK_NB); {
	case err == nil:
		_ = n.lock(f, unix.LOCK_UN)
		return Dead
	case errors.Is(err, unix.EWOULDBLOCK):
		return Alive
	}
	return Unknown
}

// processStat is what /proc/PID/stat tells.
type processStat struct {
	state byte
	flags uint64
	start uint64
}

func readStat(path string) (processStat, error) {
	var s processStat
	b, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return s, fmt.Errorf("%s: %d fields", path, len(fields))
	}
	s.state = fields[0][0]
	if s.flags, err = strconv.ParseUint(fields[6], 10, 64); err == nil {
		s.start, err = strconv.ParseUint(fields[19], 10, 64)
	}
	return s, err
}

// Flags of a task that will not run its program again: it exits, dumps core, or was killed.
const taskEnds = 0x4 | 0x200 | 0x400

// processLife tells whether the process with that number, started then, lives. Its first thread may have
// ended long before the others.
func processLife(pid int, start uint64) Life {
	dir := fmt.Sprintf("/proc/%d", pid)
	st, err := readStat(dir + "/stat")
	if err != nil {
		// Where /proc hides the processes of others, a signal still tells that it is there.
		if e := unix.Kill(pid, 0); e == nil || e == unix.EPERM {
			return Alive
		}
		return Dead
	}
	if st.start != start {
		return Dead
	}
	tasks, _ := filepath.Glob(dir + "/task/[0-9]*")
	life := Dead
	for _, task := range tasks {
		kill := killed(task) // before the flags: one of the two is set from then on
		st, err := readStat(task + "/stat")
		switch {
		case err != nil, st.state == 'Z', st.state == 'X':
		case st.flags&taskEnds != 0, kill:
			life = max(life, Dying)
		case st.state == 'T', st.state == 't':
			life = max(life, Stopped)
		default:
			life = Alive
		}
	}
	return life
}

// killed tells whether SIGKILL has been sent and not arrived.
func killed(task string) bool {
	b, err := os.ReadFile(task + "/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if name, set, ok := strings.Cut(line, ":"); ok && (name == "SigPnd" || name == "ShdPnd") {
			if n, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64); err == nil && n&(1<<(unix.SIGKILL-1)) != 0 {
				return true
			}
		}
	}
	return false
}

func sortDown(list []uint64) {
	slices.SortFunc(list, func(a, b uint64) int {
		if a > b {
			return -1
		}
		return 1
	})
}
