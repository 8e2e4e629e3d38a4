// SPDX-License-Identifier: Apache-2.0

package sysv

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
)

// object makes one, which is removed at the end.
func object(t *testing.T, kind Kind, key, number int) int {
	t.Helper()
	id, err := getObject(kind, key, number)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = removeObject(kind, id) })
	return id
}

// objects are a set of semaphores of these values and a queue of these messages.
func objects(t *testing.T, key int, values []uint16, list ...Message) Table {
	t.Helper()
	set, queue := object(t, Semaphores, key, len(values)), object(t, Queues, key, 0)
	if err := setSemValues(set, values); err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		if err := send(queue, m); err != nil {
			t.Fatal(err)
		}
	}
	return Table{IDs: [kinds][]ID{Semaphores: {{set, set, true}}, Queues: {{queue, queue, true}}}}
}

func encode(t *testing.T, s Section) []byte {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func saveAs(t *testing.T, known Table) ([]image.Section, []string) {
	t.Helper()
	h, err := Look(mapsNow(t), known, all)
	if err != nil {
		t.Fatal(err)
	}
	obstacles := h.Match(0, []Report{h.Report()})
	sections, err := h.Sections(room)
	if err != nil {
		t.Fatal(err)
	}
	return sections, obstacles
}

// makeAgain is a restart.
func makeAgain(t *testing.T, r *Restored) {
	t.Helper()
	made, err := r.Make()
	if err != nil {
		t.Fatal(err)
	}
	r.Take([][]Made{made})
	for _, step := range []func() error{r.Undo, r.Settle} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// Values and messages are made again: in what is still there, which was changed since, and where it is gone; then the program
// has the same ids. A restart that fails leaves nothing.
func TestObjectsMadeAgain(t *testing.T) {
	key := 0x436b7100 | os.Getpid()&0xff
	values := []uint16{3, 0, semMost}
	sent := []Message{{7, []byte("first")}, {1, nil}, {7, []byte("second")}}
	known := objects(t, key, values, sent...)
	set, queue := known.IDs[Semaphores][0].Real, known.IDs[Queues][0].Real
	sections, obstacles := saveAs(t, known)
	if len(obstacles) != 0 {
		t.Fatal(obstacles)
	}
	note := filepath.Join(t.TempDir(), "note")
	for life := range 4 {
		switch life {
		case 0:
			if err := setSemValues(set, []uint16{1, 1, 1}); err != nil {
				t.Fatal(err)
			}
			if _, err := receive(queue, 100, 1, 0); err != nil {
				t.Fatal(err)
			}
		case 1:
			_, _ = removeObject(Semaphores, set), removeObject(Queues, queue)
		}
		r := restore(t, sections, note)
		if err := r.Compare([]Word{r.Word()}); err != nil {
			t.Fatal(err)
		}
		makeAgain(t, r)
		table := r.Table()
		s, q := table.IDs[Semaphores][0], table.IDs[Queues][0]
		t.Cleanup(func() { _, _ = removeObject(Semaphores, s.Real), removeObject(Queues, q.Real) })
		if s.Virtual != set || q.Virtual != queue || !s.Made || (s.Real == set) != (life == 0) {
			t.Errorf("life %d: %+v", life, table)
		}
		got, err := semValues(s.Real, len(values))
		if diff := cmp.Diff(values, got); diff != "" || err != nil {
			t.Errorf("life %d: %v %s", life, err, diff)
		}
		list, err := messages(q.Real)
		if len(list) == len(sent) && len(list[1].Data) == 0 {
			list[1].Data = nil
		}
		if diff := cmp.Diff(sent, list); diff != "" || err != nil {
			t.Errorf("life %d: %v %s", life, err, diff)
		}
		if err := r.Done(life < 3); err != nil {
			t.Fatal(err)
		}
		if _, there, _ := look(Queues, q); there != (life < 3) {
			t.Errorf("life %d: it is there: %v", life, there)
		}
	}
}

func TestMain(m *testing.M) {
	work := map[string]func(string) error{"undoes": undoes, "adds": adds}
	if len(os.Args) != 3 || work[os.Args[1]] == nil {
		os.Exit(m.Run())
	}
	if err := work[os.Args[1]](os.Args[2]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// another starts a process that does that until it has no input any more, or until the end of the test, and waits for what it
// says.
func another(t *testing.T, says string, argv ...string) (end func()) {
	t.Helper()
	c := exec.Command(os.Args[0], argv...)
	in, err1 := c.StdinPipe()
	out, err2 := c.StdoutPipe()
	if err := errors.Join(err1, err2, c.Start()); err != nil {
		t.Fatal(err)
	}
	end = func() { _, _ = in.Close(), c.Wait() }
	t.Cleanup(end)
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != says+"\n" {
		t.Fatalf("it says %q", line)
	}
	return end
}

// say says it and waits for the end of the input.
func say(what string) error {
	fmt.Println(what)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// adds is what a process outside a job does.
func adds(set string) error {
	id, err := strconv.Atoi(set)
	if err == nil {
		err = semAdd(id, 0, 1, 0)
	}
	if err != nil {
		return err
	}
	return say("added")
}

// undoes is what another process of TestUndoneAgain does, rank 1 of two: at its end the kernel undoes its part.
func undoes(sections string) error {
	b, err := os.ReadFile(sections)
	if err != nil {
		return err
	}
	s, err := Decode(b, 1, 2)
	if err != nil {
		return err
	}
	r := Restore(s, 1, nil, sections+".note")
	r.ids[Semaphores][s.Objects[0].Virtual] = s.Objects[0].Real
	if err := r.Undo(); err != nil {
		return err
	}
	return say("undone")
}

// The kernel adds to semaphores, at the end of a process that was continued, what the process has taken, and the values are
// those of the image until then; also of one that is 0.
func TestUndoneAgain(t *testing.T) {
	known := objects(t, 0, []uint16{0, 5, 9})
	id := known.IDs[Semaphores][0].Real
	h, err := Look(mapsNow(t), known, all)
	if err != nil {
		t.Fatal(err)
	}
	other := h.Report()
	other.PID, other.Undo = 0, []Undo{{Virtual: id, Number: 0, Adjust: 2}, {Virtual: id, Number: 1, Adjust: -4}, {Virtual: id, Number: 2, Adjust: 1, To: 5}}
	first := h.Report()
	first.Undo = []Undo{{Virtual: id, Number: 2, Set: true, From: 6, To: 7}} // it has set that value since
	if found := h.Match(0, []Report{first, other}); len(found) != 0 {
		t.Fatal(found)
	}
	sections, err := h.Sections(room)
	if err != nil {
		t.Fatal(err)
	}
	b := sections[0].Data
	s, err := Decode(b, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	r := Restore(s, 0, nil, filepath.Join(t.TempDir(), "note"))
	made, err := r.Make()
	if err != nil {
		t.Fatal(err)
	}
	r.Take([][]Made{made})
	theirs, err := Decode(b, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	theirs.Objects[0].Values = nil // as in the image of another rank
	file := filepath.Join(t.TempDir(), "section")
	if err := os.WriteFile(file, encode(t, theirs), 0o600); err != nil {
		t.Fatal(err)
	}
	end := another(t, "undone", "undoes", file)
	if err := errors.Join(r.Undo(), r.Settle()); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]uint16{{0, 5, 9}, {2, 1, 9}} {
		got, err := semValues(made[0].Real, 3)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v %s", err, diff)
		}
		end()
	}
	if err := r.Done(false); err != nil {
		t.Fatal(err)
	}
}

// What is in use by others is not saved, and not taken.
func TestObjectsOfOthers(t *testing.T) {
	key := 0x436b7200 | os.Getpid()&0xff
	known := objects(t, key, []uint16{1})
	id := known.IDs[Semaphores][0].Real
	sections, obstacles := saveAs(t, known)
	if len(obstacles) != 0 {
		t.Fatal(obstacles)
	}
	end := another(t, "added", "adds", fmt.Sprint(id))
	h, err := Look(mapsNow(t), known, all)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("the System V set of semaphores %d (key %#x) is used by process ", id, key)
	if found := h.Match(0, []Report{h.Report()}); len(found) != 1 || !strings.HasPrefix(found[0], want) || strings.Contains(found[0], fmt.Sprint(" ", os.Getpid(), " ")) {
		t.Errorf("%q, not %q", found, want)
	}
	r := restore(t, sections, filepath.Join(t.TempDir(), "note"))
	want = "by one that is used by process "
	if _, err := r.Make(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), fmt.Sprintf("ipcrm -S %#x", key)) {
		t.Errorf("%v, not %q", err, want)
	}
	if v, err := semctl(id, 0, semGetVal, nil); v != 2 || err != nil {
		t.Errorf("its value is %d: %v", v, err)
	}
	end()
	makeAgain(t, r)
	if v, err := semctl(id, 0, semGetVal, nil); v != 1 || err != nil {
		t.Errorf("its value is %d: %v", v, err)
	}
}

// What cannot be told is refused.
func TestUndoNotKnown(t *testing.T) {
	known := objects(t, 0, []uint16{1})
	id := known.IDs[Semaphores][0].Real
	h, err := Look(mapsNow(t), known, all)
	if err != nil {
		t.Fatal(err)
	}
	first, other := h.Report(), h.Report()
	first.Undo = []Undo{{Virtual: id, Number: -1, Set: true, From: 4, To: 6}}
	other.Undo = []Undo{{Virtual: id, Number: 0, Adjust: 1, From: 3, To: 5}}
	found := h.Match(0, []Report{first, other})
	if len(found) != 1 || !strings.Contains(found[0], "what the end of rank 1 undoes of semaphore 0") {
		t.Errorf("%q", found)
	}
}

// What an image says of objects is looked at.
func TestObjectsChecked(t *testing.T) {
	good := func() Object {
		return Object{Kind: Semaphores, Virtual: 1, Real: 2, Number: 2, Mode: 0o600, Users: []int{0, 1}, Values: []uint16{1, 2},
			Undone: []Undone{{1, 1, 3}}}
	}
	o := good()
	if err := o.check(0, 2); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Object){
		"kind":     func(o *Object) { o.Kind = 3 },
		"segment":  func(o *Object) { o.Kind = Segments },
		"id":       func(o *Object) { o.Virtual = -1 },
		"leader":   func(o *Object) { o.Leader = 2 },
		"mode":     func(o *Object) { o.Mode = 0o1000 },
		"values":   func(o *Object) { o.Values = o.Values[:1] },
		"value":    func(o *Object) { o.Values[0] = semMost + 1 },
		"users":    func(o *Object) { o.Users = []int{1, 1} },
		"messages": func(o *Object) { o.Messages = []Message{{Type: 1}} },
		"number":   func(o *Object) { o.Undone[0].Number = 2 },
		"adjust":   func(o *Object) { o.Undone[0].Adjust = 1 << 40 },
		"sum":      func(o *Object) { o.Undone = []Undone{{0, 1, semMost}, {1, 1, 1}} },
		"rank":     func(o *Object) { o.Undone[0].Rank = -1 },
		"queue":    func(o *Object) { o.Kind = Queues },
		"type":     func(o *Object) { *o = Object{Kind: Queues, Messages: []Message{{}}} },
	} {
		o := good()
		spoil(&o)
		if err := o.check(0, 2); err == nil {
			t.Errorf("%s: nothing is said of %+v", name, o)
		}
	}
}

func TestLayouts(t *testing.T) {
	if n, m := unsafe.Sizeof(semStatus{}), unsafe.Sizeof(queueStatus{}); n != 104 || m != 120 {
		t.Errorf("struct semid64_ds has %d bytes, struct msqid64_ds %d", n, m)
	}
	if _, err := semctl(-1, 0, unix.IPC_STAT, nil); !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
}
