// SPDX-License-Identifier: Apache-2.0

package instructions

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// finder compiles the program that prints what ckptrun finds.
func finder(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "fs")
	cmd := exec.Command("gcc", "-std=gnu11", "-O2", "-I../../../../include", "-o", bin, "testdata/fs.c", "../../fs_code.c", "../../insn.c")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// ours is what ckptrun finds in each library, and which of them it does not understand.
func ours(t *testing.T, bin string, libraries []string) (found map[string][]string, unknown []string) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(bin, libraries...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	found = map[string][]string{}
	now := ""
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if name, is := strings.CutPrefix(line, "object "); is {
			now = name
			found[now] = nil
		} else if name, is := strings.CutPrefix(line, "unknown "); is {
			unknown = append(unknown, name)
		} else {
			found[now] = append(found[now], line)
		}
	}
	return found, unknown
}

var (
	insnLine = regexp.MustCompile(`^ *([0-9a-f]+):\t((?:[0-9a-f]{2} )+) *\t?(.*)`)
	canary   = regexp.MustCompile(`^(?:mov|sub|xor|cmp) +%fs:0x28,`)
)

// binutils is what objdump finds in a library: addresses of prefixes.
func binutils(t *testing.T, library string) []string {
	t.Helper()
	out, err := exec.Command("objdump", "-d", "--insn-width=16", library).Output()
	if err != nil {
		t.Fatalf("objdump %s: %v", library, err)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		m := insnLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil || !strings.Contains(m[3], "%fs:") || canary.MatchString(m[3]) {
			continue
		}
		found = append(found, prefixAddress(t, m[1], m[2]))
	}
	return found
}

// prefixAddress is where the FS prefix of an instruction stands.
func prefixAddress(t *testing.T, at, code string) string {
	t.Helper()
	n := slices.Index(strings.Fields(code), "64")
	if n < 0 {
		t.Fatalf("no prefix in %s at %s", code, at)
	}
	return hexAdd(at, n)
}

// TestAsBinutils: in the libraries of a rank, and in the code of Go that comes without unwind tables, exactly
// the instructions are found that binutils finds.
func TestAsBinutils(t *testing.T) {
	libraries := []string{
		"/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libm.so.6",
		"/usr/lib/x86_64-linux-gnu/libmpi.so.40",
		"/usr/lib/x86_64-linux-gnu/libucs.so.0", "/usr/lib/x86_64-linux-gnu/libgfortran.so.5", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
	}
	if build := os.Getenv("LIBCKPT_BUILD"); build != "" {
		libraries = append(libraries, filepath.Join(build, "lib", "ckpt", "libckpt-core.so"))
	}
	found, unknown := ours(t, finder(t), libraries)
	if len(unknown) > 0 {
		t.Errorf("not understood: %s", unknown)
	}
	some := 0
	for _, l := range libraries {
		want := binutils(t, l)
		some += len(want)
		if diff := cmp.Diff(want, found[l]); diff != "" {
			t.Errorf("%s (binutils -, ckptrun +):\n%.2000s", l, diff)
		}
	}
	if some < 1000 {
		t.Errorf("binutils found %d instructions in all: the comparison says nothing", some)
	}
}

// TestLookalikes: of bytes that are no prefix none is taken for one, whatever stands behind them.
func TestLookalikes(t *testing.T) {
	lib := filepath.Join(t.TempDir(), "lookalikes.so")
	if out, err := exec.Command("gcc", "-shared", "-nostdlib", "-o", lib, "testdata/lookalikes.S").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	found, unknown := ours(t, finder(t), []string{lib})
	want := binutils(t, lib)
	if len(unknown) > 0 || len(want) < 2*20*11 {
		t.Fatalf("not understood: %s; binutils finds %d", unknown, len(want))
	}
	if diff := cmp.Diff(want, found[lib]); diff != "" {
		t.Errorf("binutils -, ckptrun +:\n%.2000s", diff)
	}
}

// TestDebiansLibraries: of all that is installed nothing is refused.
func TestDebiansLibraries(t *testing.T) {
	var libraries []string
	for _, pattern := range []string{"/usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3/*.so", "/usr/lib/x86_64-linux-gnu/ucx/*.so",
		"/usr/lib/x86_64-linux-gnu/lib[a-m]*.so.?"} {
		list, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		libraries = append(libraries, list...)
	}
	bin, loaded := finder(t), 0
	for _, l := range libraries {
		out, err := exec.Command(bin, l).CombinedOutput()
		if err != nil {
			continue // it needs others that are not here, or loads into its own programs only
		}
		loaded++
		if bytes.Contains(out, []byte("unknown ")) {
			t.Errorf("%s is not understood", l)
		}
	}
	if loaded < 20 {
		t.Errorf("only %d of %d libraries could be looked at", loaded, len(libraries))
	}
	t.Logf("%d libraries", loaded)
}

// hexAdd is the hexadecimal number at and n.
func hexAdd(at string, n int) string {
	v, err := strconv.ParseUint(at, 16, 64)
	if err != nil {
		return at
	}
	return strconv.FormatUint(v+uint64(n), 16)
}

// TestRecordIsUsedAtOnce: code that lies in the arena may be stopped between any two instructions, and goes on in
// another process. So the address of the thread record is in a register for one instruction only, behind which
// ckptrun has it loaded again.
func TestRecordIsUsedAtOnce(t *testing.T) {
	build := os.Getenv("LIBCKPT_BUILD")
	if build == "" {
		t.Skip("LIBCKPT_BUILD is not set: run make test")
	}
	for file, symbols := range map[string][2]string{
		"bin/ckptrun":         {"gate_tail", "gate_code_end"},
		"lib/ckpt/vdso.so":    {},
		"bin/ckptrun of gate": {"gate_code", "gate_commit"},
	} {
		path := filepath.Join(build, strings.TrimSuffix(file, " of gate"))
		args := []string{"-d", "-M", "intel", "--no-show-raw-insn", path}
		if symbols[0] != "" {
			args = append(args, "--start-address="+symbol(t, path, symbols[0]), "--stop-address="+symbol(t, path, symbols[1]))
		}
		out, err := exec.Command("objdump", args...).Output()
		if err != nil {
			t.Fatalf("objdump %s: %v", path, err)
		}
		loads, fresh, known := 0, "", map[string]bool{}
		for line := range strings.Lines(string(out)) {
			_, text, is := strings.Cut(strings.TrimSpace(line), ":\t")
			if !is {
				continue
			}
			if m := recordLoad.FindStringSubmatch(text); m != nil {
				loads++
				fresh = m[1]
				known[fresh] = true
				continue
			}
			for reg := range known {
				if strings.Contains(text, "["+reg) && reg != fresh {
					t.Errorf("%s: %q uses the record's address that was loaded before another instruction", file, text)
				}
			}
			fresh = ""
		}
		if want := symbols[0] != "gate_code"; (loads > 0) != want {
			t.Errorf("%s: the record's address is loaded %d times", file, loads)
		}
	}
}

var recordLoad = regexp.MustCompile(`^mov +(r[a-z0-9]+),QWORD PTR gs:0xfffffffffffffff8`)

// symbol is the address of a symbol.
func symbol(t *testing.T, path, name string) string {
	t.Helper()
	out, err := exec.Command("nm", path).Output()
	if err != nil {
		t.Fatalf("nm %s: %v", path, err)
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == name {
			return "0x" + f[0]
		}
	}
	t.Fatalf("%s has no symbol %s", path, name)
	return ""
}
