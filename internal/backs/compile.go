// SPDX-License-Identifier: Apache-2.0

package backs

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// MPI is whose mpi.h a compiler finds.
type MPI struct {
	Is, Called, Version, Standard string
}

// whichLine is the last line of capi/back/which.in, preprocessed. It is compiled when somebody asks: each rank has
// this package, and few compile a back.
var whichLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^libckpt-mpi ([a-z-]+) "([^"]*)" (.*) ([0-9]+) ([0-9]+)\s*$`)
})

// Ask asks a compiler which MPI it compiles for. sources is the folder of the installed sources.
func Ask(ctx context.Context, mpicc, sources string) (MPI, error) {
	if _, err := exec.LookPath(mpicc); err != nil {
		return MPI{}, fmt.Errorf("%s: there is no such compiler: name the mpicc of the MPI (%w)", mpicc, errors.Unwrap(err))
	}
	out, err := exec.CommandContext(ctx, mpicc, "-E", "-P", "-x", "c", filepath.Join(sources, "capi", "back", "which.in")).CombinedOutput()
	if err != nil {
		return MPI{}, fmt.Errorf("%s does not find its mpi.h: %s; is it an MPI's compiler?", mpicc, firstError(string(out)))
	}
	m := whichLine().FindStringSubmatch(string(out))
	if m == nil {
		return MPI{}, fmt.Errorf("%s: its mpi.h does not say whose it is", mpicc)
	}
	mpi := MPI{Is: m[1], Called: m[2], Version: strings.NewReplacer(`"`, "", " ", "").Replace(m[3]), Standard: m[4] + "." + m[5]}
	return mpi, mpi.usable(mpicc)
}

func (m MPI) usable(mpicc string) error {
	var major, minor int
	_, _ = fmt.Sscanf(m.Standard, "%d.%d", &major, &minor) // the form is that of whichLine
	switch {
	case m.Is == "-":
		return fmt.Errorf("%s is of an MPI that is neither MPICH nor Open MPI, nor of their ABIs, nor has it the standard's ABI: "+
			"libckpt has no back for it", mpicc)
	case m.Is == ABI:
		return fmt.Errorf("%s compiles for the standard ABI, for which libckpt always has a back: ckptrun --mpi abi", mpicc)
	case major < 3 || major == 3 && minor < 1:
		return fmt.Errorf("%s %s (%s) has MPI %s, and libckpt needs MPI 3.1: take a newer one", m.Called, m.Version, mpicc, m.Standard)
	}
	return nil
}

// firstError is the line of a compiler's output that says what is wrong.
func firstError(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "error") {
			return strings.TrimSpace(line)
		}
	}
	first, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	return first
}

// Making is what is made of the installed sources.
type Making struct {
	Compiler string // an MPI's
	Name     string // of the back
	Sources  string // folder of the installed sources
	Library  string // lib folder of the installation
	Libckpt  string // its version
	Dir      string // where the back is put
}

// Sources is the folder of the back's sources in an installation.
func Sources(lib string) string { return filepath.Join(filepath.Dir(lib), "share", "libckpt", "src") }

// Compile compiles a back and puts it in its place, all at once.
func (m Making) Compile(ctx context.Context) (*Back, error) {
	files, err := m.sources()
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "libckpt-back-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	objects, err := m.objects(ctx, work, files)
	if err != nil {
		return nil, err
	}
	made := filepath.Join(work, prefix+m.Name+suffix)
	args := append([]string{"-shared", "-o", made}, objects...)
	args = append(args, "-L"+filepath.Join(m.Library, "ckpt"), "-l:libckpt-core.so", "-Wl,-rpath,"+filepath.Join(m.Library, "ckpt"))
	for _, dir := range libraryDirs(ctx, m.Compiler) {
		args = append(args, "-Wl,-rpath,"+dir)
	}
	if out, err := exec.CommandContext(ctx, m.Compiler, args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s cannot link the back: %s", m.Compiler, firstError(string(out)))
	}
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := replace(made, file(m.Dir, m.Name)); err != nil {
		return nil, err
	}
	return Read(file(m.Dir, m.Name))
}

func (m Making) sources() ([]string, error) {
	var files []string
	err := filepath.WalkDir(filepath.Join(m.Sources, "capi", "back"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".c") {
			files = append(files, path)
		}
		return err
	})
	if err == nil && len(files) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("the sources of backs are not installed in %s: %w", m.Sources, err)
	}
	return files, nil
}

// objects compiles all files, as many at once as there are processors, and stops at the first that fails.
func (m Making) objects(ctx context.Context, work string, files []string) ([]string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	objects := make([]string, len(files))
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wait sync.WaitGroup
	for i, f := range files {
		objects[i] = filepath.Join(work, fmt.Sprintf("%03d.o", i))
		free <- struct{}{}
		wait.Go(func() {
			defer func() { <-free }()
			if ctx.Err() != nil {
				return
			}
			out, err := exec.CommandContext(ctx, m.Compiler, "-std=gnu11", "-O2", "-g", "-w", "-fPIC", "-fvisibility=hidden",
				"-I"+filepath.Join(m.Sources, "include"), "-I"+filepath.Join(m.Sources, "capi"),
				fmt.Sprintf("-DBACK_COMPILER=%q", m.Compiler), fmt.Sprintf("-DBACK_LIBCKPT=%q", m.Libckpt),
				"-c", "-o", objects[i], f).CombinedOutput()
			if err != nil {
				cancel(fmt.Errorf("%s cannot compile %s: %s", m.Compiler, f, firstError(string(out))))
			}
		})
	}
	wait.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return objects, nil
}

// libraryDirs are the folders of the compiler's MPI libraries, for the back to find them again. Wrappers say with -show
// what they would call.
func libraryDirs(ctx context.Context, mpicc string) []string {
	out, err := exec.CommandContext(ctx, mpicc, "-show").Output()
	if err != nil {
		return nil
	}
	var dirs []string
	for _, word := range strings.Fields(string(out)) {
		dir, ok := strings.CutPrefix(word, "-L")
		if !ok || !filepath.IsAbs(dir) || slices.Contains(dirs, dir) {
			continue
		}
		if found, _ := filepath.Glob(filepath.Join(dir, "libmpi*.so.[0-9]*")); len(found) > 0 {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// replace puts a file in the place of another one by a rename: running jobs keep what they have mapped.
func replace(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	next := to + ".new"
	if err := os.WriteFile(next, data, 0o755); err != nil {
		return err
	}
	return os.Rename(next, to)
}

// Remove removes a back that the user added; those of the installation stay.
func (p Place) Remove(name string) (string, error) {
	b, err := p.Find(name)
	if err != nil {
		return "", err
	}
	if !b.Yours {
		return "", fmt.Errorf("the back %s belongs to the installation (%s): it is not removed; `ckptctl back add --replace` puts another one before it", name, b.Path)
	}
	return b.Path, os.Remove(b.Path)
}

// FrontOf tells which library with an MPI's C functions a program is linked with, and whether dir, the folder of the fronts,
// has one for it. "" stands for none.
func FrontOf(program, dir string) (library string, has bool) {
	f, err := elf.Open(program)
	if err != nil {
		return "", false
	}
	defer f.Close()
	needs, err := f.ImportedLibraries()
	if err != nil {
		return "", false
	}
	for _, n := range needs {
		if !mpiLibrary().MatchString(n) {
			continue
		}
		library = n
		if _, err := os.Stat(filepath.Join(dir, n)); err == nil {
			return n, true
		}
	}
	return library, false
}

// mpiLibrary matches libraries of C functions of MPI, not those of other languages, which need them.
var mpiLibrary = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^lib(mpi|mpich|mpi_abi|mpi_cray|mpi_gnu_[0-9]+|mpi_mt|msmpi|mpt|pmpich)\.so(\.[0-9.]+)?$`)
})
