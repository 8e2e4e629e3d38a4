// SPDX-License-Identifier: Apache-2.0

package instructions

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// keeper is the program that prints what is found and whether it was kept from an earlier time, and its folder.
type keeper struct {
	bin, folder string
}

func newKeeper(t *testing.T) keeper {
	t.Helper()
	k := keeper{bin: filepath.Join(t.TempDir(), "cache"), folder: filepath.Join(t.TempDir(), "kept")}
	cmd := exec.Command("gcc", "-std=gnu11", "-O2", "-I../../../../include", "-Wl,--build-id=sha1", "-o", k.bin, "testdata/cache.c",
		"../../fs_code.c", "../../insn.c")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return k
}

func (k keeper) run(args ...string) (string, error) {
	cmd := exec.Command(k.bin, args...)
	cmd.Env = append(os.Environ(), "CKPT_CODE_CACHE="+k.folder)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", args, err, &stderr)
	}
	return string(out), nil
}

// look is what is found in a library, and whether that was kept.
func (k keeper) look(t *testing.T, library string) (kept bool, found []string) {
	t.Helper()
	out, err := k.run(library)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(strings.ReplaceAll(out, "looked through", "looked-through"))
	if len(lines) < 3 || lines[0] != "object" || (lines[2] != "kept") == (lines[2] != "looked-through") {
		t.Fatalf("%s", out)
	}
	return lines[2] == "kept", lines[3:]
}

// settle looks until what is found is kept: a file that was changed just now is not relied on.
func (k keeper) settle(t *testing.T, library string) []string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if kept, found := k.look(t, library); kept {
			return found
		}
		if time.Now().After(end) {
			t.Fatalf("%s: never kept", library)
		}
	}
}

func (k keeper) entries(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(k.folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// library makes a library whose code addresses memory through FS behind n instructions, of the same size, build and
// time as all that are made here.
func library(t *testing.T, path string, n int, args ...string) {
	t.Helper()
	text := fmt.Sprintf(".globl f\n.type f, @function\nf: .cfi_startproc\n.rept %d\nnop\n.endr\nmov %%fs:0, %%rax\nmov %%fs:8, %%rcx\n"+
		".rept %d\nnop\n.endr\nret\n.cfi_endproc\n.section .note.GNU-stack, \"\", @progbits\n", n, 40_000-n)
	source := filepath.Join(t.TempDir(), "f.S")
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	argv := slices.Concat([]string{"-shared", "-nostdlib", "-Wl,--build-id=0x0123456789abcdef0123456789abcdef"}, args, []string{"-o", path, source})
	if out, err := exec.Command("gcc", argv...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	past := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(path, past, past); err != nil {
		t.Fatal(err)
	}
}

// TestKept: what was found once is found again without looking, and is the same.
func TestKept(t *testing.T) {
	k := newKeeper(t)
	libraries := []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libm.so.6", "/usr/lib/x86_64-linux-gnu/libmpi.so.40"}
	for _, l := range libraries {
		kept, found := k.look(t, l)
		if kept {
			t.Errorf("%s: kept before it was looked at", l)
		}
		kept, again := k.look(t, l)
		if !kept {
			t.Errorf("%s: not kept", l)
		}
		if diff := cmp.Diff(found, again); diff != "" {
			t.Errorf("%s: %.1000s", l, diff)
		}
		if want := binutils(t, l); !slices.Equal(want, again) {
			t.Errorf("%s (binutils -, kept +): %.1000s", l, cmp.Diff(want, again))
		}
	}
	// Another build of the program that looks does not use it.
	other := k
	other.bin = newKeeper(t).bin
	note := filepath.Join(t.TempDir(), "note")
	if out, err := exec.Command("objcopy", "-O", "binary", "--only-section=.note.gnu.build-id", other.bin, note).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	id, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	id[len(id)-1] ^= 1
	if err := os.WriteFile(note, id, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("objcopy", "--update-section", ".note.gnu.build-id="+note, other.bin).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if kept, _ := other.look(t, libraries[0]); kept {
		t.Error("what another build of the program has found was used")
	}
}

// TestKeptOfAnotherFile: a library that is replaced at its path, or overwritten in its place, is looked through
// again, also where its build, its size and its time of change say that it is the same.
func TestKeptOfAnotherFile(t *testing.T) {
	k := newKeeper(t)
	dir := t.TempDir()
	lib := filepath.Join(dir, "lib.so")
	library(t, lib, 1000)
	first := k.settle(t, lib)
	library(t, filepath.Join(dir, "other.so"), 2000)
	info, err := os.Stat(lib)
	if err != nil {
		t.Fatal(err)
	}
	same := func() {
		t.Helper()
		now, err := os.Stat(lib)
		if err != nil || now.Size() != info.Size() {
			t.Fatalf("%v, %d bytes, was %d", err, now.Size(), info.Size())
		}
		if err := os.Chtimes(lib, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "other.so"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lib, text, 0o755); err != nil { // in its place
		t.Fatal(err)
	}
	same()
	kept, second := k.look(t, lib)
	if kept || slices.Equal(first, second) {
		t.Errorf("overwritten: kept %t, found %s, before %s", kept, second, first)
	}
	if diff := cmp.Diff(second, k.settle(t, lib)); diff != "" {
		t.Error(diff)
	}
	library(t, filepath.Join(dir, "third.so"), 3000)
	if err := os.Rename(filepath.Join(dir, "third.so"), lib); err != nil {
		t.Fatal(err)
	}
	same()
	kept, third := k.look(t, lib)
	if kept || slices.Equal(second, third) || slices.Equal(first, third) {
		t.Errorf("replaced: kept %t, found %s, before %s", kept, third, second)
	}
	// A library without a build is never kept.
	bare := filepath.Join(dir, "bare.so")
	library(t, bare, 1000, "-Wl,--build-id=none")
	if out, err := exec.Command("readelf", "-n", bare).Output(); err != nil || bytes.Contains(out, []byte("Build ID")) {
		t.Fatalf("%v\n%s", err, out)
	}
	before := len(k.entries(t))
	deadline := time.Now().Add(4 * time.Second) // as long as settle needs
	for time.Now().Before(deadline) {
		if kept, _ := k.look(t, bare); kept {
			t.Fatal("kept without a build")
		}
		time.Sleep(500 * time.Millisecond)
	}
	if after := len(k.entries(t)); after != before {
		t.Errorf("%d entries, then %d", before, after)
	}
}

// TestKeptDamaged: an entry that is cut, or has another bit anywhere, is not used, and made anew.
func TestKeptDamaged(t *testing.T) {
	k := newKeeper(t)
	lib := filepath.Join(t.TempDir(), "lib.so")
	library(t, lib, 1000)
	want := k.settle(t, lib)
	entry := k.entries(t)
	if len(entry) != 1 {
		t.Fatalf("entries: %s", entry)
	}
	right, err := os.ReadFile(entry[0])
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, text []byte) {
		t.Helper()
		if err := os.WriteFile(entry[0], text, 0o600); err != nil {
			t.Fatal(err)
		}
		if kept, found := k.look(t, lib); kept || !slices.Equal(found, want) {
			t.Errorf("%s: kept %t, found %s", what, kept, found)
		}
		if now, err := os.ReadFile(entry[0]); err != nil || !bytes.Equal(now, right) {
			t.Errorf("%s: not made anew: %v", what, err)
		}
	}
	for n := range right {
		flipped := bytes.Clone(right)
		flipped[n] ^= 1 << (n % 8)
		check(fmt.Sprintf("byte %d", n), flipped)
		if n%8 == 0 {
			check(fmt.Sprintf("%d bytes", n), right[:n])
		}
	}
	check("longer", append(bytes.Clone(right), 0, 0, 0, 0))
	out, err := k.run("forge", lib)
	if want := "right: 1, own all\nno prefix: 0, own all\nno code: 0, own none\ntwice: 0, own none\n"; err != nil || out != want {
		t.Errorf("%v\n%s", err, out)
	}
	for what, change := range map[string]func() error{
		"FIFO":             func() error { return syscall.Mkfifo(entry[0], 0o600) },
		"folder":           func() error { return os.Mkdir(entry[0], 0o700) },
		"written by group": func() error { return writeAs(entry[0], right, 0o620, os.Getuid()) },
		"link":             func() error { return linkTo(entry[0], right) },
		"another user's":   func() error { return writeAs(entry[0], right, 0o644, 65534) },
	} {
		if os.Getuid() != 0 && what == "another user's" {
			continue
		}
		if err := os.RemoveAll(entry[0]); err != nil {
			t.Fatal(err)
		}
		if err := change(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if kept, found := k.look(t, lib); kept || !slices.Equal(found, want) {
			t.Errorf("%s: kept %t, found %s", what, kept, found)
		}
	}
}

func writeAs(path string, text []byte, mode os.FileMode, user int) error {
	if err := os.WriteFile(path, text, mode); err != nil {
		return err
	}
	if err := os.Chmod(path, mode); err != nil {
		return err
	}
	return os.Chown(path, user, -1)
}

func linkTo(path string, text []byte) error {
	if err := os.WriteFile(path+".there", text, 0o600); err != nil {
		return err
	}
	return os.Symlink(path+".there", path)
}

// TestKeptWhere: a folder in which others may write, or that is another's, is not used; one that cannot be had or
// written stops nobody.
func TestKeptWhere(t *testing.T) {
	const lib = "/lib/x86_64-linux-gnu/libm.so.6"
	k := newKeeper(t)
	k.look(t, lib)
	if kept, _ := k.look(t, lib); !kept {
		t.Fatal("not kept")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(k.folder, link); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{link, file, filepath.Join(t.TempDir(), "a", "b"), "/proc/kept", "none", "/sys"} {
		other := k
		other.folder = folder
		for range 2 {
			if kept, found := other.look(t, lib); kept || len(found) < 100 {
				t.Errorf("%s: kept %t, %d found", folder, kept, len(found))
			}
		}
	}
	for _, mode := range []os.FileMode{0o777, 0o770, 0o720, 0o701} {
		if err := os.Chmod(k.folder, mode); err != nil {
			t.Fatal(err)
		}
		if kept, _ := k.look(t, lib); kept {
			t.Errorf("used with mode %o", mode)
		}
	}
	if err := os.Chmod(k.folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(k.folder, 65534, -1); err != nil {
			t.Fatal(err)
		}
		if kept, _ := k.look(t, lib); kept {
			t.Error("another user's folder was used")
		}
		if err := os.Chown(k.folder, 0, -1); err != nil {
			t.Fatal(err)
		}
	}
	if kept, _ := k.look(t, lib); !kept {
		t.Error("not kept in the user's own folder")
	}
}

// TestKeptByMany: twelve processes that find nothing all find the same, and leave one entry.
func TestKeptByMany(t *testing.T) {
	const lib = "/lib/x86_64-linux-gnu/libc.so.6"
	k := newKeeper(t)
	want := binutils(t, lib)
	for range 3 {
		if err := os.RemoveAll(k.folder); err != nil {
			t.Fatal(err)
		}
		var wait sync.WaitGroup
		for range 12 {
			wait.Go(func() {
				if out, err := k.run(lib); err != nil || !strings.HasSuffix(out, strings.Join(want, "\n")+"\n") {
					t.Errorf("%v: %d bytes", err, len(out))
				}
			})
		}
		wait.Wait()
		if e := k.entries(t); len(e) != 1 {
			t.Errorf("entries: %s", e)
		}
		if kept, found := k.look(t, lib); !kept || !slices.Equal(found, want) {
			t.Errorf("kept %t", kept)
		}
	}
}

// TestKeptBounded: a folder of many entries is emptied before it grows on.
func TestKeptBounded(t *testing.T) {
	const lib = "/lib/x86_64-linux-gnu/libm.so.6"
	k := newKeeper(t)
	if err := os.Mkdir(k.folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 1100 {
		if err := os.WriteFile(filepath.Join(k.folder, fmt.Sprintf("%016x", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k.look(t, lib)
	if n := len(k.entries(t)); n > 1024 {
		t.Errorf("%d entries", n)
	}
	if kept, _ := k.look(t, lib); !kept {
		t.Error("not kept")
	}
}
