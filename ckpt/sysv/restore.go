// SPDX-License-Identifier: Apache-2.0

package sysv

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/internal/fault"
)

// Word is what a process says before a restart makes anything.
type Word struct {
	Node  Node   `json:"node"`
	Wrong string `json:"wrong,omitempty"`
}

// Made is an object that is there again.
type Made struct {
	Kind    Kind `json:"kind,omitempty"`
	Virtual int  `json:"virtual"`
	Real    int  `json:"real"`
	Was     Node `json:"was"` // where it was when it was saved
	Is      Node `json:"is"`
	// Of a segment, the kernel's: together with the id it tells it from a later one.
	Creator int `json:"creator,omitempty"`
}

// Restored are the objects of a restart.
type Restored struct {
	rank int
	Section
	note    string
	content func(section string) ([]byte, error)
	word    Word

	made []Made
	held [][]byte // attached until all have attached what they need: a removed segment would be gone
	ids  [kinds]map[int]int
}

// Restore begins it. content reads a section of this process's image, note is a file for what earlier restarts have made.
func Restore(s Section, rank int, content func(string) ([]byte, error), note string) *Restored {
	r := &Restored{rank: rank, Section: s, content: content, note: note}
	for k := range r.ids {
		r.ids[k] = map[int]int{}
	}
	var err error
	if r.word.Node, err = thisNode(); err != nil {
		r.word.Wrong = err.Error()
	}
	return r
}

// Word is for the other processes.
func (r *Restored) Word() Word { return r.word }

// Compare refuses processes that shared an object on one node and are on several.
func (r *Restored) Compare(words []Word) error {
	for i := range r.Segments {
		s := &r.Segments[i]
		if err := r.together(fmt.Sprintf("System V segment %d (%s)", s.Virtual, &s.Known), s.Holders, s.Leader, words); err != nil {
			return err
		}
	}
	for i := range r.Objects {
		o := &r.Objects[i]
		if err := r.together(o.String(), o.Users, o.Leader, words); err != nil {
			return err
		}
	}
	return nil
}

// together refuses when this process shares the object and they are not all on one node.
func (r *Restored) together(name string, ranks []int, leader int, words []Word) error {
	if !slices.Contains(ranks, r.rank) && leader != r.rank {
		return nil
	}
	for _, p := range append(slices.Clone(ranks), leader) {
		if p >= len(words) {
			return fmt.Errorf("the %s is of rank %d, of %d", name, p, len(words))
		}
		if words[p].Wrong != "" {
			return fmt.Errorf("rank %d: %s", p, words[p].Wrong)
		}
		if a, b := words[leader].Node, words[p].Node; !a.same(b) {
			where := fmt.Sprintf("rank %d is on host %s, rank %d on host %s", leader, a.Host, p, b.Host)
			if a.Host == b.Host {
				where = fmt.Sprintf("ranks %d and %d, both on host %s, are in different IPC namespaces", leader, p, a.Host)
			}
			return fmt.Errorf("the %s was shared by ranks %v on one node, but %s: start these ranks on one node", name, ranks, where)
		}
	}
	return nil
}

// Make makes, or takes again, the objects of which this process has the content.
func (r *Restored) Make() (made []Made, err error) {
	left := r.readNote()
	defer func() {
		r.made = made
		r.writeNote()
		if err != nil {
			_ = r.Done(false)
		}
	}()
	for i := range r.Segments {
		s := &r.Segments[i]
		if s.Leader != r.rank {
			continue
		}
		real, err := r.makeOne(s, left)
		if err != nil {
			return made, fmt.Errorf("the System V segment %d (%s): %w", s.Virtual, &s.Known, err)
		}
		made = append(made, Made{Virtual: s.Virtual, Real: real, Was: r.Node, Is: r.word.Node, Creator: creator(real)})
		if err := fault.Point("sysv.made"); err != nil {
			return made, err
		}
	}
	if err := r.makeObjects(left, &made); err != nil {
		return made, err
	}
	for _, one := range left { // of a restart that was killed
		if !slices.ContainsFunc(made, func(m Made) bool { return m.Kind == one.Kind && m.Real == one.Real }) && one.alone() {
			_ = removeObject(one.Kind, one.Real)
		}
	}
	return made, nil
}

// alone tells whether it is still there and nobody uses it.
func (m *Made) alone() bool {
	if m.Kind == Segments {
		return orphan(m.Real, m.Creator) != nil
	}
	o, there, err := look(m.Kind, ID{Virtual: m.Virtual, Real: m.Real})
	if err != nil || !there {
		return false
	}
	names, err := o.strangers(onlyThis())
	return err == nil && len(names) == 0
}

func creator(real int) int {
	ds, err := status(real)
	if err != nil {
		return 0
	}
	return int(ds.Cpid)
}

// orphan is that segment if it is there and nobody has it attached.
func orphan(real, creator int) *unix.SysvShmDesc {
	ds, err := status(real)
	if err != nil || int(ds.Cpid) != creator || ds.Nattch != 0 {
		return nil
	}
	return ds
}

func (r *Restored) makeOne(s *Saved, left []Made) (int, error) {
	data, err := r.content(s.content())
	if err != nil {
		return 0, err
	}
	if uint64(len(data)) != s.mapped() {
		return 0, fmt.Errorf("its content has %d bytes", len(data))
	}
	real, err := r.find(s, left)
	if err != nil {
		return 0, err
	}
	memory, err := wholly(real, s, 0)
	if err != nil {
		_, _ = unix.SysvShmCtl(real, unix.IPC_RMID, nil)
		return 0, err
	}
	r.held = append(r.held, memory)
	if s.Mode&modeDest != 0 { // from now on nothing is left of it when all are killed
		if _, err := unix.SysvShmCtl(real, unix.IPC_RMID, nil); err != nil {
			return 0, err
		}
	}
	if err := fill(memory, data); err != nil {
		return 0, err
	}
	if s.Mode&modeLocked != 0 {
		if _, err := unix.SysvShmCtl(real, shmLock, nil); err != nil {
			return 0, fmt.Errorf("locking it in memory (ulimit -l): %w", err)
		}
	}
	return real, nil
}

// What package unix does not have.
const (
	shmLock = 11
	shmExec = 0o100000
)

// find is an id of a segment of that size, key and mode.
func (r *Restored) find(s *Saved, left []Made) (int, error) {
	candidates := []Made{{Real: s.Real, Creator: s.Creator, Is: r.Node}}
	for _, one := range left {
		if one.Kind == Segments && one.Virtual == s.Virtual {
			candidates = append(candidates, one)
		}
	}
	real := -1
	for _, one := range candidates {
		if !one.Is.same(r.word.Node) {
			continue
		}
		ds := orphan(one.Real, one.Creator)
		if ds != nil && int(ds.Perm.Key) == s.Key && ds.Segsz == s.Bytes {
			real = one.Real
			break
		}
	}
	if real < 0 {
		var err error
		if real, err = r.create(s); err != nil {
			return 0, err
		}
	}
	return real, permit(real, s, 0o600) // so that it can be filled and attached
}

// permit gives a segment its owner and mode, and more permissions.
func permit(real int, s *Saved, more uint32) error {
	ds, err := status(real)
	if err != nil {
		return err
	}
	mode := s.Mode&0o777 | more
	if k := knownOf(ds); k.Mode&0o777 == mode && k.UID == s.UID && k.GID == s.GID {
		return nil
	}
	ds.Perm.Mode, ds.Perm.Uid, ds.Perm.Gid = mode, s.UID, s.GID
	if _, err := unix.SysvShmCtl(real, unix.IPC_SET, ds); err != nil {
		return fmt.Errorf("its owner and mode: %w", err)
	}
	return nil
}

// create makes one whose id means nothing else to a process of the job.
func (r *Restored) create(s *Saved) (int, error) {
	var spare []int
	defer func() {
		for _, id := range spare {
			_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
		}
	}()
	for range 64 {
		real, err := unix.SysvShmGet(s.Key, int(s.Bytes), unix.IPC_CREAT|unix.IPC_EXCL|0o600)
		switch {
		case errors.Is(err, unix.EEXIST):
			return 0, fmt.Errorf("its key is in use on host %s, by a segment that is not this job's, or that somebody has attached: see `ipcs -m`, remove it with `ipcrm -M %#x` when it is not needed",
				r.word.Node.Host, uint32(s.Key))
		case errors.Is(err, unix.ENOSPC):
			return 0, fmt.Errorf("%w: the limits of the kernel for shared memory are reached (`ipcs -lm`)", err)
		case err != nil:
			return 0, err
		}
		if real == s.Virtual || !slices.Contains(r.Taken, real) {
			return real, nil
		}
		_, _ = unix.SysvShmCtl(real, unix.IPC_RMID, nil)
		if id, err := unix.SysvShmGet(unix.IPC_PRIVATE, pageSize, 0o600); err == nil {
			spare = append(spare, id)
		}
	}
	return 0, errors.New("the kernel gives no id that is not in use by the job")
}

// Take takes what all processes have made.
func (r *Restored) Take(all [][]Made) {
	for _, list := range all {
		for _, m := range list {
			if !m.Is.same(r.word.Node) {
				continue
			}
			mine := m.Was.same(r.Node)
			if _, have := r.ids[m.Kind][m.Virtual]; mine || !have && !r.has(m.Kind, m.Virtual) {
				r.ids[m.Kind][m.Virtual] = m.Real
			}
		}
	}
}

// has tells whether the image says what it is.
func (r *Restored) has(kind Kind, virtual int) bool {
	if kind == Segments {
		return slices.ContainsFunc(r.Segments, func(s Saved) bool { return s.Virtual == virtual })
	}
	return slices.ContainsFunc(r.Objects, func(o Object) bool { return o.Kind == kind && o.Virtual == virtual })
}

// Table is for whoever emulates the program's calls.
func (r *Restored) Table() (t Table) {
	if r == nil {
		return t
	}
	for kind := range t.IDs {
		taken := r.Kept[kind]
		if Kind(kind) == Segments {
			taken = r.Taken
		}
		for _, virtual := range taken {
			id := ID{Virtual: virtual, Real: -1}
			if real, is := r.ids[kind][virtual]; is {
				id.Real = real
				id.Made = slices.ContainsFunc(r.made, func(m Made) bool { return m.Kind == Kind(kind) && m.Real == real })
			}
			t.IDs[kind] = append(t.IDs[kind], id)
		}
	}
	t.Undo = r.undo()
	return t
}

// Attach maps a region that is a part of a segment; false when it is none.
func (r *Restored) Attach(region *image.Region) (bool, error) {
	virtual, is := virtualOf(region)
	if r == nil || !is {
		return false, nil
	}
	i := slices.IndexFunc(r.Segments, func(s Saved) bool { return s.Virtual == virtual })
	real, there := r.ids[Segments][virtual]
	if i < 0 || !there {
		return false, fmt.Errorf("the image does not say what the System V segment %d is", virtual)
	}
	size := r.Segments[i].mapped()
	if region.Offset > size || region.Bytes() > size-region.Offset {
		return false, fmt.Errorf("the System V segment %d has %d bytes, which end before this part of it", virtual, size)
	}
	flags := 0
	if region.Prot&unix.PROT_EXEC != 0 {
		flags |= shmExec
	}
	if region.Offset == 0 && region.Bytes() == size {
		_, err := attach(real, region.Start, flags, region.Prot)
		return true, err
	}
	at, err := attach(real, 0, flags, region.Prot)
	if err != nil {
		return true, err
	}
	if _, _, e := unix.Syscall6(unix.SYS_MREMAP, at+uintptr(region.Offset), uintptr(region.Bytes()), uintptr(region.Bytes()),
		unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED, uintptr(region.Start), 0); e != 0 {
		err = e
	}
	for _, rest := range [][2]uint64{{0, region.Offset}, {region.Offset + region.Bytes(), size}} {
		if rest[0] < rest[1] {
			_, _, _ = unix.Syscall(unix.SYS_MUNMAP, at+uintptr(rest[0]), uintptr(rest[1]-rest[0]), 0)
		}
	}
	return true, err
}

func attach(real int, addr uint64, flags int, prot uint32) (uintptr, error) {
	at, _, e := unix.Syscall(unix.SYS_SHMAT, uintptr(real), uintptr(addr), uintptr(flags))
	if e == unix.EACCES && prot&unix.PROT_WRITE == 0 {
		at, _, e = unix.Syscall(unix.SYS_SHMAT, uintptr(real), uintptr(addr), uintptr(flags|unix.SHM_RDONLY))
	}
	if e != 0 {
		return 0, fmt.Errorf("attaching the System V segment: %w", e)
	}
	return at, nil
}

// Done ends it, when all processes have attached what they need. Without success nothing stays.
func (r *Restored) Done(good bool) (err error) {
	if r == nil {
		return nil
	}
	for i := range r.Segments {
		if s := &r.Segments[i]; good && s.Leader == r.rank {
			err = cmp.Or(err, permit(r.ids[Segments][s.Virtual], s, 0))
		}
	}
	for _, memory := range r.held {
		_ = unix.SysvShmDetach(memory)
	}
	r.held = nil
	if good {
		return err
	}
	for _, m := range r.made {
		_ = removeObject(m.Kind, m.Real)
	}
	r.made = nil
	_ = os.Remove(r.note)
	return nil
}

// The note is in the checkpoint directory: segments that outlive a killed job are known by it to its next restart.
func (r *Restored) readNote() (left []Made) {
	b, err := os.ReadFile(r.note)
	if err != nil || json.Unmarshal(b, &left) != nil {
		return nil
	}
	return slices.DeleteFunc(left, func(m Made) bool { return !m.Is.same(r.word.Node) })
}

func (r *Restored) writeNote() {
	if len(r.made) == 0 {
		_ = os.Remove(r.note)
		return
	}
	if b, err := json.Marshal(r.made); err == nil {
		_ = os.WriteFile(r.note, b, 0o600) // without it a killed job leaves them
	}
}
