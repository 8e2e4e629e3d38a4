// SPDX-License-Identifier: Apache-2.0

package backs

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// What an MPI is: whose handles and constants its mpi.h has.
const (
	MPICH   = "mpich"
	OpenMPI = "openmpi"
	ABI     = "abi" // the standard's
)

// ErrNone says that there is no back of a name.
var ErrNone = errors.New("there is no such back")

// Back is a back, as its file tells.
type Back struct {
	Name     string   `json:"name"` // of ckptrun --mpi
	Path     string   `json:"path"`
	Is       string   `json:"is"`       // MPICH, OpenMPI or ABI
	MPI      string   `json:"mpi"`      // what the MPI calls itself
	Version  string   `json:"version"`  // of the MPI
	Standard string   `json:"standard"` // of the MPI standard
	Compiler string   `json:"compiler,omitempty"`
	Libckpt  string   `json:"libckpt"`
	Needs    []string `json:"needs"` // libraries of the MPI
	Yours    bool     `json:"yours"` // it lies in the user's folder
}

// String is the MPI for people.
func (b *Back) String() string {
	if b.Is == ABI {
		return "any MPI with the standard ABI"
	}
	return b.MPI + " " + b.Version
}

const (
	section = ".ckptback"
	prefix  = "libckptback-"
	suffix  = ".so"
)

// nameForm is that of scripts/mpis.sh.
var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)

// CheckName refuses what cannot be the name of a back.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%q is no name for a back: small letters, digits, dots and dashes", name)
	}
	return nil
}

// Library is the lib folder of the installation that this program belongs to.
func Library() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(filepath.Dir(exe)), "lib"), nil
}

// Yours is the folder of the user's own backs: CKPT_BACKS, else in the home directory; "" when there is none.
func Yours(getenv func(string) string) string {
	if dir := getenv("CKPT_BACKS"); dir != "" {
		return dir
	}
	if dir := getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "libckpt", "backs")
	}
	if dir := getenv("HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, ".local", "share", "libckpt", "backs")
	}
	return ""
}

// Place is where backs are looked for: the user's folder, then that of the installation.
type Place struct {
	Yours, Installed string
}

// PlaceOf is the place of a user and an installation.
func PlaceOf(getenv func(string) string, lib string) Place {
	return Place{Yours: Yours(getenv), Installed: filepath.Join(lib, "ckpt", "back")}
}

func file(dir, name string) string { return filepath.Join(dir, prefix+name+suffix) }

// List returns the backs that Find would find, by name, and what is wrong with files that are none.
func (p Place) List() ([]*Back, error) {
	byName := map[string]*Back{}
	var errs []error
	for _, dir := range []string{p.Yours, p.Installed} {
		if dir == "" {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			name, begins := strings.CutPrefix(e.Name(), prefix)
			name, ends := strings.CutSuffix(name, suffix)
			if !begins || !ends || byName[name] != nil {
				continue
			}
			b, err := Read(filepath.Join(dir, e.Name()))
			if err != nil {
				errs = append(errs, err)
				continue
			}
			b.Yours = dir == p.Yours
			byName[name] = b
		}
	}
	list := make([]*Back, 0, len(byName))
	for _, b := range byName {
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b *Back) int { return strings.Compare(a.Name, b.Name) })
	return list, errors.Join(errs...)
}

// Find returns the back of a name; ErrNone when there is none.
func (p Place) Find(name string) (*Back, error) {
	for _, dir := range []string{p.Yours, p.Installed} {
		if dir == "" {
			continue
		}
		b, err := Read(file(dir, name))
		switch {
		case err == nil:
			b.Yours = dir == p.Yours
			return b, nil
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: %w", name, ErrNone)
}

// Read reads what a file says of itself.
func Read(path string) (*Back, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	s := f.Section(section)
	if s == nil || s.Size > 4096 {
		return nil, fmt.Errorf("%s is no back of libckpt, or one of an older version", path)
	}
	data, err := s.Data()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	b, err := parse(strings.TrimRight(string(data), "\x00"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	needs, err := f.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, n := range needs {
		if strings.HasPrefix(n, "libmpi") {
			b.Needs = append(b.Needs, n)
		}
	}
	b.Path = path
	b.Name = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), prefix), suffix)
	return b, nil
}

const firstLine = "libckpt-back 1"

func parse(text string) (*Back, error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if lines[0] != firstLine {
		return nil, fmt.Errorf("what it says of itself begins with %.40q, not with %q: it is of another version of libckpt", lines[0], firstLine)
	}
	b := &Back{}
	for _, l := range lines[1:] {
		key, value, _ := strings.Cut(l, " ")
		switch key {
		case "is":
			b.Is = value
		case "mpi":
			b.MPI = value
		case "version":
			b.Version = value
		case "standard":
			b.Standard = value
		case "compiler":
			b.Compiler = value
		case "libckpt":
			b.Libckpt = value
		}
	}
	if b.Is == "" || b.MPI == "" {
		return nil, errors.New("it does not say which MPI it is for")
	}
	return b, nil
}
