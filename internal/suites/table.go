// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"fmt"
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

	// Not what passed in the last moment, after the two seconds of the test of repeatable sums: the program
	// ends by an abort of one rank, within milliseconds of what the other writes, and mpiexec may end before
	// it has passed that on. What failed counts at any time.
	blacsLines = regexp.MustCompile(`TESTS: (PASSED|SKIPPED)|FAILED|INVALID|PASSED  BLACS_PNUM`)

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
		all = append(all,
			linear(mpi, "xdllt", "scalapack/LLT.dat", 12),
			linear(mpi, "xzlu", "scalapack/LU.dat", 8),
			linear(mpi, "xdqr", "scalapack/QR.dat", 14),
			blacs(mpi, "xCbtest", "scalapack", "PASSED  BLACS_PNUM/BLACS_PCOORD TEST"),
			blacs(mpi, "xFbtest", "scalapack", "PASSED  BLACS_PNUM/BLACS_PCOORD TEST"),
			netpipe(mpi, 3), hdf5(mpi, 1))
		for number, binding := range bindings {
			all = append(all, fortran(mpi, binding, strconv.Itoa(number)))
		}
	}
	return append(all, hpcc("hpcc"), melt(100), peptide(20), mpi4py("messages", 1), mpi4py("storage", 1, "storage.bin"), mpi4py("databases", 30), coarrays(100))
}

// Long are programs that take seconds, so that much can happen while they run.
func Long() []Program {
	var all []Program
	for _, mpi := range []string{"mpich", "openmpi"} {
		all = append(all,
			linear(mpi, "xdllt", "long/LLT.dat", 48),
			linear(mpi, "xzlu", "long/LU.dat", 32),
			linear(mpi, "xdqr", "long/QR.dat", 22),
			blacs(mpi, "xCbtest", "long", "INTEGER SUM TESTS: PASSED ALL   72 TESTS."),
			blacs(mpi, "xFbtest", "long", "INTEGER SUM TESTS: PASSED ALL   72 TESTS."),
			netpipe(mpi, 1000), hdf5(mpi, 12))
	}
	messages := mpi4py("messages", 20)
	messages.Order = true // sums of three numbers
	return append(all, hpcc("long"), melt(1000), peptide(80), messages, mpi4py("storage", 10, "storage.bin"), mpi4py("databases", 150), coarrays(10000))
}

// Heavy are programs that compute for ten to thirty seconds on two processors, in the way such programs do: with
// blocks of a size that people use. To start takes little of that.
func Heavy() []Program {
	var all []Program
	for _, mpi := range []string{"mpich", "openmpi"} {
		all = append(all,
			linear(mpi, "xdllt", "heavy/LLT.dat", 800),
			linear(mpi, "xzlu", "heavy/LU.dat", 80),
			linear(mpi, "xdqr", "heavy/QR.dat", 288),
			hdf5(mpi, 60))
	}
	messages := mpi4py("messages", 2000)
	messages.Order = true
	return append(all, hpcc("heavy"), melt(30000), peptide(1200), messages)
}

// linear is a test program of ScaLAPACK that passes so many tests.
func linear(mpi, program, input string, tests int) Program {
	return Program{Name: "ScaLAPACK " + program, MPI: mpi, Ranks: 2, Argv: []string{scalapack + mpi + "-tests/" + program},
		Inputs: []string{"$IN/" + input}, Keep: scalapackLines, Blank: scalapackTimes,
		Proof: fmt.Sprintf("%d tests completed and passed residual checks.", tests)}
}

func blacs(mpi, program, folder, proof string) Program {
	p := Program{Name: "BLACS " + program, MPI: mpi, Ranks: 2, Argv: []string{scalapack + mpi + "-tests/" + program},
		Keep: blacsLines, Proof: proof}
	for _, input := range []string{"bt.dat", "sdrv.dat", "bsbr.dat", "comb.dat"} {
		p.Inputs = append(p.Inputs, "$IN/"+folder+"/"+input)
	}
	return p
}

// netpipe sends messages of growing length to and fro, each length a number of times, and checks that they
// arrive whole. Its measuring mode is no test: on a slow machine it stops early, and not all ranks stop in the
// same place.
func netpipe(mpi string, times int) Program {
	program := map[string]string{"mpich": "NPmpich2", "openmpi": "NPopenmpi"}[mpi]
	return Program{Name: "NetPIPE", MPI: mpi, Ranks: 2, Argv: []string{program, "-i", "-n", strconv.Itoa(times), "-u", "100000"},
		Stderr: true, Keep: regexp.MustCompile(`Integrity`),
		Proof: fmt.Sprintf("29:   98305 bytes %6d times -->  Integrity check passed", times)}
}

func hdf5(mpi string, times int) Program {
	return Program{Name: "HDF5", MPI: mpi, Ranks: 3,
		Build: []string{"mpicc." + mpi, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I/usr/include/hdf5/" + mpi,
			"-o", "$BIN/blocks-" + mpi, "$IN/blocks.c", "-L" + lib + "hdf5/" + mpi, "-lhdf5", "-lm"},
		Argv: []string{"$BIN/blocks-" + mpi, "blocks.h5", strconv.Itoa(times)}, Bytes: []string{"blocks.h5"}, Proof: "blocks: ok"}
}

func fortran(mpi, binding, number string) Program {
	return Program{Name: "Fortran, " + binding, MPI: mpi, Ranks: 4,
		Build: []string{"mpif90." + mpi, "-O2", "-Wall", "-Werror", "-DBINDING=" + number, "-o", "$BIN/poisson", "$IN/poisson.F90"},
		Argv:  []string{"$BIN/poisson"}, Proof: "poisson: ok"}
}

// The rest is packaged for one MPI only.
const packaged = "openmpi"

func hpcc(folder string) Program {
	return Program{Name: "HPCC", MPI: packaged, Ranks: 2, Argv: []string{"hpcc"}, Inputs: []string{"$IN/" + folder + "/hpccinf.txt"},
		Text: "hpccoutf.txt", Keep: hpccLines, Proof: "Success=1"}
}

func melt(steps int) Program {
	return lammps("melt", steps, 864)
}

func peptide(steps int) Program {
	return lammps("peptide", steps, 2004, "/usr/share/lammps/examples/peptide/data.peptide")
}

func lammps(name string, steps, atoms int, inputs ...string) Program {
	return Program{Name: "LAMMPS, " + name, MPI: packaged, Ranks: 2,
		Argv:   []string{"lmp", "-log", "none", "-var", "steps", strconv.Itoa(steps), "-in", "in." + name},
		Inputs: append([]string{"$IN/lammps/in." + name}, inputs...),
		Keep:   lammpsLines, Blank: lammpsTimes, Bytes: []string{name + ".data"},
		Proof: fmt.Sprintf("~ on 2 procs for %d steps with %d atoms", steps, atoms)}
}

// coarrays are Fortran's own parallel processing; OpenCoarrays makes MPI's windows and calls of them. It is not run for MPICH 4.0:
// natively, what one image has put is not there after sync all, and an atomic addition counts twice. UCX below MPICH warns at the
// end, on the standard output, also natively.
func coarrays(rounds int) Program {
	return Program{Name: "coarrays", MPI: packaged, Ranks: 2,
		Build: []string{"mpif90." + packaged, "-O2", "-Wall", "-Werror", "-fcoarray=lib", "-o", "$BIN/coarrays", "$IN/coarrays.f90",
			"-L" + lib + "open-coarrays/" + packaged + "/lib", "-lcaf_" + packaged},
		Argv: []string{"$BIN/coarrays", strconv.Itoa(rounds)}, Keep: regexp.MustCompile(`^coarrays: `), Proof: "coarrays: ok"}
}

// mpi4py is a script, with the file that it writes.
func mpi4py(name string, times int, file ...string) Program {
	// The python3 of the distribution: only that one finds mpi4py.
	argv := append([]string{"/usr/bin/python3", "$IN/" + name + ".py"}, file...)
	return Program{Name: "mpi4py, " + name, MPI: packaged, Ranks: 3, Argv: append(argv, strconv.Itoa(times)), Bytes: file, Proof: name + ": ok"}
}
