// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// measureSamePages compares the two ways to save what ranks of a node have the same.
func measureSamePages(ctx context.Context, b *bench) (*report, error) {
	r := &report{
		Title: "Pages that ranks have the same",
		Text: "Ranks under MPICH, all on one node, are saved with `--same-pages once`, where the image of the first one has the pages that all have the same at an " +
			"address and those of the others refer to it, and with `each`, where every image has all of its own; and continued from that. " +
			"*Random* data differ from rank to rank, so that only libraries are the same; *alike* data are the same on all ranks. None can be compressed.\n\n" +
			"*Stopped* is the time inside `MPIX_Checkpoint` on the slowest rank, *committed* that from the request to the commit, all " +
			"images synced; *images* are all of the epoch. *First* is the time from the start of `mpiexec` to the return of `MPIX_Checkpoint` on the " +
			"slowest rank, *all read* that until every rank has read all its memory and found it right; *cold* with the images " +
			"dropped from the page cache of this system.",
	}
	for _, c := range []struct{ ranks, mib int }{{2, 256}, {4, 256}} {
		if err := b.room([]*save{{MiB: c.mib * c.ranks / ranksOfCheckpoint}}); err != nil {
			return nil, err
		}
		g := &grid{Title: fmt.Sprintf("%d ranks of %d MiB", c.ranks, c.mib), Keys: []string{"data", "same pages"},
			Columns: []string{"stopped, ms", "committed, s", "images, MiB", "first, s", "all read, s", "cold first, s", "cold all read, s"}}
		var jobs []samePages
		for _, data := range []string{"random", "alike"} {
			for _, how := range []string{"each", "once"} {
				j := samePages{b, c.ranks, c.mib, data, how}
				jobs = append(jobs, j)
				g.Rows = append(g.Rows, &gridRow{Keys: []string{data, how}, Commands: []string{b.shown(j.save()), b.shown(j.restart())}})
			}
		}
		if err := g.measure(ctx, b.roundsOfGrids(), func(ctx context.Context, i int) ([]float64, error) { return jobs[i].round(ctx) }); err != nil {
			return nil, err
		}
		r.Grids = append(r.Grids, g)
	}
	return r, nil
}

// samePages is one way to save one job.
type samePages struct {
	b          *bench
	ranks, mib int
	data, how  string
}

func (s *samePages) launch() []string { return []string{"mpiexec.mpich", "-n", strconv.Itoa(s.ranks)} }

func (s *samePages) save() []string {
	return join(s.launch(), s.b.ckptrun("--dir", dirOfLevels, "--same-pages", s.how, "--compress", "none", "--"),
		[]string{s.b.program("checkpoint.mpich"), strconv.Itoa(s.mib), s.data})
}

func (s *samePages) restart() []string {
	return join(s.launch(), s.b.ckptrun("--restart", dirOfLevels))
}

func (s *samePages) round(ctx context.Context) ([]float64, error) {
	dir := filepath.Join(s.b.scratch, dirOfLevels)
	defer os.RemoveAll(dir)
	answers, err := s.b.run(ctx, limitOfMany, s.save())
	if err != nil {
		return nil, err
	}
	stopped, err := need(answers, "stopped")
	if err != nil {
		return nil, err
	}
	st, epoch, m, err := newestOf(dir)
	if err != nil {
		return nil, err
	}
	bytes := int64(0)
	for i := range m.Images {
		bytes += m.Images[i].Bytes
	}
	figures := []float64{stopped * 1000, m.TotalSeconds, float64(bytes) / (1 << 20)}
	for _, cold := range []bool{false, true} {
		for i := range m.Images {
			if !cold {
				break
			}
			if err := forget(st.ImagePath(epoch, i)); err != nil {
				return nil, err
			}
		}
		answers, err := s.b.run(ctx, limitOfMany, s.restart())
		if err != nil {
			return nil, err
		}
		first, err1 := need(answers, "restarted")
		all, err2 := need(answers, "checked")
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		figures = append(figures, first, all)
	}
	return figures, nil
}
