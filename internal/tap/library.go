// SPDX-License-Identifier: Apache-2.0

package tap

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf/link"

	"github.com/libckpt/libckpt/internal/regular"
)

// library is a file with functions that are counted.
type library struct {
	file    *link.Executable
	places  []uint64 // in the file
	cookies []uint64 // by place: the number of the function
}

func openLibrary(t Target, number map[string]int) (*library, error) {
	symbols, err := functionsOf(t.Library)
	if err != nil {
		return nil, err
	}
	file, err := link.OpenExecutable(t.Library)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Library, err)
	}
	lib := &library{file: file}
	seen := map[uint64]bool{} // a function may have several names
	for symbol, name := range t.Functions {
		at, ok := symbols[symbol]
		if !ok || seen[at] {
			continue
		}
		seen[at] = true
		lib.places, lib.cookies = append(lib.places, at), append(lib.cookies, uint64(number[name]))
	}
	if len(lib.places) == 0 {
		return nil, fmt.Errorf("%s has none of the functions that are to be counted", t.Library)
	}
	return lib, nil
}

// functionsOf lists where the functions of a file are in it: those that others can call, and if it says so all others.
func functionsOf(path string) (map[string]uint64, error) {
	r, err := regular.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	list, err := f.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if more, err := f.Symbols(); err == nil { // not stripped
		list = append(list, more...)
	}
	out := map[string]uint64{}
	for _, s := range list {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF {
			continue
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && s.Value >= p.Vaddr && s.Value < p.Vaddr+p.Memsz {
				out[s.Name] = s.Value - p.Vaddr + p.Off
			}
		}
	}
	return out, nil
}

// ErrNoLibrary says that a process has none of the functions mapped from a file.
var ErrNoLibrary = errors.New("no library with these functions is mapped from a file")

// FindLibrary looks for a library that a process has mapped at or above an address, whose file is called prefix and
// something. name says what a symbol of it is called for people; "": it is not counted.
func FindLibrary(pid int, above uint64, prefix string, name func(symbol string) string) (path string, functions map[string]string, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return "", nil, fmt.Errorf("process %d: %w", pid, err)
	}
	tried := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 6 || !strings.Contains(f[1], "x") || tried[f[5]] || !strings.HasPrefix(filepath.Base(f[5]), prefix) {
			continue
		}
		var at uint64
		if _, err := fmt.Sscanf(f[0], "%x-", &at); err != nil || at < above {
			continue
		}
		tried[f[5]] = true
		symbols, err := functionsOf(f[5])
		if err != nil {
			continue // it was replaced since, or is another's
		}
		functions = map[string]string{}
		for symbol := range symbols {
			if n := name(symbol); n != "" {
				functions[symbol] = n
			}
		}
		if len(functions) > 0 {
			return f[5], functions, nil
		}
	}
	return "", nil, fmt.Errorf("process %d: %w", pid, ErrNoLibrary)
}
