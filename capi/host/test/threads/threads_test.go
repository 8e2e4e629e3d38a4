// SPDX-License-Identifier: Apache-2.0

package threads

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	good := sample(0)
	if len(good) == 0 {
		t.Fatal("no sample")
	}
	if err := check(good); err != nil {
		t.Fatal(err)
	}
	if v := binary.NativeEndian.Uint32(good[4:]); v != 11 {
		t.Errorf("images are written with version %d: those with 11, of release 0.1, must go on, too", v)
	}
	process := int(binary.NativeEndian.Uint32(good)) // its length comes first
	change := func(at int, v uint32) []byte {
		b := bytes.Clone(good)
		binary.NativeEndian.PutUint32(b[at:], v)
		return b
	}
	first := int(binary.NativeEndian.Uint32(good[process:]))
	signal := func(n byte) []byte { // the number of the one that is kept, behind the version
		b := bytes.Clone(good)
		at := 8 + bytes.Index(good[8:], []byte{10, 0, 0, 0})
		b[at] = n
		return b
	}
	for _, c := range []struct {
		name, says string
		b          []byte
	}{
		{"nothing", "another version", nil},
		{"version", "another version", change(4, 1)},
		{"state", "more state", change(process+288, 16385)},
		{"kind 0", "no kind", change(process+4, 0)},
		{"kind 4", "no kind", change(process+4, 4)},
		{"shorter than it is", "length", change(process, uint32(first-8))},
		{"longer than all", "length", change(process, 1<<31)},
		{"no length", "length", change(process, 0)},
		{"two main threads", "two main", change(process+first+12, 1)},
		{"cut", "cut short", good[:len(good)-8]},
		{"tail", "cut short", append(bytes.Clone(good), make([]byte, 8)...)},
		{"signal 0", "no number", signal(0)},
		{"signal 65", "no number", signal(65)},
	} {
		if err := check(c.b); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Timers come before the threads, and images with some have a version that earlier releases refuse.
func TestCheckTimers(t *testing.T) {
	const bytesOfTimer = 56
	good := sample(2)
	if err := check(good); err != nil {
		t.Fatal(err)
	}
	process := int(binary.NativeEndian.Uint32(good))
	for _, c := range []struct {
		name, says string
		at         int
		v          uint32
	}{
		{"version of an image without", "another version", 4, 11},
		{"none", "another version", 28, 0},
		{"one less than there are", "threads", 28, 1},
		{"one more than there are", "threads", 28, 3},
		{"very many", "not so many timers", 28, 1 << 31},
		{"an id below 0", "timer", process, 1 << 31},
		{"signal 65", "timer", process + bytesOfTimer + 12, 65},
		{"time that is left below 0", "timer", process + bytesOfTimer + 44, 1 << 31},
	} {
		b := bytes.Clone(good)
		binary.NativeEndian.PutUint32(b[c.at:], c.v)
		if err := check(b); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Processor time comes between the timers and the threads, for each of these.
func TestCheckSpent(t *testing.T) {
	const bytesOfTimer = 56
	for _, timers := range []int{0, 2} {
		good := spent(timers)
		if err := check(good); err != nil {
			t.Fatal(err)
		}
		at := int(binary.NativeEndian.Uint32(good)) + timers*bytesOfTimer
		for _, c := range []struct {
			name, says string
			at         int
			v          uint32
		}{
			{"version of an image without", "thread", 4, 11 + min(uint32(timers), 1)},
			{"version of tomorrow", "another version", 4, 14},
			{"of one thread less", "thread", at + 32, 1},
			{"of one thread more", "thread", at + 32, 3},
			{"of very many", "cut short", at + 32, 1 << 31},
		} {
			b := bytes.Clone(good)
			binary.NativeEndian.PutUint32(b[c.at:], c.v)
			if err := check(b); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%d timers, %s: %v", timers, c.name, err)
			}
		}
		for _, n := range []int{at, at + 8, at + 39, at + 40, at + 56} {
			if err := check(good[:n]); err == nil {
				t.Errorf("%d timers, cut after %d bytes: no error", timers, n)
			}
		}
	}
}

// FuzzCheck: no bytes make it read elsewhere (build with CGO_CFLAGS=-fsanitize=address to see that too), and
// what passes ends with its last thread.
func FuzzCheck(f *testing.F) {
	f.Add(sample(0))
	f.Add(sample(0)[:600])
	f.Add(sample(3))
	f.Add(spent(0))
	f.Add(spent(2))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if check(b) == nil && check(append(bytes.Clone(b), 0)) == nil {
			t.Errorf("a byte more makes no difference: %x", b)
		}
	})
}

// FuzzFields changes two words of a sound section and cuts it: Go cannot see which lines of C an input reaches,
// so this puts the changes where they matter. What passes is, by its own lengths, a row of whole threads.
func FuzzFields(f *testing.F) {
	f.Add(uint16(0), uint32(0), uint16(0), uint32(0), uint16(0))
	f.Add(uint16(1), uint32(0xffffffff), uint16(40), uint32(0x40000000), uint16(0))
	f.Fuzz(func(t *testing.T, at1 uint16, v1 uint32, at2 uint16, v2 uint32, cut uint16) {
		b := spent(0)
		process := int(binary.NativeEndian.Uint32(b))
		words := (len(b) - process) / 4
		binary.NativeEndian.PutUint32(b[process+int(at1)%words*4:], v1)
		binary.NativeEndian.PutUint32(b[process+int(at2)%words*4:], v2)
		b = b[:len(b)-int(cut)%8]
		if check(b) != nil {
			return
		}
		at := process + 40 + 16*int(binary.NativeEndian.Uint32(b[process+32:])) // behind the processor time
		for at < len(b) && int(binary.NativeEndian.Uint32(b[at:])) > 0 {
			at += int(binary.NativeEndian.Uint32(b[at:]))
		}
		if at != len(b) {
			t.Errorf("%d of %d bytes are threads", at, len(b))
		}
	})
}
