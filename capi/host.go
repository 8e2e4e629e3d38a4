// SPDX-License-Identifier: Apache-2.0

package main

/*
#cgo CFLAGS: -I${SRCDIR}/../include -I${SRCDIR}/host -DCKPT_TYPES_ONLY
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <ucontext.h>
#include "hostgo.h"

static int call_park(const struct host_ops *o, int ms, char *why, size_t n) { return o->park(ms, why, n); }
static void call_release(const struct host_ops *o) { o->release(); }
static long call_save(const struct host_ops *o, void *b, size_t n) { return o->save(b, n); }
static int call_freeze(const struct host_ops *o) { return o->freeze(); }
static void call_thaw(const struct host_ops *o, int pid) { o->thaw(pid); }
static int call_fds(const struct host_ops *o, int *l, int n) { return o->fds(l, n); }
static int call_closed(const struct host_ops *o, int i, struct closed_file *f) { return o->closed(i, f); }
static void call_closed_safe(const struct host_ops *o, uint64_t n) { o->closed_safe(n); }
static void call_names(const struct host_ops *o, const struct socket_name *l, int n) { o->names(l, n); }
static int call_visitors(const struct host_ops *o, struct visitor *l, int n) { return o->visitors(l, n); }
static void call_visitors_set(const struct host_ops *o, const struct visitor *l, int n) { o->visitors_set(l, n); }
static int call_ipc(const struct host_ops *o, int k, struct ipc_id *l, int n) { return o->ipc(k, l, n); }
static void call_ipc_set(const struct host_ops *o, int k, const struct ipc_id *l, int n) { o->ipc_set(k, l, n); }
static int call_undo(const struct host_ops *o, struct sem_mark *l, int n) { return o->undo(l, n); }
static void call_undo_set(const struct host_ops *o, const struct sem_mark *l, int n) { o->undo_set(l, n); }
static int call_place(const struct host_ops *o, int n, int f, int c) { return o->place(n, f, c); }
static int call_original(const struct host_ops *o, int i) { return o->original(i); }
static void call_set_tables(const struct host_ops *o, size_t t) { o->set_tables((void *)t); }
static int call_threads(const struct host_ops *o, struct thread_ids *list, int max) { return o->threads(list, max); }
static uint32_t call_asked(const struct host_ops *o, uint32_t add) { return o->asked(add); }
static int call_limit(const struct host_ops *o, int resource, uint64_t *limit, const uint64_t *set) { return o->limit(resource, limit, set); }
static void call_made(const struct host_ops *o, int fd, int folder, uint64_t at, uint64_t bytes) { o->made(fd, folder, at, bytes); }
static int call_outside(const struct host_ops *o, uint64_t *s, uint64_t *e) { return o->outside(s, e); }
static int call_foreign(const struct host_ops *o, uint64_t s, uint64_t e) { return o->foreign(s, e); }
static void call_end(const struct host_ops *o, int s) { o->end(s); }
static int call_errand(const struct host_ops *o) { return o->errand(); }
static void call_lazy(const struct host_ops *o, int on) { o->lazy(on); }
static void call_fail(const struct host_ops *o, int s) { o->fail(s); }
static int call_load(const struct host_ops *o, void *b, size_t n, uint64_t c, char *why, size_t m) {
    return o->load(b, n, c, why, m);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/attributes"
	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/sockets"
	"github.com/libckpt/libckpt/ckpt/sysv"
)

// host is ckptrun, as package ckpt sees it.
type host struct{ ops *C.struct_host_ops }

const whyBytes = 1000

func (h host) Park(timeout time.Duration) error {
	why := (*C.char)(C.calloc(1, whyBytes))
	defer C.free(unsafe.Pointer(why))
	if r := C.call_park(h.ops, C.int(timeout.Milliseconds()), why, whyBytes); r != 0 {
		return errors.New(C.GoString(why))
	}
	return nil
}

func (h host) Release() { C.call_release(h.ops) }

func (h host) State() ([]byte, error) {
	n := C.call_save(h.ops, nil, 0)
	if n == -C.ENOTSUP {
		return nil, errors.New("a thread uses AMX tiles, which a restart cannot give back: checkpoint when it does not, after _tile_release")
	}
	if n < 0 {
		return nil, fmt.Errorf("no memory for all signals that are pending for the program's threads: %w", unix.Errno(-n))
	}
	b := C.malloc(C.size_t(n))
	defer C.free(b)
	if m := C.call_save(h.ops, b, C.size_t(n)); m != n {
		return nil, fmt.Errorf("threads changed while the program was stopped (%d, then %d bytes)", n, m)
	}
	return C.GoBytes(b, C.int(n)), nil
}

func (h host) Freeze() (int, error) {
	pid := C.call_freeze(h.ops)
	if pid < 0 {
		return 0, fmt.Errorf("a copy of the process: %w", unix.Errno(-pid))
	}
	return int(pid), nil
}

func (h host) Thaw(pid int) { C.call_thaw(h.ops, C.int(pid)) }

// Both halves of ckptrun draw the line at the same number.
const (
	_ uint = C.FD_MOST - (files.MaxNumber + 1)
	_ uint = files.MaxNumber + 1 - C.FD_MOST
	_ uint = C.FD_PLENTY - files.Plenty
	_ uint = files.Plenty - C.FD_PLENTY
)

func (h host) Descriptors() []int {
	var list [files.MaxNumber + 1]C.int
	n := C.call_fds(h.ops, &list[0], C.int(len(list)))
	out := make([]int, n)
	for i := range out {
		out[i] = int(list[i])
	}
	return out
}

func (h host) Closed() []files.Closed {
	f := (*C.struct_closed_file)(C.malloc(C.sizeof_struct_closed_file))
	defer C.free(unsafe.Pointer(f))
	var out []files.Closed
	for i := C.int(0); C.call_closed(h.ops, i, f) != 0; i++ {
		out = append(out, files.Closed{Dev: uint64(f.dev), Ino: uint64(f.ino), Number: uint64(f.number), AndAll: f.and_all != 0,
			Path: C.GoString(&f.path[0])})
	}
	return out
}

func (h host) ClosedSafe(number uint64) { C.call_closed_safe(h.ops, C.uint64_t(number)) }

func (h host) Name(list []sockets.Name) {
	if len(list) == 0 {
		return
	}
	p := (*C.struct_socket_name)(C.calloc(C.size_t(len(list)), C.sizeof_struct_socket_name))
	defer C.free(unsafe.Pointer(p))
	names := unsafe.Slice(p, len(list))
	for i := range names {
		n := &names[i]
		n.ino = C.uint64_t(list[i].Inode)
		n.local_bytes = C.uint32_t(putName(&n.local, list[i].Sockaddr(false)))
		n.peer_bytes = C.uint32_t(putName(&n.peer, list[i].Sockaddr(true)))
	}
	C.call_names(h.ops, p, C.int(len(list)))
}

var _ ckpt.VisitorHost = host{}

func (h host) Visitors() []sockets.Visitor {
	p := (*C.struct_visitor)(C.calloc(C.VISITORS_MOST, C.sizeof_struct_visitor))
	defer C.free(unsafe.Pointer(p))
	n := C.call_visitors(h.ops, p, C.VISITORS_MOST)
	out := make([]sockets.Visitor, n)
	for i, v := range unsafe.Slice(p, int(n)) {
		out[i] = sockets.Visitor{Listener: uint64(v.listener), FD: int(v.fd), Token: int(v.token),
			Name: C.GoBytes(unsafe.Pointer(&v.name), C.int(v.name_bytes)), Peer: C.GoBytes(unsafe.Pointer(&v.peer), C.int(v.peer_bytes))}
	}
	return out
}

func (h host) SetVisitors(list []sockets.Visitor) {
	p := (*C.struct_visitor)(C.calloc(C.size_t(len(list)+1), C.sizeof_struct_visitor))
	defer C.free(unsafe.Pointer(p))
	to := unsafe.Slice(p, len(list))
	for i, v := range list {
		to[i].listener, to[i].fd, to[i].token = C.uint64_t(v.Listener), C.int32_t(v.FD), C.int32_t(v.Token)
		to[i].name_bytes = C.uint32_t(putName(&to[i].name, v.Name))
		to[i].peer_bytes = C.uint32_t(putName(&to[i].peer, v.Peer))
	}
	C.call_visitors_set(h.ops, p, C.int(len(list)))
}

var _ ckpt.SysVHost = host{}

// ipcKinds are the kinds of objects as the host numbers them.
var ipcKinds = [...]C.int{sysv.Segments: C.IPC_SEGMENTS, sysv.Semaphores: C.IPC_SEMAPHORES, sysv.Queues: C.IPC_QUEUES}

func (h host) SysV() (t sysv.Table) {
	list := (*C.struct_ipc_id)(C.calloc(C.IPC_MOST, C.sizeof_struct_ipc_id))
	defer C.free(unsafe.Pointer(list))
	for kind := range t.IDs {
		n := C.call_ipc(h.ops, ipcKinds[kind], list, C.IPC_MOST)
		for _, id := range unsafe.Slice(list, int(n)) {
			t.IDs[kind] = append(t.IDs[kind], sysv.ID{Virtual: int(id.virtual), Real: int(id.real), Made: id.made != 0})
		}
	}
	marks := (*C.struct_sem_mark)(C.calloc(C.SEM_MARKS_MOST, C.sizeof_struct_sem_mark))
	defer C.free(unsafe.Pointer(marks))
	n := C.call_undo(h.ops, marks, C.SEM_MARKS_MOST)
	for _, m := range unsafe.Slice(marks, int(n)) {
		t.Undo = append(t.Undo, sysv.Undo{Virtual: int(m.virtual), Number: int(m.number), Adjust: int(m.adjust), Set: m.set != 0,
			From: int64(m.from), To: int64(m.to)})
	}
	return t
}

func (h host) SetSysV(t sysv.Table) {
	for kind, ids := range t.IDs {
		list := (*C.struct_ipc_id)(C.calloc(C.size_t(len(ids)+1), C.sizeof_struct_ipc_id))
		to := unsafe.Slice(list, len(ids))
		for i, id := range ids {
			to[i].virtual, to[i].real = C.int32_t(id.Virtual), C.int32_t(id.Real)
			if id.Made {
				to[i].made = 1
			}
		}
		C.call_ipc_set(h.ops, ipcKinds[kind], list, C.int(len(ids)))
		C.free(unsafe.Pointer(list))
	}
	marks := (*C.struct_sem_mark)(C.calloc(C.size_t(len(t.Undo)+1), C.sizeof_struct_sem_mark))
	defer C.free(unsafe.Pointer(marks))
	to := unsafe.Slice(marks, len(t.Undo))
	for i, u := range t.Undo {
		to[i].virtual, to[i].number, to[i].adjust = C.int32_t(u.Virtual), C.int32_t(u.Number), C.int32_t(u.Adjust)
		to[i].from, to[i].to = C.int64_t(u.From), C.int64_t(u.To)
		if u.Set {
			to[i].set = 1
		}
	}
	C.call_undo_set(h.ops, marks, C.int(len(t.Undo)))
}

func putName(to *[28]C.uint8_t, from []byte) int {
	for i, b := range from {
		to[i] = C.uint8_t(b)
	}
	return len(from)
}

func (h host) Original(i int) int { return int(C.call_original(h.ops, C.int(i))) }

func (h host) Say(line string) bool {
	fd := h.Original(2)
	if fd < 0 {
		return false
	}
	if _, err := unix.Write(fd, []byte(strings.ReplaceAll(line, "\n", "; ")+"\n")); err != nil {
		return false
	}
	// When a launcher ends the job, it may never read the bytes that are still in the pipe.
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if left, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err != nil || left == 0 {
				break
			}
		}
	}
	return true
}

func (h host) Place(number, from int, cloexec bool) error {
	c := C.int(0)
	if cloexec {
		c = 1
	}
	if r := C.call_place(h.ops, C.int(number), C.int(from), c); r != 0 {
		return unix.Errno(-r)
	}
	return nil
}

func (h host) SetTables(addr uintptr) { C.call_set_tables(h.ops, C.size_t(addr)) }

// Threads is Host.Threads.
func (h host) Threads() []attributes.ThreadID {
	for list := make([]C.struct_thread_ids, 64); ; list = make([]C.struct_thread_ids, 2*len(list)) {
		n := int(C.call_threads(h.ops, &list[0], C.int(len(list))))
		if n > len(list) {
			continue
		}
		all := make([]attributes.ThreadID, n)
		for i := range all {
			all[i] = attributes.ThreadID{Virtual: int(list[i].virtual), Real: int(list[i].real)}
		}
		return all
	}
}

// Asked is Host.Asked.
func (h host) Asked(add attributes.Asked) attributes.Asked {
	return attributes.Asked(C.call_asked(h.ops, C.uint32_t(add)))
}

// Limit is Host.Limit.
func (h host) Limit(resource int, set *unix.Rlimit) (unix.Rlimit, error) {
	var was, to [2]C.uint64_t
	var new *C.uint64_t
	if set != nil {
		to = [2]C.uint64_t{C.uint64_t(set.Cur), C.uint64_t(set.Max)}
		new = &to[0]
	}
	if e := C.call_limit(h.ops, C.int(resource), &was[0], new); e != 0 {
		return unix.Rlimit{}, unix.Errno(-e)
	}
	return unix.Rlimit{Cur: uint64(was[0]), Max: uint64(was[1])}, nil
}

// Made is Host.Made.
func (h host) Made(fd, folder int, at, bytes int64) {
	C.call_made(h.ops, C.int(fd), C.int(folder), C.uint64_t(at), C.uint64_t(bytes))
}

func (h host) Outside() (start, end uint64, is bool) {
	var s, e C.uint64_t
	is = C.call_outside(h.ops, &s, &e) != 0
	return uint64(s), uint64(e), is
}

func (h host) Foreign(start, end uint64) bool {
	return C.call_foreign(h.ops, C.uint64_t(start), C.uint64_t(end)) != 0
}

func (h host) Load(state []byte, components uint64) error {
	why := (*C.char)(C.calloc(1, whyBytes))
	defer C.free(unsafe.Pointer(why))
	b := C.CBytes(state)
	defer C.free(b)
	if r := C.call_load(h.ops, b, C.size_t(len(state)), C.uint64_t(components), why, whyBytes); r != 0 {
		return errors.New(C.GoString(why))
	}
	return nil
}

func (h host) Lazy(on bool) {
	n := C.int(0)
	if on {
		n = 1
	}
	C.call_lazy(h.ops, n)
}

func (h host) Fail(status int) { C.call_fail(h.ops, C.int(status)) }

// Stands looks only at what is in bounds: Load checks the rest.
func (h host) Stands(state []byte) []uint64 {
	var out []uint64
	first := C.sizeof_struct_process_image
	if len(state) >= first { // what ps shows
		p := (*C.struct_process_image)(unsafe.Pointer(&state[0]))
		out = append(out, uint64(p.arguments[0]), uint64(p.arguments[2]))
		first += int(p.timers) * C.sizeof_struct_timer_image
		if p.version >= C.THREADS_VERSION+2 && first+C.sizeof_struct_spent_image <= len(state) {
			spent := (*C.struct_spent_image)(unsafe.Pointer(&state[first]))
			first += C.sizeof_struct_spent_image + int(spent.threads)*C.sizeof_struct_spent
		}
	}
	for at := first; at+C.sizeof_struct_thread_image <= len(state); {
		t := (*C.struct_thread_image)(unsafe.Pointer(&state[at]))
		out = append(out, uint64(t.upper_fs), uint64(t.upper_sp), uint64(t.regs[C.REG_RSP]), uint64(t.regs[C.REG_RIP]))
		if t.bytes < C.sizeof_struct_thread_image {
			break
		}
		at += int(t.bytes)
	}
	return out
}

// errand is the function that a stopped thread of the program is to run. There is one at a time.
var errand struct {
	sync.Mutex
	f func()
}

func (h host) Errand(f func()) error {
	errand.Lock()
	defer errand.Unlock()
	errand.f = f
	defer func() { errand.f = nil }()
	if r := C.call_errand(h.ops); r != 0 {
		return fmt.Errorf("no thread of the program can do it: %w", unix.Errno(-r))
	}
	return nil
}

//export ckpt_host_serve
func ckpt_host_serve() {
	if f := errand.f; f != nil {
		f()
	}
}

func (h host) End(status int) { C.call_end(h.ops, C.int(status)) }
