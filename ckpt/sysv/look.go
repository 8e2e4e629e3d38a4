// SPDX-License-Identifier: Apache-2.0

package sysv

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ID is that of an object as the program knows it, and as the kernel does.
type ID struct {
	Virtual, Real int  // Real is -1 when it is not there: the id is only kept apart from others
	Made          bool // by this process, or by its restart
}

// Node tells apart where ids mean the same.
type Node struct {
	Host string `json:"host"`
	Boot string `json:"boot"`
	IPC  uint64 `json:"ipc"` // inode of the namespace
}

func (n Node) same(m Node) bool { return n.Boot == m.Boot && n.IPC == m.IPC }

// thisNode is where this process is.
func thisNode() (Node, error) {
	n := Node{}
	n.Host, _ = os.Hostname()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return n, fmt.Errorf("tell this host from others: %w", err)
	}
	n.Boot = strings.TrimSpace(string(boot))
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/ipc", &st); err != nil {
		return n, fmt.Errorf("tell this IPC namespace from others: %w", err)
	}
	n.IPC = st.Ino
	return n, nil
}

// Piece is a mapping of a part of a segment.
type Piece struct {
	Start, End, Offset uint64
	Real               int
	huge               bool
}

// Held is a segment of a process.
type Held struct {
	Virtual  int    `json:"virtual"`
	Real     int    `json:"real"`
	Pieces   int    `json:"pieces"`   // how many mappings of it this process has
	Attached uint64 `json:"attached"` // how many there are by the kernel
	Made     bool   `json:"made,omitempty"`
	Known
}

// Known is what a segment has besides content.
type Known struct {
	Key     int    `json:"key"`
	Bytes   uint64 `json:"bytes"`
	Mode    uint32 `json:"mode"`
	UID     uint32 `json:"uid"`
	GID     uint32 `json:"gid"`
	Creator int    `json:"creator"` // process
}

// Flags of Known.Mode beside the permissions.
const (
	modeDest   = 0o1000 // it is removed when nobody has it attached any more
	modeLocked = 0o2000
)

// Report is what a process tells the others.
type Report struct {
	Node  Node   `json:"node"`
	PID   int    `json:"pid"`
	Held  []Held `json:"held,omitempty"`
	Taken []int  `json:"taken,omitempty"` // ids that the program may know

	Objects []Object     `json:"objects,omitempty"`
	Undo    []Undo       `json:"undo,omitempty"`
	Kept    [kinds][]int `json:"kept,omitzero"` // as Taken, of semaphores and queues
}

// Here are the segments of this process.
type Here struct {
	report Report
	pieces []Piece // of the program
	saved  []Saved
	taken  []int
	rank   int

	objects []Object // of this node
	kept    [kinds][]int
}

// Look finds the objects of the stopped program. maps is its /proc/self/maps, upper says which addresses are the program's, and
// known is what whoever emulates its calls knows.
func Look(maps []byte, known Table, upper func(start, end uint64) bool) (*Here, error) {
	ids := known.IDs[Segments]
	h := &Here{report: Report{PID: os.Getpid()}}
	count := map[int]int{} // of the process as a whole
	for _, p := range piecesIn(maps) {
		count[p.Real]++
		if upper(p.Start, p.End) {
			h.pieces = append(h.pieces, p)
		}
	}
	if len(h.pieces) == 0 && len(ids) == 0 && len(known.IDs[Semaphores]) == 0 && len(known.IDs[Queues]) == 0 {
		return h, nil
	}
	var err error
	if h.report.Node, err = thisNode(); err != nil {
		return nil, err
	}
	virtual := map[int]ID{}
	var order []int
	for _, id := range ids {
		h.report.Taken = append(h.report.Taken, id.Virtual)
		if id.Real >= 0 {
			virtual[id.Real] = id
			order = append(order, id.Real)
		}
	}
	for _, p := range h.pieces {
		if !slices.Contains(order, p.Real) {
			order = append(order, p.Real)
		}
	}
	for _, real := range order {
		ds, err := status(real)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EIDRM) {
			continue // it is gone
		}
		if err != nil {
			return nil, fmt.Errorf("the System V segment %d: %w", real, err)
		}
		one := Held{Virtual: real, Real: real, Pieces: count[real], Attached: ds.Nattch, Known: knownOf(ds)}
		if id, is := virtual[real]; is {
			one.Virtual, one.Made = id.Virtual, id.Made
		}
		h.report.Held = append(h.report.Held, one)
	}
	return h, h.lookObjects(known)
}

func status(real int) (*unix.SysvShmDesc, error) {
	ds := &unix.SysvShmDesc{}
	_, err := unix.SysvShmCtl(real, unix.IPC_STAT, ds)
	return ds, err
}

func knownOf(ds *unix.SysvShmDesc) Known {
	return Known{Key: int(ds.Perm.Key), Bytes: ds.Segsz, Mode: ds.Perm.Mode & (0o777 | modeDest | modeLocked),
		UID: ds.Perm.Uid, GID: ds.Perm.Gid, Creator: int(ds.Cpid)}
}

// Any tells whether there is something to save, or an id to remember.
func (h *Here) Any() bool {
	return len(h.pieces) > 0 || len(h.report.Taken) > 0 || len(h.report.Kept[Semaphores]) > 0 || len(h.report.Kept[Queues]) > 0
}

// Report is for the other processes.
func (h *Here) Report() Report { return h.report }

// Pieces are the mappings of the program's part of memory.
func (h *Here) Pieces() []Piece {
	if h == nil {
		return nil
	}
	return h.pieces
}

// piecesIn reads /proc/PID/maps: a segment is called by its key, and its inode is its id.
func piecesIn(maps []byte) (list []Piece) {
	plain := shmDevice()
	sc := bufio.NewScanner(bytes.NewReader(maps))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) != 7 || f[6] != "(deleted)" || len(f[5]) != len("/SYSV00000000") || !strings.HasPrefix(f[5], "/SYSV") {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		offset, err3 := strconv.ParseUint(f[2], 16, 64)
		inode, err4 := strconv.Atoi(f[4])
		if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
			continue
		}
		list = append(list, Piece{start, end, offset, inode, plain != "" && f[3] != plain})
	}
	return list
}

// shmDevice is the device of the kernel's own file system in memory, as in /proc/PID/maps; "" when it cannot be told.
// Segments in huge pages have another one.
func shmDevice() string {
	fd, err := unix.MemfdCreate("device", unix.MFD_CLOEXEC)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return ""
	}
	return fmt.Sprintf("%02x:%02x", unix.Major(st.Dev), unix.Minor(st.Dev))
}

// others names processes of this node, but for those of the job, that have a segment attached.
func others(real int, job map[int]bool) (names []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/maps")
	for _, name := range all {
		dir := filepath.Dir(name)
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || job[pid] {
			continue
		}
		maps, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(maps, []byte("/SYSV")) {
			continue
		}
		if slices.ContainsFunc(piecesIn(maps), func(p Piece) bool { return p.Real == real }) {
			comm, _ := os.ReadFile(dir + "/comm")
			names = append(names, fmt.Sprintf("process %d (%s)", pid, strings.TrimSpace(string(comm))))
		}
	}
	return names
}
