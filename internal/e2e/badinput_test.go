// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// listing is every path below dir.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var paths []string
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			paths = append(paths, info.Mode().String()+" "+path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(paths, "\n")
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
}

// Every input that cannot work is refused with a message that names it, the exit status of the
// contract (1 failed, 2 usage, 3 no committed checkpoint), and nothing is left behind.
func TestBadInput(t *testing.T) {
	needCommands(t)
	run, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(run.Work(), name) }
	writeFile(t, at("no-interpreter"), []byte("#!/no/such/interpreter\necho x\n"))
	writeFile(t, at("no-first-line"), []byte("echo x\n"))
	writeFile(t, at("empty-file"), nil)
	writeFile(t, at("not-executable"), []byte("#!/bin/sh\necho x\n"))
	if err := os.Chmod(at("not-executable"), 0o644); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join(built.Bin, "ending"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, at("cut"), program[:100])
	foreign := append([]byte(nil), program...)
	binary.LittleEndian.PutUint16(foreign[18:], uint16(elf.EM_AARCH64))
	writeFile(t, at("foreign"), foreign)
	// Its program headers at the end of the file, where no segment is, and none that says where they are.
	lost := append([]byte(nil), program...)
	const size, headersAt, headersNumber, unused = 56, 32, 56, 0
	from := binary.LittleEndian.Uint64(program[headersAt:])
	headers := program[from : from+size*uint64(binary.LittleEndian.Uint16(program[headersNumber:]))]
	binary.LittleEndian.PutUint64(lost[headersAt:], uint64(len(lost)))
	lost = append(lost, headers...)
	for at := len(program); at < len(lost); at += size {
		if binary.LittleEndian.Uint32(lost[at:]) == uint32(elf.PT_PHDR) {
			binary.LittleEndian.PutUint32(lost[at:], unused)
		}
	}
	writeFile(t, at("lost"), lost)
	var narrow bytes.Buffer
	header := elf.Header32{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_386), Version: uint32(elf.EV_CURRENT), Ehsize: 52, Phentsize: 32, Shentsize: 40}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA], header.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS32), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	if err := binary.Write(&narrow, binary.LittleEndian, header); err != nil {
		t.Fatal(err)
	}
	writeFile(t, at("narrow"), narrow.Bytes())
	for _, dir := range []string{"empty", "uncommitted/epoch-000001"} {
		if err := os.MkdirAll(at(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, at("uncommitted/epoch-000001/rank-00000.ckpt"), []byte("not finished"))

	if err := os.Mkdir(at("sources"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, at("sources/main.c"), nil)

	ckptrun, ckptctl := built.CkptRun(), built.CkptCtl()
	static := filepath.Join(built.Bin, "static")
	for _, c := range []struct {
		name string
		argv []string
		env  []string
		exit int
		says []string // all of them, in what it writes to stderr
	}{
		{"missing program", []string{ckptrun, "--", "/no/such/program"}, nil, 1, []string{"/no/such/program", "no such file"}},
		{"somebody else's folder", []string{ckptrun, "--dir", at("sources"), "/bin/true"}, nil, 1, []string{at("sources"), "is not empty", `"main.c"`, "--dir"}},
		{"missing program in PATH", []string{ckptrun, "no-such-program"}, nil, 1, []string{"no-such-program", "PATH"}},
		{"script without its interpreter", []string{ckptrun, "./no-interpreter"}, nil, 1, []string{"no-interpreter", "/no/such/interpreter"}},
		{"script without a first line", []string{ckptrun, "./no-first-line"}, nil, 1, []string{"no-first-line", "#!"}},
		{"empty file", []string{ckptrun, "./empty-file"}, nil, 1, []string{"empty-file"}},
		{"not executable", []string{ckptrun, "./not-executable"}, nil, 1, []string{"not-executable", "permission denied"}},
		{"directory", []string{ckptrun, "./empty"}, nil, 1, []string{"empty", "directory"}},
		{"static", []string{ckptrun, static}, nil, 1, []string{static, "static"}},
		{"cut", []string{ckptrun, "./cut"}, nil, 1, []string{"cut"}},
		{"program headers in no segment", []string{ckptrun, "./lost"}, nil, 1, []string{"lost", "segment"}},
		{"foreign architecture", []string{ckptrun, "./foreign"}, nil, 1, []string{"foreign", "AARCH64"}},
		{"32 bits", []string{ckptrun, "./narrow"}, nil, 1, []string{"narrow", "CLASS32"}},
		{"restart of an empty folder", []string{ckptrun, "--restart", "empty"}, nil, 3, []string{"empty", "no committed checkpoint"}},
		{"restart of an uncommitted epoch", []string{ckptrun, "--restart", "uncommitted"}, nil, 3, []string{"uncommitted", "no committed checkpoint"}},
		{"restart of an epoch that is not there", []string{ckptrun, "--restart", "empty@7"}, nil, 3, []string{"epoch 7"}},
		{"restart of a missing folder", []string{ckptrun, "--restart", "missing"}, nil, 1, []string{"missing", "no such file"}},
		{"no program", []string{ckptrun}, nil, 2, []string{"PROGRAM"}},
		{"unknown option", []string{ckptrun, "--no-such-option", "--", "/bin/true"}, nil, 2, []string{"--no-such-option"}},
		{"option without its value", []string{ckptrun, "--dir"}, nil, 2, []string{"--dir"}},
		{"bad number", []string{ckptrun, "--keep", "x", "--", "/bin/true"}, nil, 2, []string{"--keep", `"x"`}},
		{"bad word", []string{ckptrun, "--trap", "magic", "--", "/bin/true"}, nil, 2, []string{"--trap", "seccomp", "sud"}},
		{"bad time", []string{ckptrun, "--interval", "-5", "--", "/bin/true"}, nil, 2, []string{"--interval"}},
		{"bad signal", []string{ckptrun, "--signal", "NOSIG=continue", "--", "/bin/true"}, nil, 2, []string{"--signal", "NOSIG"}},
		{"bad environment", []string{ckptrun, "/bin/true"}, []string{"CKPT_KEEP=many"}, 2, []string{"CKPT_KEEP", "many"}},
		{"restart with a program", []string{ckptrun, "--restart", "empty", "--", "/bin/true"}, nil, 2, []string{"--restart", "/bin/true"}},
		{"folder that cannot be made", []string{ckptrun, "--dir", "/proc/no/such", "--", "/bin/true"}, nil, 1, []string{"/proc/no"}},
		{"ckptctl: unknown command", []string{ckptctl, "no-such-command"}, nil, 2, []string{"no-such-command"}},
		{"ckptctl: nothing runs", []string{ckptctl, "checkpoint", "empty"}, nil, 1, []string{"empty", "no job"}},
		{"ckptctl: bad action", []string{ckptctl, "checkpoint", "empty", "--then", "dance"}, nil, 2, []string{"--then", "dance"}},
		{"ckptctl: nothing to verify", []string{ckptctl, "verify", "empty"}, nil, 3, []string{"no committed checkpoint"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := t.TempDir()
			mark := NewMark()
			defer mark.KillAll()
			before := listing(t, run.Work())
			p, err := Start(Command{Argv: c.argv, Dir: run.Work(), Env: c.env, Mark: mark,
				Stdout: filepath.Join(out, "stdout"), Stderr: filepath.Join(out, "stderr")})
			if err != nil {
				t.Fatal(err)
			}
			exit, err := p.Wait(patience)
			if err != nil {
				t.Fatal(err)
			}
			said, err := os.ReadFile(filepath.Join(out, "stderr"))
			if err != nil {
				t.Fatal(err)
			}
			if exit != (Exit{Code: c.exit}) {
				t.Errorf("%v, expected exit status %d; it said: %s", exit, c.exit, said)
			}
			for _, want := range c.says {
				if !strings.Contains(string(said), want) {
					t.Errorf("it said %q, which does not contain %q", said, want)
				}
			}
			if text, _ := os.ReadFile(filepath.Join(out, "stdout")); len(text) > 0 {
				t.Errorf("to stdout: %q", text)
			}
			if after := listing(t, run.Work()); after != before {
				t.Errorf("files left behind; before:\n%s\nafter:\n%s", before, after)
			}
			if err := noneLeft(mark); err != nil {
				t.Error(err)
			}
		})
	}
}
