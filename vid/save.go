// SPDX-License-Identifier: Apache-2.0

package vid

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// The saved form. Numbers are unsigned varints unless a width is given.
//
//	"VIDS"  version (1, or 2 when there was a port)  seq
//	per kind 1..12, in version 2 1..13:  high-water mark of its indices
//	count of objects, then each, by age:
//	  id (4 bytes LE)  generation (4 bytes LE)  flags (1 byte)  seq  order (8 bytes LE)
//	  name: length, bytes
//	  descriptor, if flagged: length, bytes
//	  needs: count, ids (4 bytes LE each)
//	  local task, if flagged
//	  communicator, if flagged: identity (8 bytes LE), rank, size, children, collectives,
//	    peers: count, world rank + 1 each
//	    counters that are not zero: count, (peer, sent, received) each, by peer

const (
	saveMagic = "VIDS"

	flagLive = 1 << 0
	flagDesc = 1 << 1
	flagComm = 1 << 2
	flagTask = 1 << 3 // of another local task than 0
	flagsAll = flagLive | flagDesc | flagComm | flagTask
)

// version is the version that has the marks of the kinds up to the last one that was used: a job without ports is
// saved as before there were any, and older releases read that.
func (t *Tables) version() byte {
	if t.kinds[Port].next > Predefined {
		return 2
	}
	return 1
}

// lastOf gives the last kind that a version has; not valid when there is no such version.
func lastOf(version byte) Kind {
	switch version {
	case 1:
		return Session
	case 2:
		return Port
	}
	return 0
}

// maxTask is beyond what a process can have.
const maxTask = 1 << 24

// ErrCorrupt marks saved bytes that Load cannot have got from Save.
var ErrCorrupt = errors.New("damaged virtual ids")

// Save returns everything that an image keeps of the tables.
func (t *Tables) Save() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	version := t.version()
	b := append([]byte(saveMagic), version)
	b = binary.AppendUvarint(b, t.seq)
	for k := Comm; k <= lastOf(version); k++ {
		b = binary.AppendUvarint(b, uint64(t.kinds[k].next))
	}
	all := make([]*object, 0, len(t.objects))
	for _, o := range t.objects {
		all = append(all, o)
	}
	slices.SortFunc(all, func(x, y *object) int { return cmp.Compare(x.seq, y.seq) })
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, o := range all {
		b = t.appendObject(b, o)
	}
	return b
}

func (t *Tables) appendObject(b []byte, o *object) []byte {
	s := t.mem.slot(o.id)
	var flags byte
	if o.live {
		flags |= flagLive
	}
	if o.desc != nil {
		flags |= flagDesc
	}
	if o.comm != nil {
		flags |= flagComm
	}
	if o.task != 0 {
		flags |= flagTask
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(o.id))
	b = binary.LittleEndian.AppendUint32(b, s.generation)
	b = append(b, flags)
	b = binary.AppendUvarint(b, o.seq)
	b = binary.LittleEndian.AppendUint64(b, o.order)
	b = binary.AppendUvarint(b, uint64(len(o.name)))
	b = append(b, o.name...)
	if o.desc != nil {
		b = binary.AppendUvarint(b, uint64(len(o.desc)))
		b = append(b, o.desc...)
	}
	b = binary.AppendUvarint(b, uint64(len(o.needs)))
	for _, n := range o.needs {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	if o.task != 0 {
		b = binary.AppendUvarint(b, uint64(o.task))
	}
	if o.comm == nil {
		return b
	}
	c := t.counters(o.comm)
	b = binary.LittleEndian.AppendUint64(b, o.comm.identity)
	for _, v := range []uint64{uint64(s.a), uint64(s.b), atomic.LoadUint64(&c.children), atomic.LoadUint64(&c.clock.call)} {
		b = binary.AppendUvarint(b, v)
	}
	b = binary.AppendUvarint(b, uint64(len(o.comm.world)))
	used := 0
	for i, w := range o.comm.world {
		b = binary.AppendUvarint(b, uint64(w+1))
		if *t.bookmark(o.comm, i) != (bookmark{}) {
			used++
		}
	}
	b = binary.AppendUvarint(b, uint64(used))
	for i := range o.comm.world {
		if m := *t.bookmark(o.comm, i); m != (bookmark{}) {
			b = binary.AppendUvarint(b, uint64(i))
			b = binary.AppendUvarint(b, m.sent)
			b = binary.AppendUvarint(b, m.received)
		}
	}
	return b
}

// Load fills tables that were just opened (predefined objects may be bound already) from what Save
// wrote. On an error, which names the offset, close the tables: they are half filled.
func (t *Tables) Load(saved []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &reader{b: saved, seen: make(map[ID]bool)}
	if err := t.load(r); err != nil {
		return fmt.Errorf("vid: offset %d of the saved tables: %w", r.off, err)
	}
	return nil
}

func (t *Tables) load(r *reader) error {
	if string(r.bytes(uint64(len(saveMagic)))) != saveMagic {
		return fmt.Errorf("%w: does not begin with %q", ErrCorrupt, saveMagic)
	}
	v := r.bytes(1)
	if r.err != nil {
		return r.err
	}
	r.last = lastOf(v[0])
	if !r.last.valid() {
		return fmt.Errorf("%w: version %d, this libckpt reads 1 and 2", ErrCorrupt, v[0])
	}
	t.seq = max(t.seq, r.uvarint())
	for k := Comm; k <= r.last; k++ {
		if err := t.loadKind(k, r.uvarint()); err != nil {
			return err
		}
	}
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		if err := t.loadObject(r); err != nil {
			return err
		}
	}
	if r.err != nil {
		return r.err
	}
	if r.off != len(r.b) {
		return fmt.Errorf("%w: %d bytes too many", ErrCorrupt, len(r.b)-r.off)
	}
	return t.finishLoad()
}

// loadKind takes over the high-water mark of a kind. Kinds given out by C start afresh.
func (t *Tables) loadKind(k Kind, next uint64) error {
	if next > pagesPerKind*pageSlots {
		return fmt.Errorf("%w: %v has %d ids, at most %d are possible", ErrCorrupt, k, next, pagesPerKind*pageSlots)
	}
	if !k.givenOutByC() {
		t.kinds[k].next = max(Predefined, uint32(next))
	}
	return nil
}

func (t *Tables) loadObject(r *reader) error {
	id, generation := ID(r.uint32()), r.uint32()
	flags := r.bytes(1)
	o := &object{id: id, seq: r.uvarint(), order: r.uint64(), name: string(r.bytes(r.uvarint()))}
	if r.err != nil {
		return r.err
	}
	k := id.Kind()
	switch {
	case !k.valid() || k > r.last || k.givenOutByC() || id.Index() >= t.kinds[k].next:
		return fmt.Errorf("%w: id %#x cannot be", ErrCorrupt, uint32(id))
	case flags[0]&^flagsAll != 0:
		return fmt.Errorf("%w: unknown flags %#x of id %#x", ErrCorrupt, flags[0], uint32(id))
	}
	if r.seen[id] {
		return fmt.Errorf("%w: id %#x appears twice", ErrCorrupt, uint32(id))
	}
	if id.IsPredefined() {
		generation = 1
	}
	o.live = flags[0]&flagLive != 0
	if o.live != (generation&1 == 1) {
		return fmt.Errorf("%w: id %#x is live, but not by its generation %d", ErrCorrupt, uint32(id), generation)
	}
	if flags[0]&flagDesc != 0 {
		o.desc = append([]byte{}, r.bytes(r.uvarint())...)
	}
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		o.needs = append(o.needs, ID(r.uint32()))
	}
	if flags[0]&flagTask != 0 {
		n := r.uvarint()
		if r.err == nil && (n == 0 || n > maxTask || k != Comm) {
			return fmt.Errorf("%w: %v %#x is of local task %d", ErrCorrupt, k, uint32(id), n)
		}
		o.task = int(n)
	}
	if r.err != nil {
		return r.err
	}
	if err := t.ensurePage(k, id.Index()); err != nil {
		return err
	}
	r.seen[id] = true
	s := t.mem.slot(id)
	if old := t.objects[id]; old != nil && old.comm != nil { // a predefined one that was bound already
		t.mem.dealloc(old.comm.counters, old.comm.bytes())
	}
	*s = slot{real: s.real, generation: generation, a: s.a, b: s.b}
	t.objects[id] = o
	if flags[0]&flagComm == 0 {
		return nil
	}
	if k != Comm || !o.live {
		return fmt.Errorf("%w: %v %#x has counters", ErrCorrupt, k, uint32(id))
	}
	return t.loadComm(r, o, s)
}

func (t *Tables) loadComm(r *reader, o *object, s *slot) error {
	c := &comm{identity: r.uint64()}
	s.a, s.b = int32(r.uvarint()), int32(r.uvarint())
	children, collectives := r.uvarint(), r.uvarint()
	peers := r.uvarint()
	if r.err == nil && peers > uint64(len(r.b)-r.off) {
		return fmt.Errorf("%w: communicator %#x has %d peers in %d bytes", ErrCorrupt, uint32(o.id), peers, len(r.b)-r.off)
	}
	for ; peers > 0 && r.err == nil; peers-- {
		c.world = append(c.world, int32(r.uvarint())-1)
	}
	if r.err != nil {
		return r.err
	}
	if err := t.attach(o, c); err != nil {
		return err
	}
	*t.counters(c) = counters{children: children, clock: clock{call: collectives}}
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		i, sent, received := r.uvarint(), r.uvarint(), r.uvarint()
		if i >= uint64(len(c.world)) {
			return fmt.Errorf("%w: communicator %#x counts peer %d of %d", ErrCorrupt, uint32(o.id), i, len(c.world))
		}
		*t.bookmark(c, int(i)) = bookmark{sent, received}
	}
	return r.err
}

// finishLoad counts references and finds the free indices, oldest ids first.
func (t *Tables) finishLoad() error {
	for _, o := range t.objects {
		if err := t.checkNeeds(o.needs); err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		t.hold(o.needs)
	}
	for k := Comm; k.valid(); k++ {
		if k.givenOutByC() {
			continue
		}
		in := &t.kinds[k]
		in.freed = in.freed[:0]
		// A mark far above the objects cannot come from Save of a live job, which reuses ids; skip
		// the gap rather than list it.
		if uint64(in.next) > uint64(len(t.objects))*2+1<<22 {
			return fmt.Errorf("%w: %v has %d ids for %d objects", ErrCorrupt, k, in.next, len(t.objects))
		}
		for i := uint32(Predefined); i < in.next; i++ {
			if t.objects[MakeID(k, i)] != nil {
				continue
			}
			if err := t.ensurePage(k, i); err != nil {
				return err
			}
			in.freed = append(in.freed, i)
		}
	}
	_, err := t.levels()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

// reader reads the saved form and remembers the first error; after it, all values are zero.
type reader struct {
	b    []byte
	off  int
	err  error
	seen map[ID]bool // objects read so far
	last Kind        // that the version has
}

func (r *reader) bytes(n uint64) []byte {
	if r.err == nil && n > uint64(len(r.b)-r.off) {
		r.err = fmt.Errorf("%w: cut short, %d bytes expected, %d left", ErrCorrupt, n, len(r.b)-r.off)
	}
	if r.err != nil {
		return nil
	}
	r.off += int(n)
	return r.b[r.off-int(n) : r.off]
}

func (r *reader) uint32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.b[r.off:])
	if n <= 0 {
		r.err = fmt.Errorf("%w: no number here", ErrCorrupt)
		return 0
	}
	r.off += n
	return v
}
