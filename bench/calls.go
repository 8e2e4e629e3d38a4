// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"strconv"
)

// Goals, in nanoseconds more than natively.
const (
	goalQuery    = 3
	goalBlocking = 40
	goalTriple   = 130
)

// implementation is an MPI that jobs are run under, with programs built for it.
type implementation struct {
	name, suffix string
	launch       []string // of 2 ranks
	bind         []string // options that give each rank a processor of its own
}

var implementations = []implementation{
	{"MPICH", ".mpich", []string{"mpiexec.mpich", "-n", "2"}, []string{"-bind-to", "core"}},
	{"Open MPI", ".openmpi", []string{"mpiexec.openmpi", "--oversubscribe", "-n", "2"},
		[]string{"--bind-to", "core"}},
}

func (b *bench) program(name string) string { return filepath.Join(b.build, "bench", name) }

// ckptrun is the beginning of a command that runs under it.
func (b *bench) ckptrun(options ...string) []string {
	return append([]string{filepath.Join(b.build, "bin", "ckptrun")}, options...)
}

func join(parts ...[]string) []string {
	var all []string
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// job compares a program natively and under ckptrun, as 2 ranks of each MPI. Ranks are bound: two that
// talk and are put on one processor, because a third process keeps the other one busy, would be
// measured as a scheduler.
func (b *bench) job(ctx context.Context, program, unit string, args []string, goals, ratios map[string]float64) ([]*comparison, error) {
	var all []*comparison
	for _, mpi := range implementations {
		call := append([]string{b.program(program + mpi.suffix)}, args...)
		launch := join(mpi.launch, mpi.bind)
		c := &comparison{Title: "2 ranks, " + mpi.name, Unit: unit, goals: goals, ratios: ratios, Ways: []way{
			{Name: "native", Command: join(launch, call)},
			{Name: "ckptrun", Command: join(launch, b.ckptrun("--"), call)},
		}}
		if err := c.measure(ctx, b, b.rounds); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func (b *bench) batchCount() []string { return []string{strconv.Itoa(b.batches)} }

func measureCrossing(ctx context.Context, b *bench) (*report, error) {
	gate := append([]string{b.program("gate")}, b.batchCount()...)
	bases := &comparison{Title: "two writes of the FS base", Unit: "ns", Ways: []way{
		{Name: "wrfsbase, twice", Command: join(gate, []string{"bases"})},
	}}
	if err := bases.measure(ctx, b, b.rounds); err != nil {
		return nil, err
	}
	raw := &comparison{Title: "the gate alone, no MPI", Unit: "ns", Ways: []way{
		{Name: "an indirect call", Command: gate},
		{Name: "through the gate", Command: join(b.ckptrun("--"), gate, []string{"gate"})},
	}}
	if err := raw.measure(ctx, b, b.rounds); err != nil {
		return nil, err
	}
	jobs, err := b.job(ctx, "crossing", "ns", b.batchCount(), nil, nil)
	return &report{
		Title: "Crossing into the lower half and back",
		Text: "The gate is what every call pays that cannot be answered in the upper half. It is compared with an " +
			"indirect call of a function that does nothing. Below it, calls of MPI that have to cross and find " +
			"nothing to do: natively they return at once, but for the last two, which look whether something has " +
			"come, as programs do that poll. `MPI_Send` is a non-blocking send and a wait in the lower half. Two writes of " +
			"the FS base, the application's and the MPI's own thread-local storage, are timed by themselves: a gate that " +
			"has to write it cannot be quicker than that.",
		Comparisons: append([]*comparison{raw, bases}, jobs...),
	}, err
}

func measureQuery(ctx context.Context, b *bench) (*report, error) {
	goals := map[string]float64{}
	for _, name := range []string{"MPI_Comm_rank", "MPI_Comm_size", "MPI_Type_size", "MPI_Initialized",
		"MPI_Get_count", "MPI_Wtime"} {
		goals[name] = goalQuery
	}
	jobs, err := b.job(ctx, "query", "ns", b.batchCount(), goals, nil)
	return &report{
		Title:       "Calls that only ask",
		Text:        "They are answered in the upper half, from the tables, without crossing. The loop around a call is part of the figure, on both sides.",
		Comparisons: jobs,
	}, err
}

func measureBlocking(ctx context.Context, b *bench) (*report, error) {
	jobs, err := b.job(ctx, "blocking", "ns", b.batchCount(), map[string]float64{
		// Two calls in a row are on the way of a round trip.
		"round trip, 8 bytes":           2 * goalBlocking,
		"MPI_Barrier":                   goalBlocking,
		"MPI_Allreduce, 8 bytes":        goalBlocking,
		"MPI_Allreduce, 8 bytes, alone": goalBlocking,
	}, map[string]float64{
		"round trip, 8 bytes":       1.12,
		"MPI_Barrier":               1.06,
		"MPI_Allreduce, 8 bytes":    1.10,
		"MPI_Ibarrier and MPI_Wait": 1.12,
	})
	return &report{
		Title: "Calls that wait for another rank",
		Text: "A round trip is `MPI_Send` and `MPI_Recv` on both ranks; two calls in a row are on its way, hence " +
			"twice the goal of one call. *Alone* and *to itself* are on a communicator of one: nobody is waited for, " +
			"so what is seen is the cost of the call, without that of two processors that talk. `MPI_Sendrecv` is " +
			"three calls of the real MPI, and has no goal.",
		Comparisons: jobs,
	}, err
}

func measureTriple(ctx context.Context, b *bench) (*report, error) {
	jobs, err := b.job(ctx, "triple", "ns", b.batchCount(), map[string]float64{
		"triple, 8 bytes":            goalTriple,
		"triple, 8 bytes, to itself": goalTriple,
	}, map[string]float64{"triple, 8 bytes": 1.5})
	return &report{
		Title:       "Irecv, Isend and Waitall",
		Text:        "One exchange of 8 bytes, three calls, two requests. *To itself* is on a communicator of one: nobody is waited for.",
		Comparisons: jobs,
	}, err
}

func measureWindow(ctx context.Context, b *bench) (*report, error) {
	jobs, err := b.job(ctx, "window", "ns", b.batchCount(), nil, nil)
	return &report{
		Title: "One-sided operations",
		Text: "On memory of `MPI_Win_allocate`, in an epoch of `MPI_Win_lock_all`. Between ranks of one node Open MPI " +
			"has such memory in common, and a put is a store; under ckptrun the same pages are mapped where the " +
			"program keeps them.",
		Comparisons: jobs,
	}, err
}

func measureSyscall(ctx context.Context, b *bench) (*report, error) {
	call := append([]string{b.program("syscall")}, b.batchCount()...)
	c := &comparison{Title: "system calls", Unit: "ns", Ways: []way{
		{Name: "native", Command: call},
		{Name: "seccomp", Command: join(b.ckptrun("--trap", "seccomp", "--"), call)},
		{Name: "sud", Command: join(b.ckptrun("--trap", "sud", "--"), call)},
	}}
	err := c.measure(ctx, b, b.rounds)
	return &report{
		Title: "System calls of the application",
		Text: "`getpid`, `mmap` and `munmap` are emulated. `getuid` and `write` are let through by seccomp, and " +
			"trapped by Syscall User Dispatch, which traps all. `clock_gettime` goes through the vDSO. `--trap " +
			"seccomp` is the default.",
		Comparisons: []*comparison{c},
	}, err
}

// measureSwitching shows what ranks pay that share a processor.
func measureSwitching(ctx context.Context, b *bench) (*report, error) {
	r := &report{
		Title: "Switches between ranks",
		Text: "Two ranks on one processor give it to each other with `sched_yield`: two switches, and no call of MPI. Then " +
			"three ranks on two processors meet in a barrier of Open MPI, which yields while it waits; MPICH does not, and " +
			"takes a time slice for each. Under ckptrun the base of GS is not 0. With FSGSBASE loading it is an instruction; " +
			"a virtual machine that hides FSGSBASE may have to ask its host each time, natively for FS alone, here for both. " +
			"Ranks that have a processor each switch seldom, and pay nothing of this.",
	}
	mpi := implementations[1]
	for _, job := range []struct{ title, ranks, what string }{
		{"2 ranks on one processor", "2", ""},
		{"3 ranks, unbound", "3", "crowded"},
	} {
		call := join([]string{b.program("switching" + mpi.suffix)}, b.batchCount())
		if job.what != "" {
			call = append(call, job.what)
		}
		launch := join(mpi.launch[:len(mpi.launch)-1], []string{job.ranks, "--bind-to", "none"})
		c := &comparison{Title: job.title + ", " + mpi.name, Unit: "ns", Ways: []way{
			{Name: "native", Command: join(launch, call)},
			{Name: "ckptrun", Command: join(launch, b.ckptrun("--"), call)},
		}}
		if err := c.measure(ctx, b, min(b.rounds, 9)); err != nil {
			return nil, err
		}
		r.Comparisons = append(r.Comparisons, c)
	}
	return r, nil
}
