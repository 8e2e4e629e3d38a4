// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func write(t testing.TB, path, content string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return path
}

// real is a dynamically linked program of this machine.
func real(t testing.TB) string {
	t.Helper()
	p, err := filepath.EvalSymlinks("/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFindELF(t *testing.T) {
	cat := real(t)
	p, err := (&Options{}).Find([]string{"cat", "-n"}, "/nonexistent:"+filepath.Dir(cat))
	if err != nil {
		t.Fatal(err)
	}
	want := Program{Exe: cat, Interp: p.Interp, Argv: []string{"cat", "-n"}, Comm: "cat"}
	if d := cmp.Diff(want, p); d != "" {
		t.Error(d)
	}
	if _, err := os.Stat(p.Interp); err != nil {
		t.Errorf("dynamic linker: %v", err)
	}
}

// TestComm: as the kernel has it, the last part of the name, at most 15 bytes; of a link the link's.
func TestComm(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "a-name-that-is-too-long")
	if err := os.Symlink(real(t), link); err != nil {
		t.Fatal(err)
	}
	p, err := (&Options{}).Find([]string{link}, "")
	if err != nil {
		t.Fatal(err)
	}
	b, err := exec.Command(link, "/proc/self/comm").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSpace(string(b)); p.Comm != want || p.Exe != real(t) {
		t.Errorf("name %q of %s, the kernel says %q", p.Comm, p.Exe, want)
	}
	script := write(t, filepath.Join(dir, "script"), "#!"+real(t)+"\n", 0o755)
	if p, err = (&Options{}).Find([]string{script}, ""); err != nil || p.Comm != "script" {
		t.Errorf("name of a script's process: %q, %v", p.Comm, err)
	}
}

func TestArgv0(t *testing.T) {
	o, rest, _, err := Parse([]string{"--dir", t.TempDir(), "--argv0", "-login", real(t), "x"}, environment(nil))
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.Find(rest, "")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"-login", "x"}, p.Argv); d != "" {
		t.Error(d)
	}
	if rest[0] != real(t) {
		t.Error("Find changed the caller's arguments")
	}
}

func TestSearch(t *testing.T) {
	root := t.TempDir()
	t.Chdir(root)
	for _, d := range []string{"empty", "plain", "dir/prog", "good", "later"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, "plain/prog", "#!/bin/sh\n", 0o644)
	write(t, "good/prog", "#!/bin/sh\n", 0o755)
	write(t, "later/prog", "#!/bin/sh\n", 0o755)
	write(t, "here", "#!/bin/sh\n", 0o755)
	for _, c := range []struct{ name, path, want string }{
		{"prog", "empty:good:later", "good/prog"},
		{"prog", "plain:dir:good", "good/prog"}, // what cannot be executed is passed over
		{"prog", "nosuch:later:good", "later/prog"},
		{"here", "empty::good", "here"}, // an empty element is the working directory
		{"./here", "good", "./here"},
		{"good/prog", "", "good/prog"},
	} {
		if got, err := search(c.name, c.path); err != nil || got != c.want {
			t.Errorf("%s in %q: %q, %v; expected %q", c.name, c.path, got, err, c.want)
		}
	}
	for _, c := range []struct {
		name, path string
		is         error
		words      string
	}{
		{"", "good", nil, "empty"},
		{"prog", "empty:nosuch", nil, "prog"},
		{"prog", "", nil, "prog"},
		{"prog", "plain:empty", unix.EACCES, "plain/prog"},
		{"./nosuch", "good", unix.ENOENT, "./nosuch"},
		{"./plain/prog", "good", unix.EACCES, "chmod +x"},
		{"./dir", "good", nil, "directory"},
		{"./here/x", "good", unix.ENOTDIR, "./here/x"},
	} {
		_, err := (&Options{}).Find([]string{c.name}, c.path)
		wantStatus(t, err, ExitFailed, c.words)
		if c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s in %q: %v", c.name, c.path, err)
		}
	}
}

// TestScripts compares the arguments that Find makes with those that the kernel gives to a program
// that is started in the same way and prints them.
func TestScripts(t *testing.T) {
	root := t.TempDir()
	t.Chdir(root)
	// A program that prints its arguments, each in brackets, and is no script: printf of the tools
	// would not do, since it takes the script's name for the format.
	build := exec.Command("gcc", "-o", "show", "-xc", "-")
	build.Stdin = strings.NewReader(`#include <stdio.h>
int main(int c, char **v) { for (int i = 0; i < c; i++) printf("%s%c", v[i], 0); return 0; }`)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	show := filepath.Join(root, "show")
	if err := os.Mkdir("bin", 0o755); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 300)
	lines := map[string]string{
		"plain":        "#!" + show,
		"argument":     "#!" + show + " -a",
		"two":          "#!" + show + " -a -b  c",
		"spaces":       "#! \t " + show + " \t -a b \t",
		"tab":          "#!" + show + "\t-a",
		"tabs":         "#!" + show + "\t-a\tb c",
		"return":       "#!" + show + " -a\r",
		"relative":     "#!./show -r",
		"first":        "#!" + root + "/plain -1",
		"second":       "#!" + root + "/first -2",
		"third":        "#!" + root + "/second -3",
		"long":         "#!" + show + " " + long,
		"zero":         "#!" + show + " a\x00b",
		"fourth":       "#!" + root + "/third -4",
		"fifth":        "#!" + root + "/fourth -5",
		"bad-return":   "#!" + show + "\r",
		"bad-long":     "#!/" + long,
		"bad-empty":    "#!",
		"bad-blank":    "#! \t ",
		"bad-missing":  "#!/no/such/interpreter -a",
		"bad-dir":      "#!" + root,
		"bad-mode":     "#!" + root + "/unreadable",
		"bad-of-plain": "#!" + root + "/text",
	}
	for name, line := range lines {
		write(t, "bin/"+name, line+"\necho body\n", 0o755)
		write(t, name, line+"\n", 0o755)
	}
	write(t, "unreadable", "#!/bin/sh\n", 0o644)
	write(t, "text", "no program\n", 0o755)
	write(t, "nonewline", "#!"+show+" -a", 0o755)
	write(t, "nonewline-blank", "#!"+show+" -a ", 0o755)
	write(t, "nonewline-empty", "#!"+show+" ", 0o755)
	write(t, "exact", "#!"+show+" "+strings.Repeat("x", headBytes-4-len(show))+"\n", 0o755)
	for _, name := range []string{"nonewline", "nonewline-blank", "nonewline-empty", "exact"} {
		lines[name] = ""
	}
	var cases [][]string
	for name := range lines {
		cases = append(cases, []string{"./" + name}, []string{filepath.Join(root, name), "x", "", "y z"})
		if _, err := os.Stat("bin/" + name); err == nil {
			cases = append(cases, []string{"bin/" + name, "--", "-n"})
		}
	}
	for _, argv := range cases {
		cmd := exec.Command(argv[0], argv[1:]...)
		out, kernelErr := cmd.Output()
		p, err := (&Options{}).Find(argv, "")
		if kernelErr != nil {
			if err == nil {
				t.Errorf("%q: found %+v, but the kernel says %v", argv, p, kernelErr)
			} else {
				wantStatus(t, err, ExitFailed)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v, but the kernel starts it", argv, err)
			continue
		}
		want := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if d := cmp.Diff(want, p.Argv); d != "" {
			t.Errorf("%q: arguments (-kernel +found):\n%s", argv, d)
		}
		if p.Exe != show {
			t.Errorf("%q: program %s, expected %s", argv, p.Exe, show)
		}
	}
}

// TestScriptFromPath: the script's name is made of the element of PATH, as execvp makes it.
func TestScriptFromPath(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "script"), "#!"+real(t)+" -e\n", 0o755)
	p, err := (&Options{}).Find([]string{"script", "x"}, "/nosuch:"+root)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{real(t), "-e", filepath.Join(root, "script"), "x"}, p.Argv); d != "" {
		t.Error(d)
	}
}

// TestNotLoadable makes programs that Linux or ckptrun cannot run out of a real one.
func TestNotLoadable(t *testing.T) {
	dir := t.TempDir()
	b, err := os.ReadFile(real(t))
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	interp := -1
	for i, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			interp = i
		}
	}
	if interp < 0 {
		t.Fatalf("%s has no dynamic linker", real(t))
	}
	le := binary.LittleEndian
	header := int(le.Uint64(b[32:])) + 56*interp // of PT_INTERP
	for _, c := range []struct {
		name  string
		edit  func(b []byte) []byte
		words string
	}{
		{"static", func(b []byte) []byte { le.PutUint32(b[header:], uint32(elf.PT_NULL)); return b }, "statically linked"},
		{"arm", func(b []byte) []byte { le.PutUint16(b[18:], uint16(elf.EM_AARCH64)); return b }, "EM_AARCH64"},
		{"object", func(b []byte) []byte { le.PutUint16(b[16:], uint16(elf.ET_REL)); return b }, "ET_REL"},
		{"core", func(b []byte) []byte { le.PutUint16(b[16:], uint16(elf.ET_CORE)); return b }, "ET_CORE"},
		{"longinterp", func(b []byte) []byte { le.PutUint64(b[header+32:], 1<<20); return b }, "longinterp"},
		{"outside", func(b []byte) []byte { le.PutUint64(b[header+8:], uint64(len(b))); return b }, "outside"},
		{"nointerp", func(b []byte) []byte {
			copy(b[f.Progs[interp].Off:], "/no/ld.so\x00")
			le.PutUint64(b[header+32:], 10)
			return b
		}, "/no/ld.so"},
		{"short", func(b []byte) []byte { return b[:100] }, "short"},
		{"magic", func(b []byte) []byte { return b[:4] }, "magic"},
		{"nothing", func(b []byte) []byte { return nil }, "nothing"},
		{"text", func(b []byte) []byte { return []byte("echo hello\n") }, "#!/bin/sh"},
	} {
		path := write(t, filepath.Join(dir, c.name), string(c.edit(bytes.Clone(b))), 0o755)
		_, err := (&Options{}).Find([]string{path}, "")
		wantStatus(t, err, ExitFailed, path, c.words)
	}
}

// FuzzFind: whatever the file holds, Find returns a program with a dynamic linker, or an Error.
func FuzzFind(f *testing.F) {
	b, err := os.ReadFile(real(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[:min(len(b), 4096)])
	f.Add([]byte("#!/bin/sh -e\n"))
	f.Add([]byte("#!"))
	f.Add([]byte("#!\t/bin/sh\t-e x\r\n"))
	f.Add(append([]byte("#!/bin/"), bytes.Repeat([]byte("x"), 300)...))
	f.Add([]byte("\x7fELF"))
	f.Add([]byte{})
	path := filepath.Join(f.TempDir(), "program")
	f.Fuzz(func(t *testing.T, b []byte) {
		write(t, path, string(b), 0o755)
		p, err := (&Options{}).Find([]string{path, "x"}, "")
		if err != nil {
			wantStatus(t, err, ExitFailed)
			return
		}
		if !filepath.IsAbs(p.Exe) || p.Interp == "" || len(p.Argv) < 2 || p.Argv[len(p.Argv)-1] != "x" || p.Comm != "program" {
			t.Errorf("found %+v", p)
		}
	})
}
