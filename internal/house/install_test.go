// SPDX-License-Identifier: Apache-2.0

package house

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/internal/fault"
)

// run runs a command to its end and returns what it printed; status 0 is demanded.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// userProgram asks for a checkpoint and prints the answer.
const userProgram = `
#include <mpix_checkpoint.h>
#include <stdio.h>
int main(void) {
    MPIX_CR_state_t state = MPIX_CR_STATE_ERROR;
    int rc = MPIX_Checkpoint(&state);
    printf("rc %d state %d\n", rc, (int)state);
    return 0;
}
`

// TestInstalledTreeWorksElsewhere installs under a name with a space, moves the tree, and uses it as
// ckptrun, as ckptctl, and as a library to link with. Nothing of the build tree may be needed.
func TestInstalledTreeWorksElsewhere(t *testing.T) {
	build := buildDir(t)
	temp := t.TempDir()
	first, prefix := filepath.Join(temp, "in stalled"), filepath.Join(temp, "moved away")
	install, err := filepath.Abs(filepath.Join(root, "scripts", "install.sh"))
	if err != nil {
		t.Fatal(err)
	}
	run(t, temp, nil, install, build, first)
	if err := os.Rename(first, prefix); err != nil {
		t.Fatal(err)
	}

	t.Run("ckptctl", func(t *testing.T) {
		if out := run(t, temp, nil, filepath.Join(prefix, "bin", "ckptctl"), "--help"); !strings.Contains(out, "ls") {
			t.Errorf("help without commands:\n%s", out)
		}
	})

	t.Run("ckptrun", func(t *testing.T) {
		maps := run(t, temp, nil, filepath.Join(prefix, "bin", "ckptrun"), "--", "cat", "/proc/self/maps")
		if !strings.Contains(maps, filepath.Join(prefix, "lib", "ckpt", "libckpt-core.so")) {
			t.Errorf("the core of the moved tree is not used:\n%s", maps)
		}
		if strings.Contains(maps, build+"/") {
			t.Errorf("something of %s is used:\n%s", build, maps)
		}
	})

	t.Run("library", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(temp, "user.c"), []byte(userProgram), 0o644); err != nil {
			t.Fatal(err)
		}
		lib := filepath.Join(prefix, "lib")
		run(t, temp, nil, "gcc", "-Wall", "-Werror", "-I"+filepath.Join(prefix, "include"), "-o", "user", "user.c",
			"-L"+lib, "-lckpt")
		out := run(t, temp, []string{"LD_LIBRARY_PATH=" + lib}, filepath.Join(temp, "user"))
		if want := "rc 0 state 3\n"; out != want { // MPIX_CR_STATE_IGNORE
			t.Errorf("without ckptrun: %q, want %q", out, want)
		}
	})

	t.Run("headers and manual pages", func(t *testing.T) {
		for _, name := range []string{"include/mpix_checkpoint.h", "include/ckpt.h", "include/ckpt/rail.h", "share/man/man1/ckptrun.1",
			"share/man/man3/MPIX_Checkpoint.3", "share/man/man3/ckpt.h.3"} {
			if text, err := os.ReadFile(filepath.Join(prefix, name)); err != nil || strings.Contains(string(text), "@VERSION@") {
				t.Errorf("%s is missing, or was not filled in (%v)", name, err)
			}
		}
		if _, err := os.Stat(filepath.Join(prefix, "include", "ckpt", "private")); !os.IsNotExist(err) {
			t.Errorf("private headers are installed (%v)", err)
		}
	})

	t.Run("no path of the build", func(t *testing.T) {
		texts, err := filepath.Glob(filepath.Join(prefix, "lib", "*", "*", "*.cmake"))
		if err != nil || len(texts) == 0 {
			t.Fatalf("no CMake files installed (%v)", err)
		}
		for _, name := range append(texts, filepath.Join(prefix, "lib", "pkgconfig", "ckpt.pc")) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), build) || strings.Contains(string(text), "@") {
				t.Errorf("%s names the build tree, or was not filled in:\n%s", name, text)
			}
		}
	})
}

// TestNoFaultsInProduction: nothing that is installed reads the variable that makes tests fail on purpose.
func TestNoFaultsInProduction(t *testing.T) {
	build := buildDir(t)
	for _, name := range []string{"lib/libckpt.so", "lib/ckpt/libckpt-core.so", "bin/ckptctl", "bin/ckptrun"} {
		b, err := os.ReadFile(filepath.Join(build, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(b, []byte("CKPT_")) && name == "lib/ckpt/libckpt-core.so" {
			t.Errorf("%s names none of the environment's variables: the search is broken", name)
		}
		for _, variable := range []string{fault.EnvName, "CKPT_DEBUG"} {
			if bytes.Contains(b, []byte(variable)) {
				t.Errorf("%s knows %s", name, variable)
			}
		}
	}
	// No file but tests may read it.
	for _, f := range files(t) {
		if strings.HasSuffix(f.name, ".go") && !strings.HasSuffix(f.name, "_test.go") && !strings.HasPrefix(f.name, "internal/fault/") &&
			bytes.Contains(f.text, []byte("fault.ArmFromEnvironment")) {
			t.Errorf("%s arms faults from the environment", f.name)
		}
	}
}
