// SPDX-License-Identifier: Apache-2.0

package tap

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Target is a process, and the functions of it that are counted. A probe puts an instruction of the kernel's into the
// process's copy of the code, and an address of the kernel's onto the stack of a call: neither may lie in memory that
// somebody saves.
type Target struct {
	PID       int
	Library   string            // a file that the process has mapped; "": no functions
	Functions map[string]string // of the library: their names for people, by symbol
}

// Sum is what a thread did in one function or system call, since it is watched.
type Sum struct {
	PID, Thread int
	Name        string // "MPI_Send", or of a system call
	System      bool
	Calls       uint64
	Nanoseconds uint64 // of calls that are over
}

// Calls counts and times calls.
type Calls struct {
	processes, underWay, numbers, sums *ebpf.Map
	programs                           []*ebpf.Program
	links                              []link.Link
	functions                          []string // by cookie
	read                               map[sumKey]sumValue
}

// WatchCalls begins to count. systemCalls: the calls of the kernel, too. What each thread did is counted by itself: whose
// a thread is that has just been made, who reads the sums may find out in time, and who is asked at its first call may not.
func WatchCalls(targets []Target, systemCalls bool) (_ *Calls, err error) {
	if err := Allowed(); err != nil {
		return nil, err
	}
	c := &Calls{read: map[sumKey]sumValue{}}
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	var pids []int
	for _, t := range targets {
		pids = append(pids, t.PID)
	}
	if c.processes, err = newProcesses(pids); err != nil {
		return nil, err
	}
	for _, m := range []struct {
		at   **ebpf.Map
		spec ebpf.MapSpec
	}{
		{&c.underWay, ebpf.MapSpec{Name: "under_way", Type: ebpf.Hash, KeySize: 16, ValueSize: 8, MaxEntries: 1 << 16}},
		{&c.numbers, ebpf.MapSpec{Name: "numbers", Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 1 << 16}},
		{&c.sums, ebpf.MapSpec{Name: "sums", Type: ebpf.Hash, KeySize: 16, ValueSize: 16, MaxEntries: 1 << 17}},
	} {
		if *m.at, err = ebpf.NewMap(&m.spec); err != nil {
			return nil, explain("making an eBPF map", err)
		}
	}
	if err := c.watchFunctions(targets); err != nil {
		return nil, err
	}
	if systemCalls {
		if err := c.watchSystem(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Calls) load(name string, kind ebpf.ProgramType, attach ebpf.AttachType, p asm.Instructions) (*ebpf.Program, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: kind, AttachType: attach, License: license, Instructions: p})
	if err != nil {
		return nil, explain("loading the eBPF program "+name, err)
	}
	c.programs = append(c.programs, prog)
	return prog, nil
}

// watchFunctions attaches probes to each process by itself: others that have the library pay nothing.
func (c *Calls) watchFunctions(targets []Target) error {
	if !slices.ContainsFunc(targets, func(t Target) bool { return t.Library != "" }) {
		return nil
	}
	entry, err := c.load("entry", ebpf.Kprobe, ebpf.AttachTraceUprobeMulti, functionEntry(c.processes, c.underWay))
	if err != nil {
		return err
	}
	leave, err := c.load("leave", ebpf.Kprobe, ebpf.AttachTraceUprobeMulti, functionReturn(c.processes, c.underWay, c.sums))
	if err != nil {
		return err
	}
	number := map[string]int{}
	for _, t := range targets {
		for _, name := range t.Functions {
			if _, ok := number[name]; !ok {
				number[name] = len(c.functions)
				c.functions = append(c.functions, name)
			}
		}
	}
	had := map[string]*library{}
	for _, t := range targets {
		if t.Library == "" {
			continue
		}
		if err := mayReturn(t.PID); err != nil {
			return err
		}
		lib := had[t.Library]
		if lib == nil {
			if lib, err = openLibrary(t, number); err != nil {
				return err
			}
			had[t.Library] = lib
		}
		options := &link.UprobeMultiOptions{PID: uint32(t.PID), Addresses: lib.places, Cookies: lib.cookies}
		for _, attach := range []func() (link.Link, error){
			// The return first: a call that began before is not known there.
			func() (link.Link, error) { return lib.file.UretprobeMulti(nil, leave, options) },
			func() (link.Link, error) { return lib.file.UprobeMulti(nil, entry, options) },
		} {
			l, err := attach()
			if errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("process %d has ended", t.PID)
			}
			if err != nil {
				return explain(fmt.Sprintf("watching %s in process %d", t.Library, t.PID), err)
			}
			c.links = append(c.links, l)
		}
	}
	return nil
}

// mayReturn refuses where the return from a watched function would end the process: kernels 6.11 to 6.13 come to its probe by
// a system call that a seccomp filter of the process does not know.
func mayReturn(pid int) error {
	var name unix.Utsname
	var major, minor int
	if unix.Uname(&name) != nil {
		return nil
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil || major != 6 || minor < 11 || minor > 13 {
		return nil
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err == nil && strings.Contains(string(b), "\nSeccomp:\t2\n") {
		return fmt.Errorf("%w watch functions of process %d: it has a seccomp filter, which in Linux %d.%d ends a process that is watched; system calls can be watched",
			ErrKernel, pid, major, minor)
	}
	return nil
}

func (c *Calls) watchSystem() error {
	for _, p := range []struct {
		at   string
		code asm.Instructions
	}{
		{"sys_exit", systemReturn(c.processes, c.underWay, c.numbers, c.sums)},
		{"sys_enter", systemEntry(c.processes, c.underWay, c.numbers)},
	} {
		prog, err := c.load(p.at, ebpf.RawTracepoint, ebpf.AttachNone, p.code)
		if err != nil {
			return err
		}
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: p.at, Program: prog})
		if err != nil {
			return explain("watching the tracepoint "+p.at, err)
		}
		c.links = append(c.links, l)
	}
	return nil
}

// sumKey is a key of the sums. Thread and PID are as bpf_get_current_pid_tgid has them.
type sumKey struct {
	Thread, PID uint32
	Function    uint64
}

type sumValue struct{ Calls, Nanoseconds uint64 }

// Read returns what was counted since it was called last. Threads that have ended are forgotten then, as what they were in
// when they ended: the maps would be full of them some day, and the kernel gives their numbers to others.
func (c *Calls) Read() ([]Sum, error) {
	alive := map[uint32]bool{}
	there := func(k sumKey) bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", k.PID, k.Thread))
		return err == nil
	}
	var key sumKey
	var value sumValue
	for all := c.sums.Iterate(); all.Next(&key, &value); {
		if _, known := alive[key.Thread]; !known {
			alive[key.Thread] = there(key)
		}
	}
	// What is read now of a thread that was gone before is all of it.
	var list []Sum
	var ended []sumKey
	all := c.sums.Iterate()
	for all.Next(&key, &value) {
		was := c.read[key]
		c.read[key] = value
		if is, known := alive[key.Thread]; known && !is {
			ended = append(ended, key)
		}
		s := Sum{PID: int(key.PID), Thread: int(key.Thread), Calls: value.Calls - was.Calls, Nanoseconds: value.Nanoseconds - was.Nanoseconds}
		switch n := key.Function; {
		case s.Calls == 0:
			continue
		case n&systemCall != 0:
			s.System, s.Name = true, systemCallName(int(n&^systemCall))
			if s.Name == "uretprobe" || s.Name == "uprobe" {
				continue // ours: so a probe comes to the kernel
			}
		case n < uint64(len(c.functions)):
			s.Name = c.functions[n]
		default:
			continue
		}
		list = append(list, s)
	}
	err := all.Err()
	for _, key := range ended {
		if !there(key) { // another may have its number
			err = errors.Join(err, c.forget(key))
		}
	}
	return list, err
}

// forget removes a sum of a thread that has ended, and the system call that it ended in.
func (c *Calls) forget(key sumKey) error {
	delete(c.read, key)
	thread := uint64(key.PID)<<32 | uint64(key.Thread)
	var errs []error
	for _, err := range []error{c.sums.Delete(key), c.numbers.Delete(thread), c.underWay.Delete([2]uint64{thread, underCall})} {
		if !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Close ends it: nothing of it stays in the kernel.
func (c *Calls) Close() error {
	var errs []error
	for _, l := range c.links {
		errs = append(errs, l.Close())
	}
	for _, p := range c.programs {
		errs = append(errs, p.Close())
	}
	for _, m := range []*ebpf.Map{c.processes, c.underWay, c.numbers, c.sums} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}
