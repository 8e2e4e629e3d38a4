// SPDX-License-Identifier: Apache-2.0

package forget

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

const rootID = 1

// object is a file or a folder. What programs see is named live, what has been synced, synced.
type object struct {
	folder bool
	mode   uint32 // permission bits
	mtime  time.Time
	links  uint32

	live, synced   []byte
	shared         bool // live is also of a Moment, and copied before it is written to
	names, durable map[string]uint64
}

// Disk is the model. Its zero value is of no use: see NewDisk.
type Disk struct {
	mu      sync.Mutex
	objects map[uint64]*object
	next    uint64
	step    func(what string)
}

// NewDisk returns an empty disk.
func NewDisk() *Disk {
	d := &Disk{objects: map[uint64]*object{}, next: rootID}
	d.create(true, 0o755)
	return d
}

func (d *Disk) create(folder bool, mode uint32) uint64 {
	id := d.next
	d.next++
	o := &object{folder: folder, mode: mode & 0o7777, mtime: time.Now(), links: 1}
	if folder {
		o.names, o.durable = map[string]uint64{}, map[string]uint64{}
	}
	d.objects[id] = o
	return id
}

// stepped is called, with the lock held, after what a power cut makes a difference for.
func (d *Disk) stepped(format string, args ...any) {
	if d.step != nil {
		d.step(fmt.Sprintf(format, args...))
	}
}

// resize sets the length of a file, and makes its bytes fit to be written to.
func (o *object) resize(size int) {
	if o.shared || cap(o.live) < size {
		grown := make([]byte, min(size, len(o.live)), max(size, min(2*len(o.live), size+1<<20)))
		copy(grown, o.live)
		o.live, o.shared = grown, false
	}
	if old := len(o.live); size > old {
		o.live = o.live[:size]
		clear(o.live[old:])
	}
	o.live = o.live[:size]
	o.mtime = time.Now()
}

func (o *object) write(b []byte, at int) {
	o.resize(max(len(o.live), at+len(b)))
	copy(o.live[at:], b)
}

func (o *object) sync() {
	if o.folder {
		o.durable = maps.Clone(o.names)
		return
	}
	o.synced, o.shared = o.live, true
}

// Moment is the state of the disk at one step.
type Moment struct {
	What    string // the step
	objects map[uint64]object
	next    uint64
}

// Record calls f with every step, as soon as it is made, until stop is called.
func (d *Disk) Record(f func(Moment)) (stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.step = func(what string) { f(d.moment(what)) }
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.step = nil
	}
}

func (d *Disk) moment(what string) Moment {
	m := Moment{What: what, objects: make(map[uint64]object, len(d.objects)), next: d.next}
	for id, o := range d.objects {
		o.shared = true
		copied := *o
		copied.names, copied.durable = maps.Clone(o.names), maps.Clone(o.durable)
		m.objects[id] = copied
	}
	return m
}

// Loss says what a power cut takes of the data that was not synced. POSIX allows each of these losses.
type Loss int

// Losses.
const (
	Everything Loss = iota // names and content
	Content                // a file has its length, and zeros where nothing was synced
	Names                  // content is there, under the names that were synced
	Nothing
	Losses
)

func (l Loss) String() string {
	return [...]string{"nothing but what was synced", "all names, and zeros for content that was not synced",
		"all content, under the names that were synced", "everything"}[l]
}

// After is the disk that a power cut at that moment leaves.
func (m *Moment) After(loss Loss) *Disk {
	d := &Disk{objects: map[uint64]*object{}, next: m.next}
	var keep func(id uint64)
	keep = func(id uint64) {
		if o := d.objects[id]; o != nil {
			o.links++
			return
		}
		was := m.objects[id]
		o := &object{folder: was.folder, mode: was.mode, mtime: was.mtime, links: 1, shared: true}
		d.objects[id] = o
		if was.folder {
			if o.names = maps.Clone(was.durable); loss == Content || loss == Nothing {
				o.names = maps.Clone(was.names)
			}
			o.durable = maps.Clone(o.names)
			for _, name := range slices.Sorted(maps.Keys(o.names)) {
				keep(o.names[name])
			}
			return
		}
		switch loss {
		case Everything:
			o.live = was.synced
		case Content:
			o.live = make([]byte, len(was.live))
			copy(o.live, was.synced)
		default:
			o.live = was.live
		}
		o.synced = o.live
	}
	keep(rootID)
	return d
}

// Digest is equal for disks with the same content.
func (d *Disk) Digest() [32]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := sha256.New()
	for _, id := range slices.Sorted(maps.Keys(d.objects)) {
		o := d.objects[id]
		fmt.Fprintf(h, "%d %v %o %d\n", id, o.folder, o.mode, len(o.live))
		h.Write(o.live)
		for _, name := range slices.Sorted(maps.Keys(o.names)) {
			fmt.Fprintf(h, "%q %d\n", name, o.names[name])
		}
	}
	return [32]byte(h.Sum(nil))
}
