// SPDX-License-Identifier: Apache-2.0

package regions

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"unsafe"

	"github.com/zeebo/blake3"
)

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Program is the program of a process, as far as stacks depend on it.
type Program struct {
	Path  string `json:"path"`
	Build string `json:"build"` // its build id, or a digest of the file when it has none

	movable   bool // its code is at another address in each process
	protected bool // its functions leave canaries on stacks, which differ in each process
}

// Self describes the program of this process.
func Self() (Program, error) {
	const exe = "/proc/self/exe"
	path, err := os.Readlink(exe)
	if err != nil {
		return Program{}, err
	}
	f, err := os.Open(exe)
	if err != nil {
		return Program{}, err
	}
	defer f.Close()
	p, err := describe(f)
	p.Path = path
	if err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

func describe(r interface {
	io.Reader
	io.ReaderAt
}) (Program, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return Program{}, err
	}
	p := Program{movable: f.Type != elf.ET_EXEC}
	// What a static program imports cannot be seen.
	if names, err := f.ImportedSymbols(); err == nil {
		p.protected = slices.ContainsFunc(names, func(s elf.ImportedSymbol) bool { return s.Name == "__stack_chk_fail" })
	}
	if s := f.Section(".note.gnu.build-id"); s != nil {
		if note, err := s.Data(); err == nil {
			p.Build = buildID(note, f)
		}
	}
	if p.Build == "" {
		h := blake3.New()
		if _, err := io.Copy(h, r); err != nil {
			return p, err
		}
		p.Build = "blake3:" + hex.EncodeToString(h.Sum(nil))
	}
	return p, nil
}

// buildID reads a note: lengths of name and content, type, name, content; "" when it is another one.
func buildID(note []byte, f *elf.File) string {
	const head, gnuBuildID = 12, 3
	if len(note) < head+4 || f.ByteOrder.Uint32(note) != 4 || f.ByteOrder.Uint32(note[8:]) != gnuBuildID ||
		!bytes.Equal(note[head:head+4], []byte("GNU\x00")) {
		return ""
	}
	id := note[head+4:]
	if n := f.ByteOrder.Uint32(note[4:]); n > 0 && uint64(n) <= uint64(len(id)) {
		return hex.EncodeToString(id[:n])
	}
	return ""
}

// CheckCode says why stacks of this program cannot go on in another process.
func (p Program) CheckCode() error {
	switch {
	case p.movable:
		return fmt.Errorf("the code of %s is at another address in each process, and stacks have such addresses: link it with -no-pie", p.Path)
	case p.protected:
		return fmt.Errorf("the code of %s has canaries on its stacks, which differ in each process: compile it with -fno-stack-protector", p.Path)
	}
	return nil
}

// ErrBuild says that an image is of another program.
var ErrBuild = errors.New("its stacks can go on in the very program that was saved only")

// SameBuild says why memory of t that holds addresses of code cannot be used in this program.
func (p Program) SameBuild(t *Table) error {
	if p.Build == t.Program.Build {
		return nil
	}
	return fmt.Errorf("it was saved by %s (build %s), and this is %s (build %s): %w",
		t.Program.Path, short(t.Program.Build), p.Path, short(p.Build), ErrBuild)
}

func short(build string) string {
	const shown = 19 // "blake3:" and 12 digits, or 19 digits
	return build[:min(len(build), shown)]
}
