// SPDX-License-Identifier: Apache-2.0

package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/internal/fault"
)

// mesh is a network of processes that are goroutines of a test. Messages arrive at once, in order.
type mesh struct {
	mu       sync.Mutex
	handlers []func(int, []byte)
	failed   chan struct{}
	err      error
}

type end struct {
	*mesh
	rank int
}

func (e end) Rank() int               { return e.rank }
func (e end) Size() int               { return len(e.handlers) }
func (e end) Failed() <-chan struct{} { return e.failed }
func (e end) Err() error              { return e.err }

func (e end) Handle(_ uint16, f func(int, []byte)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.handlers[e.rank] = f
}

func (e end) Send(_ context.Context, to int, _ uint16, b []byte) error {
	select {
	case <-e.failed:
		return e.err
	default:
	}
	e.mu.Lock()
	f := e.handlers[to]
	e.mu.Unlock()
	f(e.rank, b)
	return nil
}

func processes(n int) []*Segments {
	m := &mesh{handlers: make([]func(int, []byte), n), failed: make(chan struct{})}
	all := make([]*Segments, n)
	for i := range all {
		all[i] = New(end{m, i}, 1, nil)
	}
	return all
}

// each runs f in each process, beside each other.
func each(all []*Segments, f func(rank int, s *Segments) error) []error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() { errs[i] = f(i, s) })
	}
	wg.Wait()
	return errs
}

// mapAll has all processes map what spec says, without mapping: addresses are made up.
func mapAll(all []*Segments, spec func(rank int) Spec, failure func(rank int) error) []error {
	return each(all, func(rank int, s *Segments) error {
		sp := spec(rank)
		file, err := s.Make(sp)
		if err != nil {
			return err
		}
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("while it is mapped: %w", err)
		}
		return s.Mapped(sp.Name, uint64(rank+1)<<20, failure(rank))
	})
}

// unique keeps tests apart that others run on this machine.
var unique = fmt.Sprint("unittest-", os.Getpid())

func fine(int) error { return nil }

func clean(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if left, _ := filepath.Glob(Dir + "/libckpt-*-" + unique); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
	})
}

func TestMapTogether(t *testing.T) {
	clean(t)
	all := processes(3)
	whole := func(int) Spec { return Spec{Name: unique, Bytes: 5000, Processes: []int{0, 1, 2}} }
	for _, err := range mapAll(all, whole, fine) {
		if err != nil {
			t.Error(err)
		}
	}
	held := all[0].Held()
	if len(held) != 1 || !strings.HasSuffix(held[0], "-"+unique) || fmt.Sprint(all[2].Held()) != fmt.Sprint(held) {
		t.Errorf("held: %v, %v", held, all[2].Held())
	}
	for rank, err := range mapAll(all, whole, fine) {
		if !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "process 0 has a segment of this name") {
			t.Errorf("process %d, again: %v", rank, err)
		}
	}
	for i, s := range all {
		at, bytes, err := s.Unmapping(unique)
		if err != nil || at != uint64(i+1)<<20 || bytes != 8192 {
			t.Errorf("process %d: %#x %d %v", i, at, bytes, err)
		}
		if _, _, err := s.Unmapping(unique); !errors.Is(err, ErrState) {
			t.Errorf("two threads unmap it: %v", err)
		}
		if why := s.Busy(); len(why) != 1 {
			t.Errorf("busy: %v", why)
		}
		if err := s.Unmapped(unique); err != nil || len(s.Busy()) > 0 || len(s.Held()) > 0 {
			t.Errorf("%v %v %v", err, s.Busy(), s.Held())
		}
		if _, _, err := s.Unmapping(unique); !errors.Is(err, ErrArgument) {
			t.Errorf("it is gone: %v", err)
		}
	}
	for _, err := range mapAll(all, whole, fine) {
		if err != nil {
			t.Errorf("after it was unmapped: %v", err)
		}
	}
}

// What is wrong with one is wrong for all, and the next call is none the worse for it.
func TestMapDiffering(t *testing.T) {
	clean(t)
	all := processes(4)
	good := func(int) Spec { return Spec{Name: unique, Bytes: 1, Processes: []int{0, 1, 2, 3}} }
	for name, c := range map[string]struct {
		spec    func(sp *Spec, rank int)
		failure func(rank int) error
		want    error
		text    string
	}{
		"bytes": {func(sp *Spec, r int) {
			if r == 2 {
				sp.Bytes = 2
			}
		}, fine, ErrArgument, "process 0 asks for 1 bytes, process 2 for 2"},
		"zero": {func(sp *Spec, r int) { sp.Zero = r == 0 }, fine, ErrArgument, "CKPT_SHM_ZERO is set in process 0 or in process 1, and not in both"},
		"no memory": {func(*Spec, int) {}, func(r int) error {
			if r == 3 {
				return unix.ENOMEM
			}
			return nil
		}, ErrSystem, "process 3 cannot map /dev/shm/libckpt-"},
		"leader has no memory": {func(*Spec, int) {}, func(r int) error {
			if r == 0 {
				return unix.ENOMEM
			}
			return nil
		}, ErrSystem, "process 0 cannot map /dev/shm/libckpt-"},
	} {
		for rank, err := range mapAll(all, func(r int) Spec { sp := good(r); c.spec(&sp, r); return sp }, c.failure) {
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: process %d: %v", name, rank, err)
			}
		}
		for _, s := range all {
			if len(s.Busy()) > 0 || len(s.Held()) > 0 {
				t.Errorf("%s: %v %v", name, s.Busy(), s.Held())
			}
		}
	}
	for _, err := range mapAll(all, good, fine) {
		if err != nil {
			t.Error(err)
		}
	}
	for i, s := range all {
		if len(s.mail) > 0 {
			t.Errorf("process %d: messages that nobody has read: %v", i, s.mail)
		}
	}
}

// A process that waits for a leader of its own says so to the other one.
func TestMapOtherLeader(t *testing.T) {
	clean(t)
	all := processes(3)
	errs := make(chan error, 3)
	go func() {
		_, err := all[1].Make(Spec{Name: unique, Bytes: 1, Processes: []int{1, 2}})
		errs <- err
	}()
	_, err := all[0].Make(Spec{Name: unique, Bytes: 1, Processes: []int{0, 1}})
	if !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), "process 0 shares it among processes 0, 1, process 1 among 1, 2") {
		t.Errorf("process 0: %v", err)
	}
	go func() {
		_, err := all[2].Make(Spec{Name: unique, Bytes: 1, Processes: []int{1, 2}})
		errs <- err
	}()
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	go func() { errs <- all[1].Mapped(unique, 1<<20, nil) }()
	go func() { errs <- all[2].Mapped(unique, 1<<20, nil) }()
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// A process is lost at each moment of a meeting: the others are told, and no file is left.
func TestMapLost(t *testing.T) {
	clean(t)
	for _, point := range []string{"shm.allocate", "shm.made"} {
		all := processes(2)
		m := all[0].net.(end).mesh
		disarm, err := fault.Arm(point + "=error")
		if err != nil {
			t.Fatal(err)
		}
		m.err = errors.New("process 0 is lost")
		done := make(chan error, 1)
		go func() {
			_, err := all[1].Make(Spec{Name: unique, Bytes: 1, Processes: []int{0, 1}})
			done <- err
		}()
		// The leader, up to where it dies.
		call := &message{Step: stepCall, Name: unique, Spec: &Spec{Name: unique, Bytes: 1, Processes: []int{0, 1}}, Path: path(nonce(), unique)}
		if err := all[0].send(1, call); err != nil {
			t.Fatal(err)
		}
		if _, err := all[0].read(unique, func(m *message) bool { return m.Step == stepWord }); err != nil {
			t.Fatal(err)
		}
		f, err := create(&Spec{Name: unique, Bytes: 1}, call.Path)
		if point == "shm.made" {
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
		} else if err == nil || !errors.Is(err, ErrSystem) {
			t.Errorf("%s: %v", point, err)
		}
		disarm()
		close(m.failed)
		if err := <-done; !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), "process 0 is lost") {
			t.Errorf("%s: %v", point, err)
		}
	}
}

func TestArguments(t *testing.T) {
	s := processes(3)[1]
	for name, sp := range map[string]Spec{
		"no name":   {Name: "", Bytes: 1, Processes: []int{1}},
		"long":      {Name: strings.Repeat("x", MaxName+1), Bytes: 1, Processes: []int{1}},
		"slash":     {Name: "../x", Bytes: 1, Processes: []int{1}},
		"no bytes":  {Name: "x", Processes: []int{1}},
		"many":      {Name: "x", Bytes: maxBytes + 1, Processes: []int{1}},
		"nobody":    {Name: "x", Bytes: 1},
		"descends":  {Name: "x", Bytes: 1, Processes: []int{1, 0}},
		"twice":     {Name: "x", Bytes: 1, Processes: []int{1, 1}},
		"stranger":  {Name: "x", Bytes: 1, Processes: []int{1, 3}},
		"negative":  {Name: "x", Bytes: 1, Processes: []int{-1, 1}},
		"not there": {Name: "x", Bytes: 1, Processes: []int{0, 2}},
	} {
		if _, err := s.Make(sp); !errors.Is(err, ErrArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := CheckName("A-z.0_" + strings.Repeat("9", MaxName-6)); err != nil {
		t.Error(err)
	}
}

// A segment of which a process has moved or unmapped a part cannot be saved by it, others can be.
func TestSave(t *testing.T) {
	const at = 0x100000000000
	make := func(rank int, zero bool) *Segments {
		s := processes(3)[rank]
		s.all["a"] = &segment{Spec: Spec{Name: "a", Bytes: 3 * pageSize, Processes: []int{0, 1, 2}, Zero: zero}, path: path("0123456789abcdef", "a"), at: at}
		return s
	}
	file := path("0123456789abcdef", "a")
	region := func(start, end, offset uint64) image.Region {
		return image.Region{Start: at + start*pageSize, End: at + end*pageSize, Offset: offset * pageSize, Path: file + " (deleted)", Flags: image.FlagShared | image.FlagFile}
	}
	other := image.Region{Start: at + 64*pageSize, End: at + 65*pageSize, Path: "/dev/shm/other (deleted)", Flags: image.FlagShared | image.FlagFile}
	all := [][]string{{file}, {file}, {file}}
	for name, c := range map[string]struct {
		rank     int
		zero     bool
		held     [][]string
		regions  []image.Region
		data     bool
		obstacle bool
	}{
		"leader":                 {0, false, all, []image.Region{region(0, 3, 0)}, true, false},
		"in parts":               {0, false, all, []image.Region{region(0, 1, 0), region(1, 3, 1)}, true, false},
		"another":                {1, false, all, []image.Region{region(0, 3, 0)}, false, false},
		"the leader has gone":    {1, false, [][]string{nil, {file}, {file}}, []image.Region{region(0, 3, 0)}, true, false},
		"a part is gone":         {0, false, all, []image.Region{region(0, 1, 0), region(2, 3, 2)}, true, true},
		"another's part is gone": {1, false, all, []image.Region{region(0, 1, 0)}, false, false},
		"zeros":                  {0, true, all, []image.Region{region(0, 3, 0)}, false, false},
	} {
		s := make(c.rank, c.zero)
		regions := append(c.regions, other)
		saved, obstacles := s.Save(regions, c.held)
		if len(saved) != 1 || (len(obstacles) > 0) != c.obstacle {
			t.Errorf("%s: %+v %v", name, saved, obstacles)
			continue
		}
		for i := range c.regions {
			r := &regions[i]
			if RegionOf(r) != "a" || r.Path != "" || (r.Flags&image.FlagNoData == 0) != c.data {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if got := &regions[len(regions)-1]; RegionOf(got) != "" || got.Path != other.Path {
			t.Errorf("%s: another file: %+v", name, got)
		}
		b, err := Encode(saved)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Decode(b, c.rank, 3); err != nil || fmt.Sprint(again) != fmt.Sprint(saved) {
			t.Errorf("%s: %+v %v, from %+v", name, again, err, saved)
		}
		if _, err := Decode(b, c.rank, 2); err == nil {
			t.Errorf("%s: of another job", name)
		}
	}
	s := make(0, false)
	s.all["a"].busy = true
	if _, obstacles := s.Save(nil, all); len(obstacles) != 1 {
		t.Errorf("while it is unmapped: %v", obstacles)
	}
}

// What is restored is shared again, by those on the leader's node alone.
func TestRestore(t *testing.T) {
	clean(t)
	saved := []Saved{{Spec: Spec{Name: unique, Bytes: 5000, Processes: []int{0, 1, 2}}, Holders: []int{1, 2}}}
	all := []*Restored{Restore(nil, 0), Restore(saved, 1), Restore(saved, 2)}
	words := func() (list [][]byte) {
		for _, r := range all {
			b := r.Tell()
			if len(b) != RestoreBytes {
				t.Errorf("%d bytes", len(b))
			}
			list = append(list, b)
		}
		return list
	}
	for _, step := range []func(*Restored) error{
		func(r *Restored) error { return r.Compare(words()) }, (*Restored).Make, (*Restored).Open,
	} {
		for rank, r := range all {
			if err := step(r); err != nil {
				t.Fatalf("process %d: %v", rank, err)
			}
		}
	}
	region := image.Region{Start: 0, End: pageSize, Offset: pageSize, Name: regionName(unique), Flags: image.FlagShared | image.FlagAnonymous}
	a, err := all[1].File(&region)
	if err != nil {
		t.Fatal(err)
	}
	b, err := all[2].File(&region)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.WriteAt([]byte("shared"), 8000); err != nil {
		t.Error(err)
	}
	got := make([]byte, 6)
	if _, err := b.ReadAt(got, 8000); err != nil || string(got) != "shared" {
		t.Errorf("%q %v", got, err)
	}
	region.Offset = 2 * pageSize
	if _, err := all[2].File(&region); err == nil {
		t.Error("beyond its end")
	}
	if _, err := all[0].File(&region); err == nil {
		t.Error("a segment that the image does not list")
	}
	region.Name = ""
	if f, err := all[2].File(&region); f != nil || err != nil {
		t.Errorf("another region: %v %v", f, err)
	}
	for _, r := range all {
		r.Unname()
		r.Close()
	}

	all[2].mine.Node.Device++
	if err := all[1].Compare(words()); !errors.Is(err, ErrNodes) || !strings.Contains(err.Error(), "processes 1 and 2, both on host ") {
		t.Errorf("another /dev/shm: %v", err)
	}
	all[2].mine.Node.Host = "elsewhere"
	if err := all[2].Compare(words()); !errors.Is(err, ErrNodes) || !strings.Contains(err.Error(), "process 2 on host elsewhere") {
		t.Errorf("another host: %v", err)
	}
	if err := all[0].Compare(words()); err != nil {
		t.Errorf("a process without segments: %v", err)
	}
}
