// SPDX-License-Identifier: Apache-2.0

package files

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// fdinfo is what /proc/self/fdinfo/N says beyond what system calls tell.
type fdinfo struct {
	locks     []Lock
	lease     bool
	counter   uint64
	semaphore bool
	timer     Timer
	signals   uint64
	watches   []watchInfo
	inotify   int // number of watches of an inotify queue
}

// watchInfo is a watch with the identity of its target, to tell whether the number still refers to it.
type watchInfo struct {
	Watch
	ino uint64
}

func readFdinfo(fd int) (fdinfo, error) {
	text, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return fdinfo{}, fmt.Errorf("look at descriptor %d: %w", fd, err)
	}
	info, err := parseFdinfo(string(text))
	if err != nil {
		return fdinfo{}, fmt.Errorf("look at descriptor %d: /proc/self/fdinfo/%d: %w", fd, fd, err)
	}
	return info, nil
}

func parseFdinfo(text string) (fdinfo, error) {
	var info fdinfo
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			if strings.HasPrefix(line, "inotify wd") {
				info.inotify++
			}
			continue
		}
		value = strings.TrimSpace(value)
		var err error
		switch key {
		case "lock":
			err = info.addLock(value)
		case "eventfd-count":
			info.counter, err = strconv.ParseUint(value, 16, 64)
		case "eventfd-semaphore":
			info.semaphore = value == "1"
		case "clockid":
			info.timer.Clock, err = strconv.Atoi(value)
		case "ticks":
			info.timer.Ticks, err = strconv.ParseUint(value, 10, 64)
		case "it_value":
			info.timer.Left, err = parseTime(value)
		case "it_interval":
			info.timer.Interval, err = parseTime(value)
		case "sigmask":
			info.signals, err = strconv.ParseUint(value, 16, 64)
		case "tfd":
			err = info.addWatch(value)
		default:
			if strings.HasPrefix(key, "inotify wd") {
				info.inotify++
			}
		}
		if err != nil {
			return fdinfo{}, fmt.Errorf("line %q: %w", strings.TrimSpace(line), err)
		}
	}
	return info, nil
}

// parseTime reads "(seconds, nanoseconds)" as nanoseconds.
func parseTime(s string) (int64, error) {
	inner, ok := strings.CutPrefix(s, "(")
	inner, ok2 := strings.CutSuffix(inner, ")")
	sec, ns, ok3 := strings.Cut(inner, ", ")
	if !ok || !ok2 || !ok3 {
		return 0, fmt.Errorf("time %q is not (seconds, nanoseconds)", s)
	}
	a, err := strconv.ParseInt(sec, 10, 64)
	if err != nil {
		return 0, err
	}
	b, err := strconv.ParseInt(ns, 10, 64)
	if err != nil {
		return 0, err
	}
	if a < 0 || a > 9e9 || b < 0 || b >= 1e9 {
		return 0, fmt.Errorf("time %q out of range", s)
	}
	return a*1e9 + b, nil
}

// addLock reads "1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 0 EOF".
func (info *fdinfo) addLock(value string) error {
	f := strings.Fields(value)
	if len(f) == 9 && f[1] == "->" { // somebody who waits for the lock above
		return nil
	}
	if len(f) != 8 {
		return fmt.Errorf("%d words in a lock, expected 8", len(f))
	}
	l := Lock{Write: f[3] == "WRITE"}
	switch f[1] {
	case "FLOCK":
		l.Kind = "flock"
	case "POSIX":
		l.Kind = "posix"
	case "OFDLCK":
		l.Kind = "ofd"
	case "LEASE", "DELEG":
		info.lease = true
		return nil
	default:
		return fmt.Errorf("unknown lock %q", f[1])
	}
	start, err := strconv.ParseInt(f[6], 10, 64)
	if err != nil {
		return err
	}
	l.Start = start
	if f[7] != "EOF" {
		end, err := strconv.ParseInt(f[7], 10, 64)
		if err != nil {
			return err
		}
		l.Len = end - start + 1
	}
	if l.Start < 0 || l.Len < 0 {
		return fmt.Errorf("lock from %s to %s", f[6], f[7])
	}
	info.locks = append(info.locks, l)
	return nil
}

// addWatch reads what follows "tfd:": "5 events: 1d data: ffff  pos:0 ino:61af sdev:7".
func (info *fdinfo) addWatch(value string) error {
	var w watchInfo
	f := strings.Fields(value)
	if len(f) < 5 || f[1] != "events:" || f[3] != "data:" {
		return fmt.Errorf("not a watch")
	}
	var err error
	if w.FD, err = strconv.Atoi(f[0]); err != nil {
		return err
	}
	events, err := strconv.ParseUint(f[2], 16, 32)
	if err != nil {
		return err
	}
	w.Events = uint32(events)
	if w.Data, err = strconv.ParseUint(f[4], 16, 64); err != nil {
		return err
	}
	for _, word := range f[5:] {
		if ino, ok := strings.CutPrefix(word, "ino:"); ok {
			if w.ino, err = strconv.ParseUint(ino, 16, 64); err != nil {
				return err
			}
		}
	}
	info.watches = append(info.watches, w)
	return nil
}
