// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func id(kind, index uint32) uint32 { return kind<<28 | index }

// full has one of everything.
func full() *Section {
	comm, world := id(kindComm, 300), id(kindComm, 1)
	return &Section{
		Drained: []Message{
			{Comm: comm, Source: 3, Tag: 7, Data: []byte("five!")},
			{Comm: world, Source: 0, Tag: 0, Data: []byte{}},
			{Comm: world, Source: 1, Tag: 1 << 20, Data: []byte("8 bytes.")},
		},
		Matched: []Matched{{id(kindMessage, 256), Message{Comm: world, Source: 2, Tag: 9, Data: []byte{1}}}},
		Requests: []Request{
			{Head: Head{ID: id(kindRequest, 256), Flags: 1, Peer: 2, Owner: world, State: Complete},
				ByState: ByState{Done: &Done{Source: -1, Tag: -1, Cancelled: true, Bytes: 5 << 30, Error: 15}}},
			{Head: Head{ID: id(kindRequest, 257), Flags: 2, Peer: -1, Owner: world, State: PostedReceive},
				ByState: ByState{Posted: &Posted{Order: 4, Buffer: 0x100000001000, Count: 10, Type: id(kindDatatype, 20), Source: -1, Tag: 3}}},
			{Head: Head{ID: id(kindRequest, 258), Owner: comm, State: DeferredStart},
				ByState: ByState{Deferred: &Deferred{Call: 5, Function: 17, Args: []int64{1, -1, 1 << 40}}}},
			{Head: Head{ID: id(kindRequest, 259), Flags: FlagPersistent | 2, Peer: 1, Owner: world, State: Inactive},
				Persistent: &Persistent{Args: [6]int64{1, 2, 3, 4, 5, 6}}},
			{Head: Head{ID: id(kindRequest, 260), Flags: FlagPersistent | 8 | 1, Peer: 1, Owner: world, State: Complete},
				ByState: ByState{Done: &Done{}}, Persistent: &Persistent{Mode: 4}},
			{Head: Head{ID: id(kindRequest, 261), Flags: 2048 | 4096, Owner: id(kindComm, 0), State: Generalized},
				ByState: ByState{Upper: &Upper{Object: 0x100000002000, Thunk: 0x100000003000}}},
			{Head: Head{ID: id(kindRequest, 262), Owner: id(kindFile, 256), State: Complete},
				ByState: ByState{Done: &Done{Source: -1, Tag: -1, Bytes: 12}}},
			{Head: Head{ID: id(kindRequest, 263), Flags: 16384, Owner: world, State: CollectiveOf},
				ByState: ByState{Collective: &Collective{Function: 64, Args: []int64{1, 2, 3}, Request: 2, Types: []uint32{id(kindDatatype, 300)}, Started: id(kindRequest, 256)}}},
			{Head: Head{ID: id(kindRequest, 265), Flags: 256 | 1, Peer: 1, Owner: world, State: AwaitedSend},
				ByState: ByState{Awaited: &Awaited{ID: 7, Receiver: 3}}},
			{Head: Head{ID: id(kindRequest, 264), Flags: 16384, Owner: world, State: CollectiveOf},
				ByState: ByState{Collective: &Collective{Function: 67, Args: []int64{1, 2}, Request: 1, Arrays: true, Started: id(kindRequest, 0)}}},
		},
		Held: []Held{{Message: 3, Sender: 2, ID: 9}},
	}
}

func TestSection(t *testing.T) {
	old := full()
	old.Held, old.Requests = nil, old.Requests[:3]
	if v := binary.LittleEndian.Uint64(old.Append(nil)); v != versionPlain {
		t.Errorf("a section without claims is of version %d", v)
	}
	for _, s := range []*Section{{}, old, full()} {
		got, err := Decode(s.Append(nil))
		if diff := cmp.Diff(s, got); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	}
	if s, err := Decode(nil); err != nil || cmp.Diff(&Section{}, s) != "" {
		t.Errorf("no bytes: %v, %v", s, err)
	}
}

// TestStored: images of earlier versions hold these bytes.
func TestStored(t *testing.T) {
	plain := full()
	plain.Held, plain.Requests = nil, plain.Requests[:3]
	for name, s := range map[string]*Section{"full": full(), "plain": plain} {
		stored, err := os.ReadFile(filepath.Join("testdata", name+".section"))
		if err != nil {
			t.Fatal(err)
		}
		if b := s.Append(nil); !bytes.Equal(b, stored) {
			t.Errorf("%s is written as\n%x, stored\n%x", name, b, stored)
		}
		got, err := Decode(stored)
		if diff := cmp.Diff(s, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

// TestBack: what the backs read and write a section with agrees with Decode and Append.
func TestBack(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "copy")
	gcc := exec.Command("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
		"-I../include", "-I../capi", "-o", bin, "testdata/copy.c")
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	through := func(b []byte) ([]byte, error) {
		cmd := exec.Command(bin)
		cmd.Stdin = bytes.NewReader(b)
		return cmd.Output()
	}
	whole := full().Append(nil)
	if got, err := through(whole); err != nil || !bytes.Equal(got, whole) {
		t.Fatalf("%v: read from\n%x\nand written as\n%x", err, whole, got)
	}
	refused := func(what string, b []byte) {
		var exit *exec.ExitError
		if _, err := through(b); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%s: %v, want status 1", what, err)
		}
	}
	for n := 8; n < len(whole); n += 56 {
		refused(fmt.Sprintf("%d of %d bytes", n, len(whole)), whole[:n])
	}
	// A word that is out of bounds where there are any: both refuse it, or both take it. Decode alone looks at
	// padding, and whether the message of a claim is there.
	const matched, padded = 128, 128 + 6*8
	for at := matched; at < len(whole); at += 8 {
		b := slices.Clone(whole)
		binary.LittleEndian.PutUint64(b[at:], 1<<60)
		_, err := Decode(b)
		switch _, cerr := through(b); {
		case at == padded, at == len(b)-wordsHeld*8:
		case (err == nil) != (cerr == nil):
			t.Errorf("byte %d: Go says %v, C %v", at, err, cerr)
		}
	}
}

// TestCorrupt: what is cut short, or has a wrong word, is refused with the place.
func TestCorrupt(t *testing.T) {
	whole := full().Append(nil)
	for n := 1; n < len(whole); n++ {
		if _, err := Decode(whole[:n]); err == nil {
			t.Fatalf("%d of %d bytes are accepted", n, len(whole))
		}
	}
	change := func(f func(*Section)) []byte {
		s := full()
		f(s)
		return s.Append(nil)
	}
	poke := func(at int, v uint64) []byte {
		b := full().Append(nil)
		binary.LittleEndian.PutUint64(b[at:], v)
		return b
	}
	for _, c := range []struct {
		what string
		b    []byte
	}{
		{"version 1", poke(0, 1)},
		{"number of items", poke(8, 1<<60)},
		{"number of items", poke(8, ^uint64(0))},
		{"kind 3, want 1", change(func(s *Section) { s.Drained[0].Comm = id(kindDatatype, 300) })},
		{"a message's length", poke(16+24, 1<<62)},
		{"padding", poke(16+32, ^uint64(0))},
		{"predefined", change(func(s *Section) { s.Matched[0].ID = id(kindMessage, 1) })},
		{"named twice", change(func(s *Section) { s.Requests[1].ID = s.Requests[0].ID })},
		{"not persistent", change(func(s *Section) { s.Requests[3].Flags, s.Requests[3].Persistent = 2, nil })},
		{"state", change(func(s *Section) { s.Requests[0].State = 9 })},
		{"without arguments", change(func(s *Section) { s.Requests[2].Deferred.Args = nil })},
		{"a message's number", change(func(s *Section) { s.Held[0].Message = 4 })},
		{"without an id", change(func(s *Section) { s.Held[0].ID = 0 })},
		{"waits for nothing", change(func(s *Section) { s.Requests[7].Awaited, s.Requests[7].State = &Awaited{}, AwaitedSend })},
		{"not what its claims need", poke(0, 2)},
		{"mode", change(func(s *Section) { s.Requests[4].Persistent.Mode = 5 })},
		{"8 bytes too many", append(full().Append(nil), make([]byte, 8)...)},
	} {
		_, err := Decode(c.b)
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), c.what) {
			t.Errorf("want %q: %v", c.what, err)
		}
	}
}

// FuzzSection: no bytes make Decode fail otherwise than with a CorruptError, and what it accepts is
// written again as it was.
func FuzzSection(f *testing.F) {
	f.Add([]byte{})
	f.Add((&Section{}).Append(nil))
	f.Add(full().Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(b)
		var corrupt *CorruptError
		switch {
		case err != nil && !errors.As(err, &corrupt):
			t.Errorf("%T: %v", err, err)
		case err == nil && len(b) > 0:
			if again := s.Append(nil); string(again) != string(b) {
				t.Errorf("%x is written again as %x", b, again)
			}
		}
	})
}
