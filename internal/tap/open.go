// SPDX-License-Identifier: Apache-2.0

package tap

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// ErrPrivilege is wrapped by every error that means: this user, here, may not watch.
var ErrPrivilege = errors.New("this user may not load eBPF programs here")

// ErrKernel is wrapped when the kernel cannot do it, whoever asks.
var ErrKernel = errors.New("this kernel cannot")

// advice is what to do without the privilege.
const advice = "it takes root, or the capabilities CAP_BPF and CAP_PERFMON, in the first user namespace; in a container also a seccomp profile that allows bpf(2) and perf_event_open(2)"

// explain says what is missing.
func explain(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		// What the library adds is for those who write programs, such as calls of its own.
		if errno, ok := errors.AsType[unix.Errno](err); ok {
			err = errno
		}
		return fmt.Errorf("%s: %w: %s (%w)", what, ErrPrivilege, advice, err)
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%s: %w: %w", what, ErrKernel, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// initialPIDs is the inode of the first PID namespace: include/linux/proc_ns.h.
const initialPIDs = 0xEFFFFFFC

// Allowed says whether programs can be loaded, by loading the smallest.
func Allowed() error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("%w: the programs are for x86-64", ErrKernel)
	}
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) == nil && st.Ino != initialPIDs {
		return fmt.Errorf("%w: this is a PID namespace of its own, as in a container, and the kernel names processes as the host does; run it on the host", ErrPrivilege)
	}
	_ = rlimit.RemoveMemlock() // needed before Linux 5.11 only; what it would forbid fails below
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "allowed", Type: ebpf.RawTracepoint, License: license,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		return explain("loading an eBPF program", err)
	}
	return p.Close()
}

// license is told to the kernel: helpers for tracing are for such programs only.
const license = "Dual MIT/GPL"

// maxProcesses bounds how many processes are watched at a time.
const maxProcesses = 4096

// newProcesses makes the map of the processes that are watched.
func newProcesses(pids []int) (*ebpf.Map, error) {
	if len(pids) == 0 || len(pids) > maxProcesses {
		return nil, fmt.Errorf("%d processes: 1 to %d can be watched", len(pids), maxProcesses)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "processes", Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: maxProcesses})
	if err != nil {
		return nil, explain("making an eBPF map", err)
	}
	for i, pid := range pids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
			return nil, errors.Join(fmt.Errorf("process %d has ended", pid), m.Close())
		}
		if err := m.Put(uint32(pid), uint32(i)); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	return m, nil
}
