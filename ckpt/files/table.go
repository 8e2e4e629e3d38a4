// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
)

// MaxNumber is the highest descriptor number that an application can have; the numbers above belong
// to the lower half. Where the hard limit of descriptors is below Plenty, that is so from fewNumbers on.
const (
	MaxNumber  = 767
	Plenty     = 2048
	fewNumbers = 256
)

// Kind says what an open file description refers to. The words are part of images.
type Kind string

const (
	// KindLauncher is a description that the launcher handed over as stdin, stdout or stderr.
	KindLauncher Kind = "launcher"
	// KindRegular is a file with a name, opened by path again.
	KindRegular Kind = "regular"
	// KindUnlinked is a file without a name, made again from its saved content.
	KindUnlinked Kind = "unlinked"
	// KindScratch is a file without a descriptor (Named) that is made again under its name, from its
	// saved content.
	KindScratch Kind = "scratch"
	// KindDirectory is a directory that is being read.
	KindDirectory Kind = "directory"
	// KindKernel is a file of the kernel's own file systems (/proc, /sys): it has no content to keep.
	KindKernel Kind = "kernel"
	// KindDevice is a character device without state: /dev/null and the like.
	KindDevice Kind = "device"
	// KindTerminal is the controlling terminal.
	KindTerminal Kind = "terminal"
	// KindPath is a name without access to what it names (O_PATH).
	KindPath Kind = "path"
	// KindPipe is one end of a pipe whose ends are all in this process.
	KindPipe Kind = "pipe"
	// KindMemfd is memory with a descriptor, made again from its saved content.
	KindMemfd Kind = "memfd"
	// KindEventfd is an event counter.
	KindEventfd Kind = "eventfd"
	// KindTimerfd is a timer.
	KindTimerfd Kind = "timerfd"
	// KindSignalfd is a signal reader.
	KindSignalfd Kind = "signalfd"
	// KindEpoll is a set of watched descriptors.
	KindEpoll Kind = "epoll"
	// KindSocket is a socket, of which others know more: Socket is its number with them.
	KindSocket Kind = "socket"
	// KindInotify is an inotify queue without watches.
	KindInotify Kind = "inotify"
)

// Table is everything that is known about the application's descriptors at one moment.
type Table struct {
	Files    []File    `json:"files"`
	Numbers  []Number  `json:"numbers"`
	Pipes    []Pipe    `json:"pipes,omitempty"`
	Contents []Content `json:"contents,omitempty"`
	Kept     []Kept    `json:"kept,omitempty"`
}

// Number is one descriptor: a number that refers to an open file description.
type Number struct {
	FD      int  `json:"fd"`
	File    int  `json:"file"` // index into Table.Files
	Cloexec bool `json:"cloexec,omitempty"`
	// Locks are the locks of the process (F_SETLK) and of the description (flock, F_OFD_SETLK). They
	// are listed at the lowest number of the description, under which they are taken again.
	Locks []Lock `json:"locks,omitempty"`
}

// File is one open file description. Exactly the fields that its kind needs are set.
type File struct {
	Kind   Kind   `json:"kind"`
	Path   Path   `json:"path,omitempty"`
	Flags  int    `json:"flags"`            // as F_GETFL gives them
	Offset int64  `json:"offset,omitempty"` // regular, unlinked, memfd, directory, kernel, launcher
	Inode  *Inode `json:"inode,omitempty"`  // regular, and launcher when that is a regular file

	// Of a regular file: whether some process of the job writes to it, and where it is kept: index into
	// Table.Kept, or which process has it in its table.
	Written bool `json:"written,omitempty"`
	Kept    *int `json:"kept,omitempty"`
	KeptBy  *int `json:"keptBy,omitempty"`

	Launcher int  `json:"launcher,omitempty"` // 0, 1, 2: which of the launcher's descriptors
	Reopened bool `json:"reopened,omitempty"` // opened anew through /proc/self/fd, /dev/stdout, ...

	Content *int `json:"content,omitempty"` // index into Table.Contents: unlinked, memfd
	Pipe    *int `json:"pipe,omitempty"`    // index into Table.Pipes

	Counter   uint64  `json:"counter,omitempty"`   // eventfd
	Semaphore bool    `json:"semaphore,omitempty"` // eventfd
	Timer     *Timer  `json:"timer,omitempty"`     // timerfd
	Signals   uint64  `json:"signals,omitempty"`   // signalfd: the mask, bit n-1 for signal n
	Watches   []Watch `json:"watches,omitempty"`   // epoll
	Socket    *int    `json:"socket,omitempty"`    // socket
}

// Inode identifies a file and what was seen of it.
type Inode struct {
	Dev   uint64 `json:"dev"`
	Ino   uint64 `json:"ino"`
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime"` // nanoseconds since 1970
	// Tail is the SHA-256 of the last bytes of the file (at most tailBytes), in hex; empty when
	// it was open for writing, or could not be read (Held.Sample).
	Tail string `json:"tail,omitempty"`
	// Blocks are what is compared of the content at a restart (Held.Sample).
	Blocks []Block `json:"blocks,omitempty"`
	// Mapped: the application writes to it through its memory, which the image has and a restart fills
	// in again.
	Mapped bool `json:"mapped,omitempty"`
	// Whole: all of it is mapped, so that nothing of it is kept beside the image.
	Whole bool `json:"whole,omitempty"`
}

// Timer is the state of a timerfd; times are nanoseconds.
type Timer struct {
	Clock    int    `json:"clock"`
	Ticks    uint64 `json:"ticks,omitempty"` // expirations that nobody has read yet
	Left     int64  `json:"left,omitempty"`  // until the next expiration, 0 when disarmed
	Interval int64  `json:"interval,omitempty"`
}

// Watch is one entry of an epoll set.
type Watch struct {
	FD     int    `json:"fd"`
	Events uint32 `json:"events"`
	Data   uint64 `json:"data"`
}

// Lock is an advisory lock that the application holds.
type Lock struct {
	Kind  string `json:"kind"` // "flock", "posix", "ofd"
	Write bool   `json:"write,omitempty"`
	Start int64  `json:"start,omitempty"`
	Len   int64  `json:"len,omitempty"` // 0: to the end of the file, however far it grows
}

// Pipe is a pipe; its ends are files of KindPipe.
type Pipe struct {
	Capacity int `json:"capacity"`
	Bytes    int `json:"bytes"` // length of data
	data     []byte
}

// Data returns what was written into the pipe and not read yet.
func (p *Pipe) Data() []byte { return p.data }

// Content is the content of a file that cannot be found by name.
type Content struct {
	Name    Path     `json:"name"`
	Mode    uint32   `json:"mode"` // permission bits
	UID     uint32   `json:"uid,omitempty"`
	GID     uint32   `json:"gid,omitempty"`
	Changed int64    `json:"changed,omitempty"` // time of modification, ns since 1970; 0: neither it nor the owner is known
	Size    int64    `json:"size"`
	Seals   int      `json:"seals,omitempty"` // memfd
	Dev     uint64   `json:"dev,omitempty"`   // with Ino, what the file was to the kernel: it may be mapped, too
	Ino     uint64   `json:"ino,omitempty"`
	Extents []Extent `json:"extents,omitempty"`
}

// Extent is a run of bytes of a Content; what no extent covers is a hole.
type Extent struct {
	Offset int64 `json:"offset"`
	Bytes  int64 `json:"bytes"` // length of data
	data   []byte
}

// Obstacle is a descriptor that cannot be saved, and so refuses a checkpoint.
type Obstacle struct {
	FD   int    `json:"fd"`
	What string `json:"what"` // "a TCP socket connected to 10.0.0.1:80"
	Path string `json:"path"` // what the kernel calls it
	Hint string `json:"hint"` // what can be done about it
	// Passing says that it goes away without the program closing the descriptor.
	Passing bool `json:"passing,omitempty"`
}

func (o Obstacle) String() string {
	return fmt.Sprintf("descriptor %d is %s (%s): %s", o.FD, o.What, o.Path, o.Hint)
}

// Limits of what a decoder accepts; far above what one process can have.
const (
	maxFiles   = MaxNumber + 1
	maxNamed   = 1 << 16
	maxWatches = 4096
	maxLocks   = 4096
	maxBlocks  = 256
	// maxContent bounds the saved content of all files without a name, and pipes, of a process.
	maxContent = 4 << 30
	// maxRead bounds what is read for that: the program is stopped, and a file may hold zeros without end.
	maxRead = 2 * maxContent
)

var errBadTable = errors.New("open files")

// validate checks every index and bound, so that the rest of the package need not.
func (t *Table) validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", errBadTable, fmt.Sprintf(format, args...))
	}
	if len(t.Files) > maxFiles+maxNamed || len(t.Numbers) > maxFiles || len(t.Pipes) > maxFiles || len(t.Contents) > maxFiles+maxNamed {
		return bad("more entries than a process can have descriptors")
	}
	seen := map[int]bool{}
	for i, n := range t.Numbers {
		if n.FD < 0 || n.FD > MaxNumber {
			return bad("number %d: descriptor %d out of range 0 to %d", i, n.FD, MaxNumber)
		}
		if seen[n.FD] {
			return bad("descriptor %d is listed twice", n.FD)
		}
		seen[n.FD] = true
		if n.File < 0 || n.File >= len(t.Files) {
			return bad("descriptor %d refers to file %d of %d", n.FD, n.File, len(t.Files))
		}
		if len(n.Locks) > maxLocks {
			return bad("descriptor %d has %d locks", n.FD, len(n.Locks))
		}
		for _, l := range n.Locks {
			if l.Kind != "flock" && l.Kind != "posix" && l.Kind != "ofd" || l.Start < 0 || l.Len < 0 {
				return bad("descriptor %d has a bad lock %+v", n.FD, l)
			}
		}
	}
	for i := range t.Files {
		if err := t.Files[i].validate(t); err != nil {
			return bad("file %d: %v", i, err)
		}
	}
	if len(t.Kept) > maxFiles+maxNamed {
		return bad("%d files are kept", len(t.Kept))
	}
	for i := range t.Kept {
		if err := t.Kept[i].validate(t); err != nil {
			return bad("kept file %d: %v", i, err)
		}
	}
	var total int64
	for i, p := range t.Pipes {
		if p.Capacity < 1 || p.Capacity > 1<<31-1 || p.Bytes < 0 || p.Bytes > p.Capacity {
			return bad("pipe %d: %d bytes in a pipe of %d", i, p.Bytes, p.Capacity)
		}
		total += int64(p.Bytes)
	}
	for i, c := range t.Contents {
		if c.Size < 0 {
			return bad("content %d: negative size", i)
		}
		end := int64(0)
		for _, e := range c.Extents {
			if e.Offset < end || e.Bytes < 0 || e.Bytes > c.Size || e.Offset > c.Size-e.Bytes {
				return bad("content %d: extent %d+%d outside the file or out of order", i, e.Offset, e.Bytes)
			}
			end = e.Offset + e.Bytes
			total += e.Bytes
		}
		if total > maxContent {
			return bad("content of more than %d bytes", int64(maxContent))
		}
	}
	return nil
}

func (n *Inode) validate() error {
	if n.Size < 0 {
		return fmt.Errorf("negative size %d", n.Size)
	}
	if len(n.Blocks) > maxBlocks {
		return fmt.Errorf("%d blocks to compare", len(n.Blocks))
	}
	for _, k := range n.Blocks {
		if k.At < 0 || k.Bytes < 1 || k.Bytes > wholeBytes || k.At > n.Size-k.Bytes {
			return fmt.Errorf("block %d+%d of a file of %d bytes", k.At, k.Bytes, n.Size)
		}
	}
	return nil
}

func (f *File) validate(t *Table) error {
	if f.Offset < 0 && f.Kind != KindDirectory { // directories may use any cookie as their offset
		return fmt.Errorf("negative offset %d", f.Offset)
	}
	if f.Inode != nil {
		if err := f.Inode.validate(); err != nil {
			return err
		}
	}
	if f.Kept != nil && (*f.Kept < 0 || *f.Kept >= len(t.Kept) || f.Kind != KindRegular) || f.KeptBy != nil && *f.KeptBy < 0 {
		return errors.New("what is kept of it is missing")
	}
	switch f.Kind {
	case KindLauncher:
		if f.Launcher < 0 || f.Launcher > 2 {
			return fmt.Errorf("launcher's descriptor %d", f.Launcher)
		}
	case KindRegular:
		if f.Inode == nil {
			return errors.New("regular file without inode")
		}
	case KindUnlinked, KindMemfd, KindScratch:
		if f.Content == nil || *f.Content < 0 || *f.Content >= len(t.Contents) {
			return errors.New("content is missing")
		}
	case KindPipe:
		if f.Pipe == nil || *f.Pipe < 0 || *f.Pipe >= len(t.Pipes) {
			return errors.New("pipe is missing")
		}
	case KindTimerfd:
		if f.Timer == nil || f.Timer.Left < 0 || f.Timer.Interval < 0 {
			return errors.New("timer is missing or has a negative time")
		}
	case KindSocket:
		if f.Socket == nil || *f.Socket < 0 {
			return errors.New("socket is missing")
		}
	case KindEpoll:
		if len(f.Watches) > maxWatches {
			return fmt.Errorf("%d watches", len(f.Watches))
		}
		for _, w := range f.Watches {
			if w.FD < 0 || w.FD > MaxNumber {
				return fmt.Errorf("watch of descriptor %d", w.FD)
			}
		}
	case KindDirectory, KindKernel, KindDevice, KindTerminal, KindPath, KindEventfd, KindSignalfd, KindInotify:
	default:
		return fmt.Errorf("unknown kind %q", f.Kind)
	}
	return nil
}
