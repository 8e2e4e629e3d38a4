// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
)

// goalCounting is what the clock and the bookmarks may cost, in nanoseconds a call over the crossing.
const goalCounting = 5

// measureCounting compares the back with one that is compiled without clock and bookmarks (module.mk).
func measureCounting(ctx context.Context, b *bench) (*report, error) {
	r := &report{
		Title: "Clock and bookmarks",
		Text: "What a call pays for being counted, so that a checkpoint finds no collective half done and no message " +
			"forgotten. The same program runs on two backs: one counts, the other was compiled without, and can save " +
			"nothing. Nobody is waited for. A pair of calls, and three, may cost twice and three times as much as one.",
	}
	for _, mpi := range implementations {
		run := func(back string) []string {
			return join([]string{mpi.launch[0]}, mpi.launch[1:len(mpi.launch)-2], []string{"-n", "1"}, mpi.bind,
				b.ckptrun("--mpi", back, "--"), []string{b.program("counting" + mpi.suffix)}, b.batchCount())
		}
		name := "libckptback-" + mpi.suffix[1:]
		c := &comparison{Title: "1 rank, " + mpi.name, Unit: "ns", Ways: []way{
			{Name: "crossing only", Command: run(filepath.Join(b.build, "bench", name+"-uncounted.so"))},
			{Name: "counted", Command: run(filepath.Join(b.build, "lib", "ckpt", "back", name+".so"))},
		}, goals: map[string]float64{
			"MPI_Barrier, alone":                              goalCounting,
			"MPI_Bcast, 4 bytes, alone":                       goalCounting,
			"MPI_Allreduce, 4 bytes, alone":                   goalCounting,
			"MPI_Ibarrier and MPI_Wait, alone":                2 * goalCounting,
			"MPI_Sendrecv, 4 bytes, to itself":                goalCounting,
			"MPI_Irecv, MPI_Isend and MPI_Waitall, to itself": 3 * goalCounting,
		}}
		if err := c.measure(ctx, b, b.rounds); err != nil {
			return nil, err
		}
		r.Comparisons = append(r.Comparisons, c)
	}
	return r, nil
}

// measureSafeState compares the ways in which a job gets to a safe state, while none is asked for.
func measureSafeState(ctx context.Context, b *bench) (*report, error) {
	r := &report{
		Title: "The clock, two-phase commit, and neither",
		Text: "What a job pays, while no checkpoint is asked for, so that one can be made at any moment. `2pc` is the older " +
			"way, a barrier in front of every blocking collective call; it has none in front of non-blocking ones and " +
			"messages. A broadcast does not wait for its receivers; that barrier does.",
	}
	for _, mpi := range implementations {
		call := append([]string{b.program("safestate" + mpi.suffix)}, b.batchCount()...)
		launch := join(mpi.launch, mpi.bind)
		c := &comparison{Title: "2 ranks, " + mpi.name, Unit: "ns", Ways: []way{
			{Name: "native", Command: join(launch, call)},
			{Name: "2pc", Command: join(launch, b.ckptrun("--safe-state", "2pc", "--"), call)},
			{Name: "clock", Command: join(launch, b.ckptrun("--"), call)},
		}}
		if err := c.measure(ctx, b, b.rounds); err != nil {
			return nil, err
		}
		r.Comparisons = append(r.Comparisons, c)
	}
	return r, nil
}

func measureGroups(ctx context.Context, b *bench) (*report, error) {
	jobs, err := b.job(ctx, "groups", "ns", b.batchCount(), nil, nil)
	return &report{
		Title: "Calls of each group",
		Text: "One or two calls of each group of MPI. Groups, attributes and names of objects live in the upper half; " +
			"making a datatype or a communicator also writes down how to make it again, and a communicator of several ranks " +
			"has a clock.",
		Comparisons: jobs,
	}, err
}
