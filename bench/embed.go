// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// measureEmbed is about runtimes that link libckpt and are saved with their program (ckptrun --whole).
func measureEmbed(ctx context.Context, b *bench) (*report, error) {
	r := &report{
		Title: "Runtimes that link libckpt",
		Text: "What the calls on the way of a message cost a runtime; how soon its tasks meet in a checkpoint; and how long " +
			"one stops a program that is saved with its runtime, rails and all. *Stopped* is the time inside " +
			"`ckpt_checkpoint` or `MPIX_Checkpoint` on the slowest of 2 processes, each with 64 MiB that cannot be " +
			"compressed. The rail is a mesh of TCP connections, each process with each: *closed* is the time from " +
			"`quiesce` to the end of `close` on the slowest process, *opened again* that from the beginning of " +
			"`reopen` to its end, an all-gather of ports among it. More processes than processors wait for each other.",
	}
	embedded := b.program("embedded")
	election := &comparison{Title: "election among three rails", Unit: "ns", Ways: []way{
		{Name: "a call", Command: join([]string{b.program("elect")}, b.batchCount())},
	}}
	calls := &comparison{Title: "calls while nothing is asked for", Unit: "ns", Ways: []way{
		{Name: "by itself", Command: join([]string{embedded, "calls"}, b.batchCount())},
		{Name: "ckptrun --whole", Command: join(b.ckptrun("--whole", "--"), []string{embedded, "calls"}, b.batchCount())},
	}}
	comparisons := []*comparison{election, calls}
	tmpirun := filepath.Join(b.build, "examples", "tmpi", "tmpirun")
	for _, shape := range []struct{ processes, tasks int }{{1, 64}, {4, 16}, {1, 512}, {4, 128}} {
		comparisons = append(comparisons, &comparison{
			Title: fmt.Sprintf("%d ranks in %d processes", shape.processes*shape.tasks, shape.processes),
			Unit:  "us",
			Ways: []way{{Name: "a call", Command: []string{tmpirun, "-n", strconv.Itoa(shape.processes), "-r", strconv.Itoa(shape.tasks),
				b.program("embedded-levels"), "levels", "100"}}},
		})
	}
	for _, c := range comparisons {
		if err := c.measure(ctx, b, b.rounds); err != nil {
			return nil, err
		}
		r.Comparisons = append(r.Comparisons, c)
	}

	stops := &comparison{Title: "a checkpoint of 2 processes of 64 MiB", Unit: "ms", Ways: []way{
		{Name: "split, MPICH"}, {Name: "whole"},
	}}
	split := join(implementations[0].launch, b.ckptrun("--dir", "DIR", "--"), []string{b.program("checkpoint" + implementations[0].suffix), "64", "random"})
	if err := b.stopping(ctx, stops, [][]string{split, b.mesh(2, 64)}, []string{"stopped"}); err != nil {
		return nil, err
	}
	r.Comparisons = append(r.Comparisons, stops)
	for _, n := range []int{4, 8, 16, 32} {
		c := &comparison{Title: fmt.Sprintf("a mesh of %d processes", n), Unit: "ms", Ways: []way{{Name: "whole"}}}
		if err := b.stopping(ctx, c, [][]string{b.mesh(n, 1)}, []string{"stopped", "rails closed after quiesce", "rails opened again"}); err != nil {
			return nil, err
		}
		r.Comparisons = append(r.Comparisons, c)
	}
	return r, nil
}

// mesh is a job of the program embedded; DIR and MEET are new folders in each run.
func (b *bench) mesh(processes, mib int) []string {
	return join([]string{"mpiexec.mpich", "-n", strconv.Itoa(processes)}, b.ckptrun("--whole", "--dir", "DIR", "--"),
		[]string{b.program("embedded"), "mesh", "MEET", strconv.Itoa(mib)})
}

// stopping measures a comparison whose commands each need folders of their own, and keeps the answers that are named.
func (b *bench) stopping(ctx context.Context, c *comparison, commands [][]string, names []string) error {
	rounds := 2*b.saves + 1
	fmt.Printf("   %s: %d rounds of %d ways\n", c.Title, rounds, len(commands))
	for round := range rounds {
		for k := range commands {
			i := k
			if round%2 == 1 {
				i = len(commands) - 1 - k
			}
			c.Ways[i].Shown = b.shown(commands[i])
			answers, err := b.inFolders(ctx, commands[i])
			if err != nil {
				return err
			}
			var kept []answer
			for _, name := range names {
				v, err := need(answers, name)
				if err != nil {
					return fmt.Errorf("%s: %w", c.Ways[i].Shown, err)
				}
				kept = append(kept, answer{name: name, value: v * 1e9, least: v * 1e9})
			}
			if err := c.add(round, i, kept); err != nil {
				return err
			}
		}
	}
	return nil
}

// inFolders runs a command with folders in the place of DIR and MEET.
func (b *bench) inFolders(ctx context.Context, command []string) ([]answer, error) {
	scratch, err := os.MkdirTemp(b.scratch, "run-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	command = append([]string{}, command...)
	for i, word := range command {
		switch word {
		case "DIR":
			command[i] = filepath.Join(scratch, "ckpt")
		case "MEET":
			command[i] = scratch
		}
	}
	return b.run(ctx, limitOfRun, command)
}
