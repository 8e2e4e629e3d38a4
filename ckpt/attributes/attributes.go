// SPDX-License-Identifier: Apache-2.0

package attributes

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Section is the name of the image's section.
const Section = "attributes"

// Asked is what the program may have asked the kernel for, as struct host_ops has it (CKPT_ASKED).
type Asked uint32

// Barriers are commands of membarrier by which a process registers, as the kernel numbers them.
const (
	Hidden   Asked = 1    // some memory is hidden from forks
	Advice   Asked = 2    // other advice on memory that a mapping keeps
	Locked   Asked = 8    // memory stays in memory
	Rights   Asked = 32   // other ids, groups or capabilities
	Filter   Asked = 128  // a filter for its system calls
	AIO      Asked = 1024 // a context of asynchronous I/O
	Barriers Asked = 4 | 16 | 64 | 256
)

// ThreadID is a thread's id as the program knows it, and the kernel's.
type ThreadID struct{ Virtual, Real int }

// Thread is how a thread runs, where that differs from how the process began.
type Thread struct {
	ID       int       `json:"id"` // as the program knows it
	Schedule *Schedule `json:"schedule,omitempty"`
	CPUs     []uint64  `json:"cpus,omitempty"` // 64 each, the lowest first
}

// Schedule is a policy with its parameters: sched_setattr(2).
type Schedule struct {
	Policy   uint32 `json:"policy"`
	Flags    uint64 `json:"flags,omitempty"`
	Nice     int32  `json:"nice,omitempty"`
	Priority uint32 `json:"priority,omitempty"`
	Runtime  uint64 `json:"runtime,omitempty"` // ns, as the next two
	Deadline uint64 `json:"deadline,omitempty"`
	Period   uint64 `json:"period,omitempty"`
}

// State is the section.
type State struct {
	Barriers Asked    `json:"barriers,omitempty"`
	Threads  []Thread `json:"threads,omitempty"`
	Limits   []Limit  `json:"limits,omitempty"`
	Choices  []Choice `json:"choices,omitempty"`
}

// Start is how the process began. Where the kernel does not tell (Err), nothing is said of anything.
type Start struct {
	Err      error
	limit    OwnLimit
	process  process
	schedule Schedule
	cpus     []uint64
}

const (
	mostThreads = 1 << 20
	mostCPUs    = 1 << 16
)

// OwnLimit is a limit that the program sees where the kernel has another for the whole process, as it was: that of descriptors,
// addresses or data. Then it becomes that of set, if there is one.
type OwnLimit func(resource int, set *unix.Rlimit) (unix.Rlimit, error)

// Begin looks at the calling process before the program runs.
func Begin(limit OwnLimit) (s Start) {
	s.limit = limit
	var err error
	if s.schedule, err = scheduleOf(0); err != nil {
		s.Err = fmt.Errorf("how this process is scheduled: %w", err)
	} else if s.cpus, err = cpusOf(0); err != nil {
		s.Err = fmt.Errorf("where this process may run: %w", err)
	} else {
		s.process, s.Err = s.processNow()
	}
	return s
}

func scheduleOf(tid int) (Schedule, error) {
	a, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		return Schedule{}, err
	}
	return Schedule{Policy: a.Policy, Flags: a.Flags, Nice: a.Nice, Priority: a.Priority, Runtime: a.Runtime,
		Deadline: a.Deadline, Period: a.Period}, nil
}

func cpusOf(tid int) ([]uint64, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(tid, &set); err != nil {
		return nil, err
	}
	all := make([]uint64, len(set))
	for i, word := range set {
		all[i] = uint64(word)
	}
	return trim(all), nil
}

func trim(cpus []uint64) []uint64 {
	for len(cpus) > 0 && cpus[len(cpus)-1] == 0 {
		cpus = cpus[:len(cpus)-1]
	}
	return cpus
}

// Read looks at the stopped threads of the program. A thread that is gone meanwhile is left out.
func (s Start) Read(threads []ThreadID, asked Asked) (State, error) {
	state := State{Barriers: asked & Barriers}
	if s.Err != nil {
		return state, nil
	}
	for _, t := range threads {
		schedule, err := scheduleOf(t.Real)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return state, fmt.Errorf("how thread %d is scheduled: %w", t.Virtual, err)
		}
		cpus, err := cpusOf(t.Real)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return state, fmt.Errorf("where thread %d may run: %w", t.Virtual, err)
		}
		one := Thread{ID: t.Virtual}
		if schedule != s.schedule {
			if schedule.Policy != unix.SCHED_DEADLINE && schedule.Runtime == s.schedule.Runtime {
				schedule.Runtime = 0 // the machine's slice, which newer kernels tell
			}
			one.Schedule = &schedule
		}
		if !slices.Equal(cpus, s.cpus) {
			one.CPUs = cpus
		}
		if one.Schedule != nil || one.CPUs != nil {
			state.Threads = append(state.Threads, one)
		}
	}
	now, err := s.processNow()
	if err != nil {
		return state, err
	}
	state.Limits, state.Choices = s.process.changed(now)
	return state, nil
}

// Encode is the section's content; nil when there is nothing to say.
func (s State) Encode() ([]byte, error) {
	if s.Barriers == 0 && len(s.Threads) == 0 && len(s.Limits) == 0 && len(s.Choices) == 0 {
		return nil, nil
	}
	return json.Marshal(s)
}

// Decode reads a section.
func Decode(b []byte) (s State, err error) {
	if err := json.Unmarshal(b, &s); err != nil {
		return State{}, err
	}
	switch {
	case s.Barriers&^Barriers != 0:
		return State{}, fmt.Errorf("registrations %#x of membarrier are not known", uint32(s.Barriers))
	case len(s.Threads) > mostThreads:
		return State{}, fmt.Errorf("%d threads", len(s.Threads))
	}
	for _, t := range s.Threads {
		if t.ID <= 0 || len(t.CPUs)*64 > mostCPUs {
			return State{}, fmt.Errorf("thread %d with %d processors", t.ID, len(t.CPUs)*64)
		}
	}
	if err := check(s.Limits, s.Choices); err != nil {
		return State{}, err
	}
	return s, nil
}

// Apply gives the process what the state says, after its threads are made again and before they run. What cannot be had comes
// back as text for people, one line each; it is lost.
func (s Start) Apply(state State, threads []ThreadID) (lost []string) {
	for cmd := Asked(1); cmd <= Barriers; cmd <<= 1 {
		if state.Barriers&cmd == 0 {
			continue
		}
		if _, _, e := unix.Syscall(unix.SYS_MEMBARRIER, uintptr(cmd), 0, 0); e != 0 {
			lost = append(lost, fmt.Sprintf("the kernel does not register the process for membarrier, command %d (%v): calls that need it fail", cmd, e))
		}
	}
	real := map[int]int{}
	for _, t := range threads {
		real[t.Virtual] = t.Real
	}
	for _, t := range state.Threads {
		tid, ok := real[t.ID]
		if !ok {
			continue
		}
		if t.Schedule != nil {
			if err := t.Schedule.set(tid); err != nil {
				lost = append(lost, fmt.Sprintf("thread %d had %v, which it cannot have here (%v)", t.ID, t.Schedule, err))
			}
		}
		if len(t.CPUs) > 0 {
			if err := s.bind(tid, t.CPUs); err != nil {
				lost = append(lost, fmt.Sprintf("thread %d was bound to processors %s, %v: it runs on %s", t.ID, list(t.CPUs), err, list(s.cpus)))
			}
		}
	}
	return append(lost, s.applyProcess(state)...)
}

func (s *Schedule) String() string {
	name := map[uint32]string{unix.SCHED_NORMAL: "SCHED_OTHER", unix.SCHED_FIFO: "SCHED_FIFO", unix.SCHED_RR: "SCHED_RR",
		unix.SCHED_BATCH: "SCHED_BATCH", unix.SCHED_IDLE: "SCHED_IDLE", unix.SCHED_DEADLINE: "SCHED_DEADLINE"}[s.Policy]
	if name == "" {
		name = fmt.Sprintf("policy %d", s.Policy)
	}
	if s.Priority != 0 {
		return fmt.Sprintf("%s with priority %d", name, s.Priority)
	}
	return fmt.Sprintf("%s with niceness %d", name, s.Nice)
}

func (s *Schedule) set(tid int) error {
	return unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: s.Policy, Flags: s.Flags, Nice: s.Nice,
		Priority: s.Priority, Runtime: s.Runtime, Deadline: s.Deadline, Period: s.Period}, 0)
}

var errNotOurs = errors.New("which the launcher did not give it here")

// bind binds a thread where all of that belongs to this process: a launcher gives ranks processors of their own.
func (s Start) bind(tid int, cpus []uint64) error {
	var set unix.CPUSet
	for i, word := range cpus {
		if i >= len(s.cpus) || i >= len(set) || word&^s.cpus[i] != 0 {
			if word != 0 {
				return errNotOurs
			}
			continue
		}
		for b := range 64 {
			if word>>b&1 != 0 {
				set.Set(64*i + b)
			}
		}
	}
	return unix.SchedSetaffinity(tid, &set)
}

// list writes processors as people do: 0-3,8.
func list(cpus []uint64) string {
	text := ""
	has := func(n int) bool { return n < 64*len(cpus) && cpus[n/64]>>(n%64)&1 != 0 }
	for n := 0; n < 64*len(cpus); n++ {
		if !has(n) {
			continue
		}
		first := n
		for has(n + 1) {
			n++
		}
		if text != "" {
			text += ","
		}
		if text += fmt.Sprint(first); n > first {
			text += fmt.Sprintf("-%d", n)
		}
	}
	return text
}
