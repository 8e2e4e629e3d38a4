// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"os"
)

const (
	// goalVerbs is what a post or a poll may cost more than natively.
	goalVerbs = 50
	// roundsOfHeld is how often the runs are made that save or continue a whole process.
	roundsOfHeld = 5
)

// measureVerbs compares calls of libibverbs, on the adapter in software; its bed needs root.
func measureVerbs(ctx context.Context, b *bench) (*report, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	v := &verbsBench{bench: b, bed: []string{filepath.Join(here, "scripts/verbs-bed.sh"), filepath.Join(b.scratch, "bed"), filepath.Join(b.build, "obj/verbs/libckptsoft-rdmav34.so")}}
	r := &report{
		Title: "InfiniBand verbs",
		Text: "A receive is posted, and a completion taken that is there, without any network. The rest goes through the adapter in " +
			"software and back: posting, moving the bytes over TCP within the process, and polling until it has ended. Real adapters were not there.\n\n" +
			"*Over TCP* stands for what a job does where there is no InfiniBand, beside sockets of a plain program. *MPIX_Checkpoint* is what the call takes " +
			"in a process with so much memory on pages of 4 KiB, which it has registered or not: the median of five, and the least and the largest. Its image is " +
			"written while it goes on, and the next call comes when that is committed. " +
			"*First instruction* is the time from the start of ckptrun to that of the continued program, with so many queue pairs, all of them connected.\n\n" +
			"The goal of bandwidth, 0.99 of native, is not judged here: the adapter in software makes its system calls in the program's process, through " +
			"ckptrun's filter, which no other adapter does. `bench/verbs-vm.sh` measures it above a kernel's adapter (`verbs-vm-bandwidth.txt`).",
	}
	call := append([]string{b.program("verbs")}, b.batchCount()...)
	tcp := []string{"env", "CKPT_VERBS=tcp"}
	calls := &comparison{Title: "one process, two queue pairs", Unit: "ns", goals: map[string]float64{"post a receive": goalVerbs, "poll a completion": goalVerbs}, Ways: []way{
		{Name: "native", Command: join(v.bed, call)},
		{Name: "ckptrun", Command: join(v.bed, b.ckptrun("--"), call)},
		{Name: "ckptrun, over TCP", Command: join(v.bed, tcp, b.ckptrun("--"), call)},
	}}
	trips := &comparison{Title: "there, and an answer back", Unit: "ns", Ways: []way{
		{Name: "sockets", Command: join(v.bed, []string{b.program("tcp")}, b.batchCount())},
		{Name: "verbs over TCP", Command: join(v.bed, tcp, b.ckptrun("--"), call, []string{"trips"})},
	}}
	for _, c := range []*comparison{calls, trips} {
		if err := c.measure(ctx, b, b.rounds); err != nil {
			return nil, err
		}
		r.Comparisons = append(r.Comparisons, c)
	}
	for _, mib := range []int{0, 64, 1024} {
		c, err := v.stop(ctx, mib)
		if err != nil {
			return nil, err
		}
		r.Comparisons = append(r.Comparisons, c)
	}
	for _, n := range []int{1, 64, 1024} {
		c, err := v.again(ctx, n)
		if err != nil {
			return nil, err
		}
		r.Comparisons = append(r.Comparisons, c)
	}
	return r, nil
}

type verbsBench struct {
	*bench
	bed []string
}

func (v *verbsBench) held(argv ...string) []string {
	return append([]string{v.program("verbsheld")}, argv...)
}

// stop is how long a checkpoint stops a process with so much memory, by whether it is registered.
func (v *verbsBench) stop(ctx context.Context, mib int) (*comparison, error) {
	c := &comparison{Title: fmt.Sprintf("a checkpoint of a process with %d MiB", mib), Unit: "ms"}
	for _, how := range []string{"plain", "registered"} {
		fresh := []string{"sh", "-c", `rm -rf held && exec "$@"`, "-"}
		c.Ways = append(c.Ways, way{Name: how, Command: join(v.bed, fresh, v.ckptrun("--dir", "held", "--keep", "1", "--"), v.held("memory", "held", strconv.Itoa(mib), how))})
	}
	return c, c.measure(ctx, v.bench, min(v.rounds, roundsOfHeld))
}

// again is how long a restart takes that makes so many queue pairs.
func (v *verbsBench) again(ctx context.Context, n int) (*comparison, error) {
	c := &comparison{Title: fmt.Sprintf("a restart with %d queue pairs", n), Unit: "ms", Ways: []way{{Name: "adapter"}, {Name: "over TCP"}}}
	dir := fmt.Sprint("pairs-", n)
	if _, err := v.run(ctx, limitOfRun, join(v.bed, v.ckptrun("--dir", dir, "--"), v.held("pairs", strconv.Itoa(n)))); err != nil {
		return nil, err
	}
	rounds := min(v.rounds, roundsOfHeld)
	fmt.Printf("   %s: %d rounds of %d ways\n", c.Title, rounds, len(c.Ways))
	for round := range rounds {
		for k := range c.Ways {
			i := (k + round) % len(c.Ways)
			command := join(v.bed, []string{"env", "CKPT_VERBS=" + []string{"ibv", "tcp"}[i]}, v.held("clock"), v.ckptrun("--restart", dir))
			c.Ways[i].Shown = v.shown(command)
			answers, err := v.run(ctx, limitOfRun, command)
			if err != nil {
				return nil, err
			}
			if len(answers) != 2 {
				return nil, fmt.Errorf("%s: %d answers", c.Ways[i].Shown, len(answers))
			}
			took := answers[1].value - answers[0].value
			if err := c.add(round, i, []answer{{name: "first instruction", value: took, least: took}}); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}
