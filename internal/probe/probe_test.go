// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAll runs every probe twice: each answers in the same way both times, so none leaves a mark, and
// the process can still do what it could before.
func TestAll(t *testing.T) {
	first, second := Run(t.Context()), Run(t.Context())
	names := map[string]bool{}
	for i, r := range first {
		t.Logf("%-30s %-8s %s", r.Name, r.Outcome, r.Detail)
		if names[r.Name] {
			t.Errorf("two probes are called %q", r.Name)
		}
		names[r.Name] = true
		if r.Outcome != Yes && r.Outcome != No && r.Outcome != Unknown {
			t.Errorf("%s: outcome %q", r.Name, r.Outcome)
		}
		if r.For == "" || r.Outcome != Yes && (r.Advice == "" || r.Detail == "") {
			t.Errorf("%s: does not say what it is for, what was seen or what to do: %+v", r.Name, r)
		}
		if second[i].Outcome != r.Outcome {
			t.Errorf("%s: first %s, then %s", r.Name, r.Outcome, second[i].Outcome)
		}
	}
	if n, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil || n != 0 {
		t.Errorf("this thread has a seccomp filter now: %d, %v", n, err)
	}
}

func TestSetting(t *testing.T) {
	good := func(s string) bool { return s == "1" }
	path := filepath.Join(t.TempDir(), "x")
	if out, _ := setting(path, good); out != Unknown {
		t.Errorf("a file that is not there: %s", out)
	}
	for text, want := range map[string]Outcome{"1\n": Yes, "2\n": No} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, detail := setting(path, good); out != want || detail != text[:1] {
			t.Errorf("%q: %s, %q", text, out, detail)
		}
	}
}

func TestByErrno(t *testing.T) {
	for errno, want := range map[unix.Errno]Outcome{unix.ENOSYS: No, unix.EPERM: No, unix.EIO: Unknown, unix.ENOMEM: Unknown} {
		if out, _ := byErrno(errno); out != want {
			t.Errorf("%v: %s, want %s", errno, out, want)
		}
	}
}

func TestLimit(t *testing.T) {
	if out, detail := limit(unix.RLIMIT_NOFILE, 1); out != Yes || detail == "" {
		t.Errorf("one open file: %s, %s", out, detail)
	}
	if out, detail := limit(-1, 1); out != Unknown {
		t.Errorf("a limit that is none: %s, %s", out, detail)
	}
}

func TestFindLibrary(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "libnowhere.so.1")
	if lib, err := findLibrary(t.Context(), "libnowhere.so.1"); lib != "" {
		t.Errorf("found %q, %v", lib, err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", dir)
	if lib, err := findLibrary(t.Context(), "libnowhere.so.1"); lib != path || err != nil {
		t.Errorf("found %q, %v", lib, err)
	}
}
