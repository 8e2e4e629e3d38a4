// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/attributes"
	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/sockets"
	"github.com/libckpt/libckpt/ckpt/where"
	"github.com/libckpt/libckpt/drain"
)

// Version of libckpt; set by the command.
var Version = "0.1.0"

// Host is the split process: it can stop the program's threads and continue them.
type Host interface {
	// Park stops all threads of the program, or fails and leaves them running.
	Park(timeout time.Duration) error
	Release()
	// Errand runs f on the stopped thread of the program that initialized the runtime.
	Errand(f func()) error
	// State describes the stopped threads and the process, for Load.
	State() ([]byte, error)
	// Freeze makes a child whose memory stays what it is now; Thaw ends it.
	Freeze() (pid int, err error)
	Thaw(pid int)
	// Descriptors lists the program's descriptors. Original is a copy, above the program's numbers, of the
	// launcher's 0, 1 or 2; -1 when there was none. Place is dup3 into a number of the program's.
	Descriptors() []int
	Original(i int) int
	Place(number, from int, cloexec bool) error
	// Name has the program see these names for sockets, by inode, in the place of those that the kernel knows.
	Name([]sockets.Name)
	// Closed are files that the program could write to and has closed, until ClosedSafe is told of them.
	Closed() []files.Closed
	ClosedSafe(number uint64)
	// Made has the names that the program gives to files from now on written to the end of fd, as files.MoveAside reads them.
	// What it is about to take from files that were there is kept in folder from then on, under names that begin with at, and so many bytes are copied.
	Made(fd, folder int, at, bytes int64)
	// Say writes a line to the launcher's standard error, and returns when the launcher has taken it; false
	// when there is none to write to.
	Say(line string) bool
	SetTables(addr uintptr)
	// Asked tells what the program may have asked the kernel for; first add is added.
	Asked(add attributes.Asked) attributes.Asked
	// Limit is the program's limit of descriptors, addresses or data (RLIMIT_NOFILE, _AS, _DATA), as it was; then it becomes
	// that of set, if there is one. The kernel's own are ckptrun's.
	Limit(resource int, set *unix.Rlimit) (unix.Rlimit, error)
	// Threads are those that live.
	Threads() []attributes.ThreadID
	// Outside is memory that the program has mapped by address where nothing is saved, if there is some.
	Outside() (start, end uint64, is bool)
	// Foreign says whether some of these addresses in the program's part of memory were never given to it.
	Foreign(start, end uint64) bool
	// Load makes the threads that State described; the memory is mapped already. The processor on which the program was
	// started had these components of extended state (snapshot.StateComponents).
	Load(state []byte, components uint64) error
	// Stands lists addresses that are used at once when what State describes continues: the process's arguments, and
	// the threads' stacks and thread-local storage.
	Stands(state []byte) []uint64
	// Lazy says whether memory of the program is missing from now on: changes to its mappings are told
	// (Process.Memory) before they are made.
	Lazy(bool)
	// Fail ends the process at once, and with it the job.
	Fail(status int)
	// End ends the process at once: with that exit status, by SIGKILL when it is negative.
	End(status int)
}

// Claim is a question about a synchronous send, or its answer.
type Claim = drain.Claim

// Runtime is the MPI of the job. Its methods are called only on threads that the runtime called us
// on.
type Runtime interface {
	Name() string
	Version() string
	// Threads is the highest thread level that a rank asked for: 0 to 3, as MPI numbers them.
	Threads() int
	Rank() int
	Ranks() int
	// Allgather is collective over all ranks; every rank gives the same number of bytes.
	Allgather(mine []byte) ([][]byte, error)
	// Progress drives the runtime's communication once.
	Progress()
	// Holds says what keeps a checkpoint from being made on this rank, "" for nothing.
	Holds() string
	// Inside names the call in which a thread of this rank waits for processes outside the job, "" when
	// none does. Any thread may ask.
	Inside() string
	// OneSided says whether other ranks may write to this rank's memory by themselves. If any rank says
	// so, Settle is called on all ranks before they drain, while all programs are stopped: it completes
	// what was begun, and may wait for the others.
	OneSided() bool
	Settle() error
	// Drain receives what other ranks have sent, completes what it can, and returns how many operations
	// must still end before this rank can be saved. Only while the program is stopped.
	Drain() (left int, err error)
	// Synchronous says whether this rank has synchronous sends that the program has not seen complete. If
	// any rank has some, all ranks call the next three after Drain: Claims lists these sends; Judge sets the
	// state of claims that other ranks have on this one; Answered takes what other ranks have judged.
	Synchronous() bool
	Claims() []Claim
	Judge([]Claim)
	Answered([]Claim)
	// Save describes messages and requests after Drain, for Load in a fresh runtime, in memory from room.
	Save(room func(bytes int) ([]byte, error)) ([]byte, error)
	Load(state []byte) error
	// Files lists the files that the runtime has open for the application: all, and those whose state on disk
	// this rank is responsible for. Called after Save.
	Files() (all, own []files.Named, err error)
	// Rebuild makes an object again.
	Rebuild(kind, id uint32, descriptor []byte, real uint64) (uint64, error)
	// Memory lists shared mappings among the program's that are this rank's own memory, which the runtime
	// made: start and end of each. While the program is stopped.
	Memory() []uint64
	// Waiting lists calls of the program that have been waiting for a while. At any time, on any thread.
	Waiting() []where.Waiting
	// StartDeferred starts the deferred collective calls that Clock.NextStart names.
	StartDeferred()
	// Finalize ends the runtime.
	Finalize() error
}

// State is what a checkpoint did; the numbers are those of MPIX_CR_state_t.
type State int

// States.
const (
	StateError      State = 0
	StateCheckpoint State = 1
	StateRestart    State = 2
	StateIgnore     State = 3
)
