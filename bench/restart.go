// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/libckpt/libckpt/ckpt/store"
)

// measureRestart compares the two ways in which memory comes back.
func measureRestart(ctx context.Context, b *bench) (*report, error) {
	r := &report{
		Title: "Restart: eager and lazy",
		Text: "2 ranks under MPICH are continued from what they have saved, with the images in the page cache of this system and " +
			"without. *First instruction* is the time from the start of `mpiexec` to the return of `MPIX_Checkpoint` on " +
			"the slowest rank, which is the first that a program can notice; *all read* that until every rank has read all its memory and found it " +
			"right. Images of 1 MiB show what else a restart takes: `mpiexec`, ckptrun and `MPI_Init`. " +
			"*Random* data cannot be compressed; *smooth* data is, with Snappy.",
	}
	sizes := []int{1, 64, 1024}
	if b.full {
		sizes = append(sizes, 4096)
	}
	if err := b.room([]*save{{MiB: sizes[len(sizes)-1]}}); err != nil {
		return nil, err
	}
	for _, mib := range sizes {
		for _, data := range []string{"random", "smooth"} {
			if mib == 1 && data == "smooth" {
				continue
			}
			c := &comparison{Title: fmt.Sprintf("%d MiB a rank, %s", mib, data), Unit: "ms",
				Ways: []way{{Name: "eager"}, {Name: "lazy"}, {Name: "eager, cold"}, {Name: "lazy, cold"}}}
			if err := b.restarting(ctx, c, mib, data); err != nil {
				return nil, err
			}
			r.Comparisons = append(r.Comparisons, c)
		}
	}
	return r, nil
}

// restarting saves a job once and continues it in every way, in turns.
func (b *bench) restarting(ctx context.Context, c *comparison, mib int, data string) error {
	const name = "ckpt"
	dir := filepath.Join(b.scratch, name)
	defer os.RemoveAll(dir)
	s := &save{MiB: mib}
	compress := "none"
	if data == "smooth" {
		compress = "snappy"
	}
	launch := implementations[0].launch
	program := []string{b.program("checkpoint" + implementations[0].suffix), strconv.Itoa(mib), data}
	if _, err := b.run(ctx, s.limit(), join(launch, b.ckptrun("--dir", name, "--compress", compress, "--"), program)); err != nil {
		return err
	}
	st, err := store.Open(dir)
	if err != nil {
		return err
	}
	epoch, err := st.Newest()
	if err != nil {
		return err
	}
	rounds := 2*b.saves + 1
	fmt.Printf("   %s: %d rounds of %d ways\n", c.Title, rounds, len(c.Ways))
	for round := range rounds {
		for k := range c.Ways {
			i := k
			if round%2 == 1 {
				i = len(c.Ways) - 1 - k
			}
			mode := []string{"eager", "lazy"}[i%2]
			if i >= 2 {
				for r := range ranksOfCheckpoint {
					if err := forget(st.ImagePath(epoch, r)); err != nil {
						return err
					}
				}
			}
			command := join(launch, b.ckptrun("--restart", name, "--restart-mode", mode))
			c.Ways[i].Shown = b.shown(command)
			answers, err := b.run(ctx, s.limit(), command)
			if err != nil {
				return err
			}
			var kept []answer
			for _, n := range [][2]string{{"restarted", "first instruction"}, {"checked", "all read"}} {
				v, err := need(answers, n[0])
				if err != nil {
					return fmt.Errorf("%s: %w", c.Ways[i].Shown, err)
				}
				kept = append(kept, answer{name: n[1], value: v * 1e9, least: v * 1e9})
			}
			if err := c.add(round, i, kept); err != nil {
				return err
			}
		}
	}
	return nil
}
