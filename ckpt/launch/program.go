// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/regular"
)

// Program is what is loaded: an ELF program with its dynamic linker. For a script it is the script's
// interpreter.
type Program struct {
	Exe    string   // absolute path
	Interp string   // its PT_INTERP
	Argv   []string // argv[0] first
	Comm   string   // what the kernel would name the process
}

// maxScripts is how many interpreters may be scripts themselves, as in Linux.
const maxScripts = 5

// Find searches the program as execvp does and checks that it can be loaded.
func (o *Options) Find(argv []string, path string) (Program, error) {
	exe, err := search(argv[0], path)
	if err != nil {
		return Program{}, &Error{ExitFailed, err}
	}
	argv = append([]string(nil), argv...)
	comm := filepath.Base(exe)
	if o.hasArg0 {
		argv[0] = o.Argv0
	}
	for depth := 0; ; depth++ {
		head, err := readHead(exe)
		if err != nil {
			return Program{}, &Error{ExitFailed, fmt.Errorf("%s: %w", exe, cause(err))}
		}
		if !bytes.HasPrefix(head, []byte("#!")) {
			break
		}
		if depth == maxScripts {
			return Program{}, &Error{ExitFailed, fmt.Errorf("%s: too many levels of scripts", exe)}
		}
		interp, args := shebang(head)
		script := exe
		if depth == 0 && strings.Contains(argv[0], "/") && !o.hasArg0 {
			script = argv[0] // the kernel passes the name as it was given
		}
		if interp == "" {
			return Program{}, &Error{ExitFailed, fmt.Errorf("%s: its first line names no interpreter", exe)}
		}
		if err := unix.Access(interp, unix.X_OK); err != nil {
			return Program{}, &Error{ExitFailed, fmt.Errorf("%s: its interpreter %q: %w; install it, or mend the script's first line", exe, interp, err)}
		}
		next := append([]string{interp}, args...)
		next = append(next, script)
		argv = append(next, argv[1:]...)
		exe = interp
	}
	interp, err := checkELF(exe)
	if err != nil {
		return Program{}, &Error{ExitFailed, err}
	}
	abs, err := filepath.Abs(exe)
	if err != nil {
		return Program{}, &Error{ExitFailed, err}
	}
	// What the kernel would show as /proc/self/exe.
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	}
	return Program{Exe: abs, Interp: interp, Argv: argv, Comm: comm[:min(len(comm), 15)]}, nil
}

// cause drops the operation and path that os errors repeat.
func cause(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func search(name, path string) (string, error) {
	if name == "" {
		return "", errors.New("the program's name is empty")
	}
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	var denied error
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = "."
		}
		p := filepath.Join(dir, name)
		err := executable(p)
		if err == nil {
			return p, nil
		}
		if errors.Is(err, unix.EACCES) && denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", fmt.Errorf("%s: there is no such program in PATH", name)
}

func executable(p string) error {
	st, err := os.Stat(p)
	if err != nil {
		return fmt.Errorf("%s: %w", p, cause(err))
	}
	if st.IsDir() {
		return fmt.Errorf("%s: is a directory", p)
	}
	if err := unix.Access(p, unix.X_OK); err != nil {
		return fmt.Errorf("%s: %w; is it executable (chmod +x)?", p, err)
	}
	return nil
}

// headBytes is how much of a file the kernel looks at to find out what it is (BINPRM_BUF_SIZE).
const headBytes = 256

func readHead(p string) ([]byte, error) {
	f, err := regular.Open(p, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, headBytes)
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil
}

// shebang splits a script's first line as the kernel does (fs/binfmt_script.c): interpreter, "" when the
// line names none, and the rest of the line as at most one argument. A carriage return is a letter like
// any other; a line that is longer than headBytes is cut.
func shebang(head []byte) (interp string, args []string) {
	const blank = " \t"
	line, _, whole := bytes.Cut(head[2:], []byte("\n"))
	cut := !whole && len(head) == headBytes
	if cut {
		line = head[2 : headBytes-1]
		if !bytes.ContainsAny(bytes.TrimLeft(line, blank), blank+"\x00") {
			return "", nil // not even the interpreter's name is whole
		}
	}
	if whole || cut {
		line = bytes.TrimRight(line, blank)
	}
	line = bytes.TrimLeft(line, blank)
	end := bytes.IndexAny(line, blank+"\x00")
	if end < 0 {
		return string(line), nil
	}
	if line[end] != 0 {
		arg, _, _ := bytes.Cut(bytes.TrimLeft(line[end:], blank), []byte{0})
		args = []string{string(arg)}
	}
	return string(line[:end]), args
}

// checkELF refuses what the loader cannot run, and returns the dynamic linker.
func checkELF(p string) (string, error) {
	f, err := elf.Open(p)
	if err != nil {
		return "", fmt.Errorf("%s: Linux cannot run it (%w); a script needs a first line such as #!/bin/sh", p, err)
	}
	defer f.Close()
	if f.Machine != elf.EM_X86_64 || f.Class != elf.ELFCLASS64 {
		return "", fmt.Errorf("%s: is for another architecture (%s, %s); ckptrun runs 64-bit x86 programs", p, f.Machine, f.Class)
	}
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return "", fmt.Errorf("%s: is an ELF file of type %s, not a program", p, f.Type)
	}
	for _, prog := range f.Progs {
		if prog.Type != elf.PT_INTERP {
			continue
		}
		if prog.Filesz > 4096 {
			return "", fmt.Errorf("%s: damaged program header", p)
		}
		b := make([]byte, prog.Filesz)
		if _, err := prog.ReadAt(b, 0); err != nil {
			return "", fmt.Errorf("%s: %w", p, err)
		}
		interp := strings.TrimRight(string(b), "\x00")
		if err := unix.Access(interp, unix.R_OK); err != nil {
			return "", fmt.Errorf("%s: its dynamic linker %s: %w", p, interp, err)
		}
		return interp, nil
	}
	return "", fmt.Errorf("%s: is statically linked; ckptrun needs a dynamically linked program (link it without -static)", p)
}
