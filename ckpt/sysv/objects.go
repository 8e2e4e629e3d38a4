// SPDX-License-Identifier: Apache-2.0

package sysv

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Semaphores and message queues. Nobody has one attached, so those are saved that processes of the job have made, or have
// found by a key: all that they use.

// Kind is one of those below.
type Kind int

// Each kind has ids of its own.
const (
	Segments Kind = iota
	Semaphores
	Queues
	kinds
)

func (k Kind) String() string {
	return [...]string{"System V segment", "System V set of semaphores", "System V message queue"}[k]
}

// Undo is what the kernel adds to a semaphore when this process ends (SEM_UNDO); or, with Set, that this process has set
// its value, by which the kernel forgets that in all processes.
type Undo struct {
	Virtual  int   `json:"virtual"`
	Number   int   `json:"number"` // of the semaphore; -1: all of the set
	Adjust   int   `json:"adjust"`
	Set      bool  `json:"set,omitempty"`
	From, To int64 // when, in ns of CLOCK_MONOTONIC
}

// Table is what whoever emulates the program's calls knows of its objects.
type Table struct {
	IDs  [kinds][]ID
	Undo []Undo
}

// Object is a set of semaphores or a queue: of this process in a [Report], of all of a node in a [Section].
type Object struct {
	Kind    Kind     `json:"kind"`
	Virtual int      `json:"virtual"`
	Real    int      `json:"real"`
	Made    bool     `json:"made,omitempty"`
	Users   []int    `json:"users,omitempty"` // ranks that know it
	Leader  int      `json:"leader"`          // the rank whose image has the content
	Key     int      `json:"key"`
	Mode    uint32   `json:"mode"`
	UID     uint32   `json:"uid"`
	GID     uint32   `json:"gid"`
	Number  int      `json:"number,omitempty"` // semaphores
	Most    uint64   `json:"most,omitempty"`   // bytes of a queue's messages
	Undone  []Undone `json:"undone,omitempty"`

	Values   []uint16  `json:"values,omitempty"` // in the leader's image
	Messages []Message `json:"messages,omitempty"`
}

// Undone is what the end of a rank does to a semaphore.
type Undone struct {
	Rank   int `json:"rank"`
	Number int `json:"number"`
	Adjust int `json:"adjust"`
}

func (o *Object) String() string {
	if o.Key == 0 {
		return fmt.Sprintf("%s %d (private)", o.Kind, o.Virtual)
	}
	return fmt.Sprintf("%s %d (key %#x)", o.Kind, o.Virtual, uint32(o.Key))
}

// use is who has used an object last, and when at the latest.
type use struct {
	pids []int
	at   time.Time
	wait int // processes that wait for semaphores now
}

// look asks the kernel about an object; false: it is gone.
func look(kind Kind, id ID) (o Object, there bool, err error) {
	o = Object{Kind: kind, Virtual: id.Virtual, Real: id.Real, Made: id.Made}
	var perm unix.SysvIpcPerm
	if kind == Queues {
		var st queueStatus
		err = msgctl(id.Real, unix.IPC_STAT, unsafe.Pointer(&st))
		perm, o.Most = st.Perm, st.Most
	} else {
		var st semStatus
		_, err = semctl(id.Real, 0, unix.IPC_STAT, unsafe.Pointer(&st))
		perm, o.Number = st.Perm, int(st.Number)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EIDRM) {
		return o, false, nil
	}
	if err != nil {
		return o, false, fmt.Errorf("the %s: %w", &o, err)
	}
	o.Key, o.Mode, o.UID, o.GID = int(perm.Key), perm.Mode&0o777, perm.Uid, perm.Gid
	return o, true, nil
}

// used tells by whom an object was used last.
func (o *Object) used() (u use, err error) {
	if o.Kind == Queues {
		var st queueStatus
		err = msgctl(o.Real, unix.IPC_STAT, unsafe.Pointer(&st))
		return use{pids: []int{int(st.Sender), int(st.Receiver)}, at: time.Unix(max(st.Stime, st.Rtime), 0)}, err
	}
	var st semStatus
	if _, err := semctl(o.Real, 0, unix.IPC_STAT, unsafe.Pointer(&st)); err != nil {
		return u, err
	}
	u.at = time.Unix(max(st.Otime, st.Ctime), 0)
	for i := range o.Number {
		pid, err1 := semctl(o.Real, i, semGetPID, nil)
		up, err2 := semctl(o.Real, i, semGetNCnt, nil)
		zero, err3 := semctl(o.Real, i, semGetZCnt, nil)
		if err := cmp.Or(err1, err2, err3); err != nil {
			return u, err
		}
		u.pids = append(u.pids, pid)
		u.wait += up + zero
	}
	return u, nil
}

// strangers names processes beside the job that use an object, as far as the kernel tells.
func (o *Object) strangers(job map[int]bool) (names []string, err error) {
	u, err := o.used()
	if err != nil {
		return nil, fmt.Errorf("the %s: %w", o, err)
	}
	slices.Sort(u.pids)
	for _, pid := range slices.Compact(u.pids) {
		// A number may be another process's today.
		if begun, is := startOf(pid); pid > 0 && !job[pid] && is && !begun.After(u.at.Add(2*time.Second)) {
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			names = append(names, fmt.Sprintf("process %d (%s)", pid, strings.TrimSpace(string(comm))))
		}
	}
	if u.wait > 0 && len(names) == 0 {
		names = append(names, "a process that waits for it")
	}
	return names, nil
}

// onlyThis is the job of a restart, of which nobody else has used anything yet.
func onlyThis() map[int]bool { return map[int]bool{os.Getpid(): true} }

// startOf is when a process that is there began.
func startOf(pid int) (time.Time, bool) {
	const hertz, field = 100, 22 - 3 // of /proc/PID/stat, behind the name
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return time.Time{}, false
	}
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var up unix.Timespec
	if len(f) <= field || f[0] == "Z" || unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return time.Time{}, false
	}
	ticks, err := strconv.ParseInt(f[field], 10, 64)
	since := time.Duration(up.Nano()) - time.Duration(ticks)*(time.Second/hertz)
	return time.Now().Add(-since), err == nil
}

// lookObjects fills in what this process knows.
func (h *Here) lookObjects(known Table) error {
	h.report.Undo = known.Undo
	for _, kind := range []Kind{Semaphores, Queues} {
		for _, id := range known.IDs[kind] {
			h.report.Kept[kind] = append(h.report.Kept[kind], id.Virtual)
			if id.Real < 0 {
				continue
			}
			o, there, err := look(kind, id)
			if err != nil {
				return err
			}
			if there {
				h.report.Objects = append(h.report.Objects, o)
			}
		}
	}
	return nil
}

// matchObjects finds out who uses what, and has the content of those that this process leads.
func (h *Here) matchObjects(rank int, reports []Report) (obstacles []string) {
	type key struct {
		kind Kind
		real int
	}
	at := map[key]int{}
	job := map[int]bool{}
	virtual := map[[2]int]bool{}
	makers := map[key]int{}
	for r, report := range reports {
		for k := range report.Kept {
			h.kept[k] = append(h.kept[k], report.Kept[k]...)
		}
		if !report.Node.same(h.report.Node) {
			continue
		}
		job[report.PID] = true
		for _, one := range report.Objects {
			k := key{one.Kind, one.Real}
			i, is := at[k]
			if !is {
				i = len(h.objects)
				at[k] = i
				one.Leader = r
				h.objects = append(h.objects, one)
			}
			o := &h.objects[i]
			o.Users = append(o.Users, r)
			if _, is := makers[k]; !is && one.Made {
				makers[k] = r
				o.Leader = r
			}
			o.Made = false
		}
	}
	for k := range h.kept {
		slices.Sort(h.kept[k])
		h.kept[k] = slices.Compact(h.kept[k])
	}
	for i := range h.objects {
		o := &h.objects[i]
		if name := [2]int{int(o.Kind), o.Virtual}; virtual[name] {
			obstacles = append(obstacles, fmt.Sprintf("the %s is there twice for processes of the job, which were on several nodes: remove one of them", o))
		} else {
			virtual[name] = true
		}
		held := o.undo(reports, h.report.Node)
		if o.Leader != rank {
			continue
		}
		obstacles = append(obstacles, held...)
		names, err := o.strangers(job)
		if err != nil {
			obstacles = append(obstacles, err.Error())
		} else if len(names) > 0 {
			obstacles = append(obstacles, fmt.Sprintf("the %s is used by %s, outside the job, too: it cannot be saved", o, strings.Join(names, ", ")))
		}
	}
	return obstacles
}

// undo finds out what the ends of processes add to semaphores.
func (o *Object) undo(reports []Report, node Node) (obstacles []string) {
	if o.Kind != Semaphores {
		return nil
	}
	room := map[int]int{}
	for r, report := range reports {
		if !report.Node.same(node) {
			continue
		}
		for _, u := range report.Undo {
			if u.Virtual != o.Virtual || u.Set || u.Adjust == 0 || u.Number < 0 || u.Number >= o.Number {
				continue
			}
			forgotten, unsure := u.setBy(r, reports, node)
			if unsure {
				obstacles = append(obstacles, fmt.Sprintf("what the end of rank %d undoes of semaphore %d of the %s is not known: another process has set its value meanwhile",
					r, u.Number, o))
			}
			if forgotten {
				continue
			}
			o.Undone = append(o.Undone, Undone{r, u.Number, u.Adjust})
			if room[u.Number] += max(u.Adjust, -u.Adjust); room[u.Number] > semMost {
				obstacles = append(obstacles, fmt.Sprintf("the ends of processes undo too much of semaphore %d of the %s", u.Number, o))
			}
		}
	}
	return obstacles
}

// setBy tells whether another process has set the value since, or perhaps since.
func (u *Undo) setBy(rank int, reports []Report, node Node) (forgotten, unsure bool) {
	for r, report := range reports {
		if r == rank || !report.Node.same(node) {
			continue
		}
		for _, s := range report.Undo {
			if !s.Set || s.Virtual != u.Virtual || s.Number >= 0 && s.Number != u.Number || s.To < u.From {
				continue
			}
			if s.From > u.To {
				forgotten = true
			} else {
				unsure = true
			}
		}
	}
	return forgotten, unsure && !forgotten
}

// contents reads those that this process leads.
func (h *Here) contents() (list []Object, err error) {
	for _, o := range h.objects {
		switch {
		case o.Leader != h.rank:
		case o.Kind == Queues:
			o.Messages, err = messages(o.Real)
		default:
			o.Values, err = semValues(o.Real, o.Number)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the %s: %w", &o, err)
		}
		list = append(list, o)
	}
	return list, nil
}

// check is for what an image says.
func (o *Object) check(rank, size int) error {
	content := len(o.Values) + len(o.Messages)
	switch {
	case o.Kind != Semaphores && o.Kind != Queues:
		return fmt.Errorf("an object of kind %d", int(o.Kind))
	case o.Virtual < 0 || o.Real < 0:
		return fmt.Errorf("the %s, real %d", o, o.Real)
	case o.Leader < 0 || o.Leader >= size:
		return fmt.Errorf("the %s is of rank %d of %d", o, o.Leader, size)
	case o.Mode&^0o777 != 0:
		return fmt.Errorf("the %s has the mode %o", o, o.Mode)
	case o.Kind == Semaphores && (o.Number <= 0 || o.Leader == rank && len(o.Values) != o.Number || len(o.Messages) > 0):
		return fmt.Errorf("the %s has %d semaphores, %d values and %d messages", o, o.Number, len(o.Values), len(o.Messages))
	case o.Leader != rank && content > 0 || o.Kind == Queues && (o.Number != 0 || len(o.Values) > 0 || len(o.Undone) > 0):
		return fmt.Errorf("the %s has what it cannot have", o)
	}
	for k, r := range o.Users {
		if r < 0 || r >= size || k > 0 && r <= o.Users[k-1] {
			return fmt.Errorf("the %s is used by ranks %v of %d", o, o.Users, size)
		}
	}
	room := map[int]int{}
	for _, u := range o.Undone {
		// One at a time: a sum of large numbers may come out small.
		if u.Rank < 0 || u.Rank >= size || u.Number < 0 || u.Number >= o.Number || u.Adjust < -semMost || u.Adjust > semMost {
			return fmt.Errorf("the %s: the end of rank %d adds %d to semaphore %d", o, u.Rank, u.Adjust, u.Number)
		}
		if room[u.Number] += max(u.Adjust, -u.Adjust); room[u.Number] > semMost {
			return fmt.Errorf("the %s: too much is undone of semaphore %d", o, u.Number)
		}
	}
	for _, v := range o.Values {
		if v > semMost {
			return fmt.Errorf("the %s: the value %d", o, v)
		}
	}
	for _, m := range o.Messages {
		if m.Type <= 0 {
			return fmt.Errorf("the %s: a message of type %d", o, m.Type)
		}
	}
	return nil
}
