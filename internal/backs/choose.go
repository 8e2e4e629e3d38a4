// SPDX-License-Identifier: Apache-2.0

package backs

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// called is how people call what an MPI is.
var called = map[string]string{MPICH: "MPICH", OpenMPI: "Open MPI", ABI: "the standard ABI"}

// Choose returns the path of the back for an MPI: a name, a path, or "" where no launcher is seen. launchers gives
// the programs above this one, the nearest first; chosen tells that the user named the MPI, not the launcher.
func (p Place) Choose(mpi, version string, chosen bool, launchers func() []string) (string, error) {
	switch {
	case mpi == "":
		return "", errors.New("this is an MPI program, but no MPI launcher was found: start it as `mpiexec -n N " +
			"ckptrun PROGRAM`, under Slurm as `srun --mpi=pmi2 ckptrun PROGRAM` (MPICH) or with --mpi=pmix (Open MPI), or name the MPI with --mpi " + strings.Join(p.names(), "|"))
	case strings.Contains(mpi, "/"):
		return mpi, nil
	}
	b, err := p.Find(mpi)
	if errors.Is(err, ErrNone) {
		return "", p.missing(mpi, chosen, launchers())
	}
	if err != nil {
		return "", err
	}
	if b.Libckpt != version {
		return "", fmt.Errorf("the back %s is of libckpt %s, and this is libckpt %s: compile it again with `ckptctl back add --replace --name %s %s`",
			b.Path, b.Libckpt, version, b.Name, orSome(b.Compiler))
	}
	return b.Path, nil
}

func orSome(compiler string) string {
	if compiler == "" {
		return "MPICC"
	}
	return compiler
}

func (p Place) names() []string {
	list, _ := p.List()
	names := make([]string, len(list))
	for i, b := range list {
		names[i] = b.Name
	}
	return names
}

// missing says that an MPI has no back, and how it gets one.
func (p Place) missing(mpi string, chosen bool, launchers []string) error {
	list, _ := p.List()
	there := make([]string, len(list))
	for i, b := range list {
		there[i] = b.Name + " (" + b.String() + ")"
	}
	have := "there is none at all"
	if len(there) > 0 {
		have = "there are " + strings.Join(there, ", ")
	}
	what, name := called[mpi], ""
	if what == "" {
		what, name = mpi, " --name "+mpi
	}
	add := "`ckptctl back add" + name + " " + compiler(mpi, launchers) + "` compiles one"
	if chosen {
		return fmt.Errorf("--mpi %s: libckpt has no back for %s; %s; %s", mpi, what, have, add)
	}
	return fmt.Errorf("this is an MPI program under the launcher of %s, and libckpt has no back for %s; %s; %s, or start it "+
		"with the mpiexec of an MPI that has one", what, what, have, add)
}

// compiler guesses the compiler of the MPI whose launcher stands above us.
func compiler(mpi string, launchers []string) string {
	for _, l := range launchers {
		for _, name := range []string{"mpicc." + mpi, "mpicc"} {
			path := filepath.Join(filepath.Dir(l), name)
			if _, err := exec.LookPath(path); err == nil {
				return path
			}
		}
	}
	for _, name := range []string{"mpicc." + mpi, "mpicc"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return "MPICC (that MPI's compiler)"
}
