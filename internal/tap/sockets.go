// SPDX-License-Identifier: Apache-2.0

package tap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
)

// Moved is data that a process put into a socket or took out of it, in one call.
type Moved struct {
	At     uint64 // nanoseconds of CLOCK_MONOTONIC
	PID    int
	Thread int
	Socket uint64 // its inode, as in /proc/PID/fd; 0: a socket that no file stands for
	Bytes  uint32
	Sent   bool // else received
}

// Sockets sees the data that pass through sockets of some processes, of every family and by whichever system call.
type Sockets struct {
	processes, ring, lost *ebpf.Map
	programs              []*ebpf.Program
	links                 []link.Link
	reader                *ringbuf.Reader
	done                  chan struct{}

	mu    sync.Mutex
	moved []Moved
	full  bool
}

// maxMoved bounds what is kept.
const maxMoved = 4 << 20

// moveBytes is the length of a record of the ring: time, process and thread, inode, bytes, direction.
const moveBytes = 32

// WatchSockets begins to watch.
func WatchSockets(pids []int) (_ *Sockets, err error) {
	if err := Allowed(); err != nil {
		return nil, err
	}
	toSocket, toInode, err := socketPlaces()
	if err != nil {
		return nil, err
	}
	s := &Sockets{done: make(chan struct{})}
	defer func() {
		if err != nil {
			_ = s.release()
		}
	}()
	if s.processes, err = newProcesses(pids); err != nil {
		return nil, err
	}
	if s.ring, err = ebpf.NewMap(&ebpf.MapSpec{Name: "moved", Type: ebpf.RingBuf, MaxEntries: 16 << 20}); err != nil {
		return nil, explain("making an eBPF ring buffer", err)
	}
	if s.lost, err = ebpf.NewMap(&ebpf.MapSpec{Name: "lost", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}); err != nil {
		return nil, explain("making an eBPF map", err)
	}
	for n, at := range []string{"sock_send_length", "sock_recv_length"} {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: at, Type: ebpf.RawTracepoint, License: license,
			Instructions: socketMove(s.processes, s.ring, s.lost, toSocket, toInode, n == 0)})
		if err != nil {
			return nil, explain("loading the eBPF program "+at, err)
		}
		s.programs = append(s.programs, prog)
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: at, Program: prog})
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w: it has no tracepoint %s, which came with Linux 6.3", ErrKernel, at)
		}
		if err != nil {
			return nil, explain("watching the tracepoint "+at, err)
		}
		s.links = append(s.links, l)
	}
	if s.reader, err = ringbuf.NewReader(s.ring); err != nil {
		return nil, explain("reading the eBPF ring buffer", err)
	}
	go s.read()
	return s, nil
}

// socketPlaces says how to get from a struct sock to the inode of its file: the offset of its struct socket, and that of
// the number in what surrounds that. The kernel's own types say it.
func socketPlaces() (toSocket, toInode uint32, err error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return 0, 0, fmt.Errorf("%w: it does not tell its types (CONFIG_DEBUG_INFO_BTF): %w", ErrKernel, err)
	}
	at := func(name, member string) uint32 {
		var s *btf.Struct
		if e := kernel.TypeByName(name, &s); e != nil {
			err = errors.Join(err, e)
			return 0
		}
		for _, m := range s.Members {
			if m.Name == member {
				return m.Offset.Bytes()
			}
		}
		err = errors.Join(err, fmt.Errorf("%w: its struct %s has no member %s", ErrKernel, name, member))
		return 0
	}
	toSocket = at("sock", "sk_socket")
	toInode = at("socket_alloc", "vfs_inode") - at("socket_alloc", "socket") + at("inode", "i_ino")
	return toSocket, toInode, err
}

// Places of a record on the stack.
const (
	recordAt = -72 // 32 bytes
	tempAt   = -80
)

// socketMove is for sock_send_length and sock_recv_length: struct sock *, int length, int flags.
func socketMove(processes, ring, lost *ebpf.Map, toSocket, toInode uint32, sent bool) asm.Instructions {
	direction := int32(0)
	p := watched(processes)
	if sent {
		direction = 1
	} else { // who only looks at data moves nothing
		p = append(p, asm.LoadMem(asm.R1, asm.R6, 16, asm.DWord), asm.And.Imm(asm.R1, 2 /* MSG_PEEK */), asm.JNE.Imm(asm.R1, 0, "out"))
	}
	p = append(p,
		asm.LoadMem(asm.R8, asm.R6, 8, asm.DWord),
		asm.LSh.Imm(asm.R8, 32),
		asm.ArSh.Imm(asm.R8, 32),
		asm.JSLE.Imm(asm.R8, 0, "out"), // nothing, or an error
		asm.StoreMem(asm.RFP, recordAt+24, asm.R8, asm.Word),
		asm.Mov.Imm(asm.R1, direction),
		asm.StoreMem(asm.RFP, recordAt+28, asm.R1, asm.Word),
		asm.StoreMem(asm.RFP, recordAt+8, asm.R7, asm.DWord),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, tempAt, asm.R1, asm.DWord),
		asm.StoreMem(asm.RFP, recordAt+16, asm.R1, asm.DWord),
		asm.LoadMem(asm.R9, asm.R6, 0, asm.DWord), // struct sock *
		asm.Add.Imm(asm.R9, int32(toSocket)))
	p = append(p, pointer(asm.R1, tempAt)...)
	p = append(p,
		asm.Mov.Imm(asm.R2, 8), asm.Mov.Reg(asm.R3, asm.R9), asm.FnProbeReadKernel.Call(),
		asm.LoadMem(asm.R9, asm.RFP, tempAt, asm.DWord), // struct socket *
		asm.JEq.Imm(asm.R9, 0, "tell"),
		asm.Add.Imm(asm.R9, int32(toInode)))
	p = append(p, pointer(asm.R1, recordAt+16)...)
	p = append(p,
		asm.Mov.Imm(asm.R2, 8), asm.Mov.Reg(asm.R3, asm.R9), asm.FnProbeReadKernel.Call(),
		asm.FnKtimeGetNs.Call().WithSymbol("tell"),
		asm.StoreMem(asm.RFP, recordAt, asm.R0, asm.DWord),
		asm.LoadMapPtr(asm.R1, ring.FD()))
	p = append(p, pointer(asm.R2, recordAt)...)
	p = append(p,
		asm.Mov.Imm(asm.R3, moveBytes), asm.Mov.Imm(asm.R4, 0), asm.FnRingbufOutput.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, tempAt, asm.R1, asm.DWord),
		asm.LoadMapPtr(asm.R1, lost.FD()))
	p = append(p, pointer(asm.R2, tempAt)...)
	p = append(p, asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1), asm.StoreXAdd(asm.R0, asm.R1, asm.DWord))
	return append(p, out()...)
}

// read collects until the ring is closed.
func (s *Sockets) read() {
	defer close(s.done)
	le := binary.LittleEndian
	var r ringbuf.Record
	for s.reader.ReadInto(&r) == nil {
		b := r.RawSample
		if len(b) < moveBytes {
			continue
		}
		who := le.Uint64(b[8:])
		s.mu.Lock()
		if len(s.moved) < maxMoved {
			s.moved = append(s.moved, Moved{At: le.Uint64(b), PID: int(who >> 32), Thread: int(uint32(who)), Socket: le.Uint64(b[16:]),
				Bytes: le.Uint32(b[24:]), Sent: le.Uint32(b[28:]) != 0})
		} else {
			s.full = true
		}
		s.mu.Unlock()
	}
}

// ErrLost says that there was more than could be kept.
var ErrLost = errors.New("more data passed through the sockets than could be noted")

// Stop ends it, and returns all that passed, by process and time. The error wraps ErrLost when some of it is missing.
func (s *Sockets) Stop() ([]Moved, error) {
	var errs []error
	for _, l := range s.links { // from here on nothing is noted
		errs = append(errs, l.Close())
	}
	s.links = nil
	errs = append(errs, s.reader.Flush()) // what is there is read, then read ends
	<-s.done
	var lost uint64
	errs = append(errs, s.lost.Lookup(uint32(0), &lost), s.release())
	if lost > 0 || s.full {
		errs = append(errs, ErrLost)
	}
	return s.moved, errors.Join(errs...)
}

func (s *Sockets) release() error {
	var errs []error
	for _, l := range s.links {
		errs = append(errs, l.Close())
	}
	if s.reader != nil {
		errs = append(errs, s.reader.Close())
	}
	for _, p := range s.programs {
		errs = append(errs, p.Close())
	}
	for _, m := range []*ebpf.Map{s.processes, s.ring, s.lost} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}
