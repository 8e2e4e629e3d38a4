// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/libckpt/libckpt/internal/suites"
)

// real are the programs of internal/suites whose processor time is compared, as "name, MPI".
var real = []string{
	"ScaLAPACK xdllt, mpich", "ScaLAPACK xzlu, mpich", "ScaLAPACK xdqr, mpich", "HDF5, mpich",
	"ScaLAPACK xdllt, openmpi", "ScaLAPACK xzlu, openmpi", "ScaLAPACK xdqr, openmpi",
	"HPCC, openmpi", "LAMMPS, melt, openmpi", "LAMMPS, peptide, openmpi", "mpi4py, messages, openmpi",
}

// within is the goal: what the quickest run under ckptrun may take more than the quickest native one.
const within = 0.02

// elk is a program of solid-state physics; natively most of its time is its own, not that of MPI.
var elk = suites.Program{Name: "elk, silicon", MPI: "openmpi", Ranks: 2, Argv: []string{"elk-lapw"}}

const (
	elkExample = "/usr/share/doc/elk-lapw/examples/basic/Si/elk.in"
	elkSpecies = "/usr/share/elk-lapw/species/"
)

// supply copies what a program reads into the folder of a run.
func supply(p suites.Program, work string) error {
	if p.Name != elk.Name {
		return p.Supply(work)
	}
	text, err := os.ReadFile(elkExample)
	if err != nil {
		return fmt.Errorf("%w: apt-get install elk-lapw", err)
	}
	text = bytes.ReplaceAll(text, []byte("'../../../species/'"), []byte("'"+elkSpecies+"'"))
	text = bytes.ReplaceAll(text, []byte("\n  2  2  2\n"), []byte("\n  3  3  3\n")) // more points of k
	return os.WriteFile(filepath.Join(work, "elk.in"), text, 0o644)
}

// spent is what all processes of a run took, in seconds. A launcher waits for what it started, so its own
// usage holds theirs.
type spent struct{ all, system, wall float64 }

func (b *bench) spend(ctx context.Context, p suites.Program, before []string) (spent, error) {
	work, err := os.MkdirTemp(b.scratch, "run-")
	if err != nil {
		return spent{}, err
	}
	defer os.RemoveAll(work)
	if err := supply(p, work); err != nil {
		return spent{}, err
	}
	i := slices.IndexFunc(implementations, func(m implementation) bool { return m.suffix == "."+p.MPI })
	mpi := implementations[i]
	argv := join(mpi.launch[:len(mpi.launch)-2], []string{"-n", strconv.Itoa(p.Ranks)}, before, p.Argv)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = work
	// A linear algebra library that starts threads of its own makes more of them than there are processors.
	cmd.Env = append(environment(), "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return spent{}, fmt.Errorf("%s: %w\n%s%s", b.shown(argv), err, tail(out.Bytes()), tail(errs.Bytes()))
	}
	s := spent{wall: time.Since(began).Seconds(), system: cmd.ProcessState.SystemTime().Seconds()}
	s.all = s.system + cmd.ProcessState.UserTime().Seconds()
	if p.Proof == "" {
		return s, nil
	}
	if _, err := p.Outcome(work, out.String(), errs.String()); err != nil {
		return spent{}, fmt.Errorf("%s: %w", b.shown(argv), err)
	}
	return s, nil
}

func measureProcessor(ctx context.Context, b *bench) (*report, error) {
	inputs, err := suites.Inputs()
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(b.scratch, "bin")
	if err := os.MkdirAll(bin, 0o777); err != nil {
		return nil, err
	}
	var programs []suites.Program
	for _, p := range suites.Heavy() {
		if slices.Contains(real, p.Name+", "+p.MPI) {
			p = p.In(inputs, bin)
			if err := p.Compile(bin); err != nil {
				return nil, err
			}
			p.Name += ", " + p.MPI
			programs = append(programs, p)
		}
	}
	if len(programs) != len(real) {
		return nil, fmt.Errorf("internal/suites has %d of the %d programs", len(programs), len(real))
	}
	programs = append(programs, elk)
	for _, mpi := range implementations {
		programs = append(programs, suites.Program{Name: "MPI_Init and MPI_Finalize, " + mpi.suffix[1:], MPI: mpi.suffix[1:], Ranks: 2,
			Argv: []string{b.program("startup" + mpi.suffix)}})
	}
	ways := []way{{Name: "native", Shown: "mpiexec -n N PROGRAM"}, {Name: "ckptrun", Shown: "mpiexec -n N build/bin/ckptrun -- PROGRAM"}}
	tables := make([]*comparison, 3)
	for i, title := range []string{"processor time, user and system, of all processes", "system time of all processes", "wall clock"} {
		tables[i] = &comparison{Title: title, Unit: "s", Ways: ways}
		for _, p := range programs {
			tables[i].Rows = append(tables[i].Rows, &row{Name: p.Name, Values: make([]series, 2), Least: make(series, 2)})
		}
	}
	rounds := 5 // the machine has times when it is half as quick: of so many runs each way has some beside them
	if b.full {
		rounds = 9
	}
	for k, p := range programs {
		fmt.Printf("   %s: %d rounds of 2 ways\n", p.Name, rounds)
		for round := range 2 * rounds {
			// Natively first in one round, last in the next.
			way := (round + round/2) % 2
			var before []string
			if way == 1 {
				before = b.ckptrun("--")
			}
			s, err := b.spend(ctx, p, before)
			if err != nil {
				return nil, err
			}
			for i, v := range []float64{s.all, s.system, s.wall} {
				r := tables[i].Rows[k]
				r.Values[way] = append(r.Values[way], v)
				r.Least[way] = slices.Min(r.Values[way])
			}
		}
		if r := tables[0].Rows[k]; p.Proof != "" || p.Name == elk.Name {
			r.Goal = within * r.Least[0]
		}
	}
	tables[0].goals = map[string]float64{} // a column for them
	return &report{
		Title: "Real programs, processor time",
		Text: "Twelve programs from start to end, with the heavy inputs of `internal/suites` (elk: Debian's example, with more points of k), natively and under " +
			"ckptrun, no checkpoint. Ranks that wait for each other poll, so processor time holds waiting, too. The goal is that " +
			"the quickest run under ckptrun takes 2 % more than the quickest native one, at most: others have this machine's host, too, and slow whole " +
			"runs down, by half at times. The last rows are programs that only begin and end MPI: what starting under ckptrun costs, once, and part of the " +
			"difference of all other rows.",
		Comparisons: tables,
	}, nil
}
