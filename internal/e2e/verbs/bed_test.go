// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
	"github.com/libckpt/libckpt/internal/needmpi"
)

const (
	insideBed = "LIBCKPT_VERBS_BED"    // names the folder of the bed, for the test binary inside it
	noBed     = "LIBCKPT_VERBS_NO_BED" // why there is none
	cannot    = 125                    // the bed's status where there can be none
	patience  = 2 * time.Minute        // what a small step may take on a loaded machine
)

var (
	built    *e2e.Built
	programs = []string{"shuffle", "cases", "late", "edges", "ids"} // ours, built into the bed's folder
)

func TestMain(m *testing.M) {
	if needmpi.Listing() {
		os.Exit(m.Run())
	}
	status, err := inBed(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// inBed runs the tests in a bed, or here, where they skip themselves.
func inBed(m *testing.M) (int, error) {
	_, file, _, _ := runtime.Caller(0)
	src := filepath.Dir(file)
	built = &e2e.Built{Bin: os.Getenv(insideBed), Src: filepath.Join(src, "programs"), Root: filepath.Join(src, "../../..")}
	if built.Bin != "" {
		if onRxe { // where compiling takes long: they are there already
			return m.Run(), nil
		}
		if err := build(); err != nil {
			return 1, err
		}
		return needmpi.Run(m)
	}
	if os.Getenv(forVM) != "" {
		return inVM()
	}
	dir, err := os.MkdirTemp("", "ckpt-verbs-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	// The bed says on its own why it cannot be: an empty run first. That the adapter was not built is an error, but where nothing was.
	if _, err := os.Stat(provider()); err != nil && os.Getenv("LIBCKPT_BUILD") == "" {
		if err := os.Setenv(noBed, err.Error()+": make test-verbs builds it"); err != nil {
			return 1, err
		}
		return m.Run(), nil
	}
	said, err := bed(dir, "true").CombinedOutput()
	if e := (*exec.ExitError)(nil); errors.As(err, &e) && e.ExitCode() == cannot {
		if err := os.Setenv(noBed, strings.TrimSpace(string(said))); err != nil {
			return 1, err
		}
		return m.Run(), nil
	}
	if err != nil {
		return 1, fmt.Errorf("verbs-bed.sh: %w: %s", err, said)
	}
	again := bed(dir, os.Args...)
	again.Env = append(os.Environ(), insideBed+"="+dir)
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = again.Run()
	if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		return max(e.ExitCode(), 1), nil
	}
	return 0, err
}

func bed(dir string, argv ...string) *exec.Cmd {
	return exec.Command(filepath.Join(built.Root, "scripts/verbs-bed.sh"), append([]string{dir, provider()}, argv...)...)
}

// provider is the adapter, as libibverbs loads it.
func provider() string {
	return filepath.Join(built.Root, "build/obj/verbs/libckptsoft-rdmav34.so")
}

func build() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for _, name := range programs {
		sources, err := filepath.Glob(filepath.Join(built.Src, name, "*.c"))
		if err != nil {
			return err
		}
		argv := append([]string{"-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", filepath.Join(built.Bin, name)}, sources...)
		if name == "late" {
			argv = append(argv, "-shared", "-fPIC", "-ldl")
		}
		if name == "ids" {
			argv = append(argv, "-lrdmacm")
		}
		if said, err := exec.CommandContext(ctx, "gcc", append(argv, "-libverbs")...).CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", name, err, said)
		}
	}
	return nil
}

// needBed skips the test, by its name and with the reason, where there can be no bed. It needs these programs, too.
func needBed(t *testing.T, tools ...string) {
	t.Helper()
	if why := os.Getenv(noBed); why != "" {
		needmpi.Skip(t, "no InfiniBand", why)
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v: make setup with `test` installs it", err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}
