// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
)

// goalVerbs is what a post or a poll may cost more than natively.
const goalVerbs = 50

// measureVerbs compares calls of libibverbs, on the adapter in software; its bed needs root.
func measureVerbs(ctx context.Context, b *bench) (*report, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	bed := []string{filepath.Join(here, "scripts/verbs-bed.sh"), filepath.Join(b.scratch, "bed"), filepath.Join(b.build, "obj/verbs/libckptsoft-rdmav34.so")}
	call := append([]string{b.program("verbs")}, b.batchCount()...)
	c := &comparison{Title: "one process, two queue pairs", Unit: "ns", goals: map[string]float64{"post a receive": goalVerbs, "poll a completion": goalVerbs}, Ways: []way{
		{Name: "native", Command: join(bed, call)},
		{Name: "ckptrun", Command: join(bed, b.ckptrun("--"), call)},
		{Name: "ckptrun, over TCP", Command: join(bed, []string{"env", "CKPT_VERBS=tcp"}, b.ckptrun("--"), call)},
	}}
	err = c.measure(ctx, b, b.rounds)
	return &report{
		Title: "InfiniBand verbs",
		Text: "A receive is posted, and a completion taken that is there, without any network. The rest goes through the adapter in " +
			"software and back: posting, moving the bytes over TCP within the process, and polling until it has ended. Real adapters were not there.",
		Comparisons: []*comparison{c},
	}, err
}
