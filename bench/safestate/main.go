// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
)

func main() {
	ranks := flag.Int("ranks", 1024, "ranks of the job (a square number for the grid)")
	patterns := flag.String("patterns", "world,grid,nested,nestedx", "what they do")
	mean := flag.Float64("compute", 1000, "mean time between operations, in microseconds")
	sigma := flag.Float64("sigma", 0.3, "spread of that time")
	seed := flag.Uint64("seed", 1, "seed of everything random")
	flag.Parse()
	if *ranks < 2 || *mean <= 0 || *sigma < 0 {
		fmt.Fprintln(os.Stderr, "safestate: -ranks must be 2 or more, -compute positive, -sigma not negative")
		os.Exit(2)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "pattern\tranks\tcomms\tunmet\tready us\tsafe us\ttail us\trounds\tin tail\tmsgs/rank\tgated\t| published: safe us\tparked us/rank\traise msgs/rank\t")
	for _, name := range strings.Split(*patterns, ",") {
		line, err := compare(name, *ranks, *seed, *mean, *sigma)
		if err != nil {
			fmt.Fprintln(os.Stderr, "safestate:", err)
			os.Exit(1)
		}
		fmt.Fprintln(w, line)
	}
	if err := w.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, "safestate:", err)
		os.Exit(1)
	}
}

// compare simulates one job with both protocols and returns a line of the table.
func compare(pattern string, ranks int, seed uint64, mean, sigma float64) (string, error) {
	j, err := newJob(pattern, ranks, seed)
	if err != nil {
		return "", err
	}
	s := newSim(j, seed, mean, sigma)
	r := newRefined(s)
	s.run(r)
	if !s.done {
		return "", fmt.Errorf("pattern %s: the refined protocol did not reach a safe state", pattern)
	}
	n := float64(ranks)
	line := fmt.Sprintf("%s\t%d\t%d\t%d\t%.0f\t%.0f\t%.0f\t%d\t%d\t%.1f\t%d\t", pattern, ranks, len(j.comms), s.parted,
		r.ready-r.asked, r.safe-r.asked, r.safe-r.ready, r.endRound, r.endRound-r.readyRound, float64(r.messages)/n, s.beyond)
	s = newSim(j, seed, mean, sigma)
	p := newPublished(s)
	s.run(p)
	if !p.reached {
		return line + "stuck\t-\t-\t", nil
	}
	return line + fmt.Sprintf("%.0f\t%.0f\t%.2f\t", p.safe-p.asked, float64(p.idle)/n, float64(p.messages)/n), nil
}
