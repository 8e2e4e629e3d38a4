// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// goalOfTracking is what following writes may cost while nothing is saved.
const goalOfTracking = 1.01

// asked is what bench/programs/tracking.c asks before and after, in its order. The last one makes system calls.
var asked = []string{"a word of each page", "each word", "words here and there", "a page that is mapped, written and given back"}

// What it answers before the second time it is asked; all but the time until pages are huge again are of a write.
const (
	firstTouch = "a page for the first time"
	untilHuge  = "until pages are huge again"
)

// measureTracking has a process write to its memory after epochs, with its writes followed and not.
func measureTracking(ctx context.Context, b *bench) (*report, error) {
	const mib = 128
	const dir = "ckpt"
	r := &report{
		Title: "What following writes costs while nothing is saved",
		Text: fmt.Sprintf("A process with %d MiB, on small pages or on huge ones, is saved three times; when the last epoch is committed it writes "+
			"to its memory. *Busy* memory is written to before each epoch, *calm* memory is not. *native* is without ckptrun, *not followed* under ckptrun with full epochs only, *digest* and *auto* with `--full every 8` "+
			"and `--changes digest`, for which nothing is done while nothing is saved, and `auto`, where the kernel notes writes "+
			"(a userfaultfd with write protection, read by PAGEMAP_SCAN; `ckptctl doctor` says whether this kernel can). *%s* is the pass right after the commit, in which what "+
			"the frozen copy left behind goes, too. Huge pages that were noted as not written are many small ones after that, until ckptrun makes them huge again, for which it takes a "+
			"hundredth of a processor, from a second after the commit on: *%s* is how long that takes. The others are later passes. The goal is about these: at most %.2f times "+
			"what they take where writes are not followed. Where its pages are makes one process quicker than another, so each asks the same before its first epoch, too: "+
			"compared is by how much the quickest batch became slower in a process, in neighbours of a round; medians.", mib, firstTouch, untilHuge, goalOfTracking),
	}
	type mode struct {
		name    string
		options []string // nil: natively
	}
	modes := []mode{
		{"native", nil},
		{"not followed", []string{"--full", "every", "1"}},
		{"digest", []string{"--full", "every", "8", "--changes", "digest"}},
		{"auto", []string{"--full", "every", "8", "--changes", "auto"}},
	}
	for _, memory := range [][2]string{{"small", "busy"}, {"huge", "busy"}, {"huge", "calm"}} {
		g := &grid{Title: fmt.Sprintf("%d MiB on %s pages, %s", mib, memory[0], memory[1]), Keys: []string{"writes"}}
		names := append([]string{firstTouch, untilHuge}, asked...)
		for _, q := range names {
			unit := ", ns"
			if q == untilHuge {
				unit = ", s"
			}
			g.Columns = append(g.Columns, q+unit)
		}
		var commands [][]string
		for _, m := range modes {
			command := []string{b.program("tracking"), "40", strconv.Itoa(mib), memory[0], memory[1]}
			if m.options != nil {
				command = join(b.ckptrun("--dir", dir), m.options, []string{"--"}, command, []string{dir})
			}
			commands = append(commands, command)
			g.Rows = append(g.Rows, &gridRow{Keys: []string{m.name}, Commands: []string{b.shown(command)}})
		}
		slower := make([][]series, len(modes)) // of each way and question, one a round
		for i := range slower {
			slower[i] = make([]series, len(asked))
		}
		err := g.measure(ctx, b.roundsOfGrids(), func(ctx context.Context, i int) ([]float64, error) {
			defer os.RemoveAll(filepath.Join(b.scratch, dir))
			answers, err := b.run(ctx, limitOfRun, commands[i])
			if err != nil {
				return nil, err
			}
			var figures []float64
			for k, a := range answers {
				if k < len(asked) {
					if a.name != "before: "+asked[k] {
						return nil, fmt.Errorf("answers %q, where %q is asked before the first epoch", a.name, asked[k])
					}
					continue
				}
				n := k - len(asked)
				if n >= len(names) || a.name != names[n] {
					return nil, fmt.Errorf("answers %q, where %q are asked", a.name, names)
				}
				if q := n - (len(names) - len(asked)); q >= 0 {
					slower[i][q] = append(slower[i][q], a.least/answers[q].least)
				}
				figures = append(figures, a.value)
			}
			return figures, nil
		})
		if err != nil {
			return nil, err
		}
		base := slices.IndexFunc(modes, func(m mode) bool { return m.name == "not followed" })
		for i := base + 1; i < len(modes); i++ {
			for k, q := range asked {
				g.Judged = append(g.Judged, judgement{What: modes[i].name + ", " + q, Got: pairwise(slower[i][k], slower[base][k], over).median(), Most: goalOfTracking})
			}
		}
		r.Grids = append(r.Grids, g)
	}
	return r, nil
}
