// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"regexp"
	"strconv"
)

const (
	lib       = "/usr/lib/x86_64-linux-gnu/"
	scalapack = lib + "scalapack/"
)

var (
	// WALL and CPU lines: the times stand between the parameters and the verdict.
	scalapackLines = regexp.MustCompile(`PASSED|FAILED|BYPASS|tests completed|skipped`)
	scalapackTimes = regexp.MustCompile(`\s+\d+\.\d\d+\b`)

	blacsLines = regexp.MustCompile(`PASSED|FAILED|SKIPPED|INVALID`)

	// Scaled residuals of HPCC's matrix products are of random matrices that are new in every run.
	hpccLines = regexp.MustCompile(`^(Found \d|Node\(s\) with|Solution Validates|\|\|Ax-b|Success|\w*_(residual|Errors|maxErr|RnormI|Anorm1|XnormI|BnormI)=)|tests completed`)

	// The table of each step's energies, how many particles there are, and who has them.
	lammpsLines = regexp.MustCompile(`^ *\d+( +-?[\d.e+-]+){4,}|^Loop time|^ *\d+ (atoms|bonds|angles)|^(Created|Nlocal|Nghost|Neighs)|^Ave special`)
	lammpsTimes = regexp.MustCompile(`Loop time of [\d.]+`)
)

// bindings are Fortran's ways to MPI; the index is what poisson.F90 calls them.
var bindings = []string{"mpif.h", "use mpi", "use mpi_f08"}

// Programs are the programs, small enough for a machine with two processors.
func Programs() []Program {
	var all []Program
	for _, mpi := range []string{"mpich", "openmpi"} {
		all = append(all, scalapackTests(mpi)...)
		all = append(all, netpipe(mpi), hdf5(mpi))
		for number, binding := range bindings {
			all = append(all, fortran(mpi, binding, strconv.Itoa(number)))
		}
	}
	return append(all, debian()...)
}

func scalapackTests(mpi string) []Program {
	linear := func(program, input string, proof string) Program {
		return Program{Name: "ScaLAPACK " + program, MPI: mpi, Ranks: 2, Argv: []string{scalapack + mpi + "-tests/" + program},
			Inputs: []string{"$IN/scalapack/" + input}, Keep: scalapackLines, Blank: scalapackTimes, Proof: proof}
	}
	blacs := func(program string) Program {
		return Program{Name: "BLACS " + program, MPI: mpi, Ranks: 2, Argv: []string{scalapack + mpi + "-tests/" + program},
			Inputs: []string{"$IN/scalapack/bt.dat", "$IN/scalapack/sdrv.dat", "$IN/scalapack/bsbr.dat", "$IN/scalapack/comb.dat"},
			Keep:   blacsLines, Proof: "PASSED  BLACS_GRIDMAP TEST"}
	}
	return []Program{
		linear("xdllt", "LLT.dat", "12 tests completed and passed residual checks."),
		linear("xzlu", "LU.dat", "8 tests completed and passed residual checks."),
		linear("xdqr", "QR.dat", "14 tests completed and passed residual checks."),
		blacs("xCbtest"),
		blacs("xFbtest"),
	}
}

// netpipe sends messages of growing length to and fro, and looks whether they arrive whole. Measuring
// is no test: it stops early on a slow machine, and not all ranks in the same place.
func netpipe(mpi string) Program {
	program := map[string]string{"mpich": "NPmpich2", "openmpi": "NPopenmpi"}[mpi]
	return Program{Name: "NetPIPE", MPI: mpi, Ranks: 2, Argv: []string{program, "-i", "-n", "3", "-u", "100000"},
		Stderr: true, Keep: regexp.MustCompile(`Integrity`), Proof: "29:   98305 bytes      3 times -->  Integrity check passed"}
}

func hdf5(mpi string) Program {
	return Program{Name: "HDF5", MPI: mpi, Ranks: 3,
		Build: []string{"mpicc." + mpi, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I/usr/include/hdf5/" + mpi,
			"-o", "$BIN/blocks", "$IN/blocks.c", "-L" + lib + "hdf5/" + mpi, "-lhdf5"},
		Argv: []string{"$BIN/blocks", "blocks.h5"}, Bytes: []string{"blocks.h5"}, Proof: "blocks: ok"}
}

func fortran(mpi, binding, number string) Program {
	return Program{Name: "Fortran, " + binding, MPI: mpi, Ranks: 4,
		Build: []string{"mpif90." + mpi, "-O2", "-Wall", "-Werror", "-DBINDING=" + number, "-o", "$BIN/poisson", "$IN/poisson.F90"},
		Argv:  []string{"$BIN/poisson"}, Proof: "poisson: ok"}
}

// debian has the programs that are packaged for one MPI only.
func debian() []Program {
	const mpi = "openmpi"
	return []Program{
		{Name: "HPCC", MPI: mpi, Ranks: 2, Argv: []string{"hpcc"}, Inputs: []string{"$IN/hpcc/hpccinf.txt"},
			Text: "hpccoutf.txt", Keep: hpccLines, Proof: "Success=1"},
		{Name: "LAMMPS, melt", MPI: mpi, Ranks: 2, Argv: []string{"lmp", "-log", "none", "-in", "in.melt"},
			Inputs: []string{"$IN/lammps/in.melt"}, Keep: lammpsLines, Blank: lammpsTimes, Bytes: []string{"melt.data"},
			Proof: "~ on 2 procs for 100 steps with 864 atoms"},
		{Name: "LAMMPS, peptide", MPI: mpi, Ranks: 2, Argv: []string{"lmp", "-log", "none", "-in", "in.peptide"},
			Inputs: []string{"$IN/lammps/in.peptide", "/usr/share/lammps/examples/peptide/data.peptide"},
			Keep:   lammpsLines, Blank: lammpsTimes, Bytes: []string{"peptide.data"},
			Proof: "~ on 2 procs for 20 steps with 2004 atoms"},
		// The python3 of the distribution: only that one finds mpi4py.
		{Name: "mpi4py, messages", MPI: mpi, Ranks: 3, Argv: []string{"/usr/bin/python3", "$IN/messages.py"}, Proof: "messages: ok"},
		{Name: "mpi4py, storage", MPI: mpi, Ranks: 3, Argv: []string{"/usr/bin/python3", "$IN/storage.py", "storage.bin"},
			Bytes: []string{"storage.bin"}, Proof: "storage: ok"},
	}
}
