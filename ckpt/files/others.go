// SPDX-License-Identifier: Apache-2.0

package files

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is what /proc tells of one of this process's ancestors.
type process struct {
	pid, parent int
	name        string
	started     time.Duration // since the start of the machine
}

// alsoWrites names an ancestor of this process that has a file as its standard output or error and may have written
// there since the checkpoint, "" when there is none: a script that started the job, and says in the same file that it
// does. One that was started after the last writing has written nothing (timeout, env, a shell for one command). Those
// that may not be looked at are taken for none.
func alsoWrites(st *unix.Stat_t) string {
	written := sinceBoot(st.Mtim)
	for p, ok := about(os.Getppid()); ok; p, ok = about(p.parent) {
		if p.mayHaveWritten(written) && (isFile(p.pid, 1, st) || isFile(p.pid, 2, st)) {
			return fmt.Sprintf("%s (process %d)", p.name, p.pid)
		}
	}
	return ""
}

// unsure is how exactly it is known when a process was started, and when a file was written.
const unsure = 20 * time.Millisecond

// mayHaveWritten tells whether it was there at that time. Where that is not sure, a script was, which says something and
// starts the job at once; a launcher that is started at once after a job has ended was not.
func (p *process) mayHaveWritten(at time.Duration) bool {
	return p.started+unsure < at || p.started < at && slices.ContainsFunc(interpreters, func(i string) bool { return strings.HasPrefix(p.name, i) })
}

var interpreters = []string{"sh", "bash", "dash", "ksh", "zsh", "csh", "tcsh", "fish", "make", "python", "perl", "ruby", "slurm_script"}

func isFile(pid, fd int, st *unix.Stat_t) bool {
	var its unix.Stat_t
	return unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), &its) == nil && keyOf(&its) == keyOf(st)
}

// sinceBoot gives a time of the calendar as one since the start of the machine. Times of files are those of the last
// tick of the clock, which is added.
func sinceBoot(at unix.Timespec) time.Duration {
	const tick = 10 * time.Millisecond
	var calendar, boot unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &calendar) // fails for unknown clocks alone
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot)
	return time.Duration(at.Nano() - calendar.Nano() + boot.Nano() + int64(tick))
}

func about(pid int) (process, bool) {
	if pid <= 0 {
		return process{}, false
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, false
	}
	return parseStat(pid, string(text))
}

// parseStat reads /proc/PID/stat: the name in brackets may have any character.
func parseStat(pid int, text string) (process, bool) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return process{}, false
	}
	words := strings.Fields(text[end+1:])
	const parent, started = 1, 19 // of these words; fields 4 and 22 of proc(5)
	if len(words) <= started {
		return process{}, false
	}
	p := process{pid: pid, name: text[open+1 : end]}
	ticks, err := strconv.ParseInt(words[started], 10, 64)
	if err != nil {
		return process{}, false
	}
	p.parent, err = strconv.Atoi(words[parent])
	p.started = time.Duration(ticks) * (time.Second / 100) // USER_HZ is 100 for programs, on each x86-64
	return p, err == nil
}
