// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/libckpt/libckpt/ckpt/store"
)

// manyRanks is one epoch of a job of many ranks on this machine.
type manyRanks struct {
	Program string             `json:"program"`
	MPI     string             `json:"mpi"`
	Ranks   int                `json:"ranks"`
	Epoch   int                `json:"epoch"`
	Native  float64            `json:"native"`            // seconds that the program takes
	Under   float64            `json:"under"`             // seconds that it takes under ckptrun
	Failed  int                `json:"failed,omitempty"`  // native runs that failed before
	After   float64            `json:"after"`             // seconds that the program ran before it was asked, by chance
	Phases  map[string]float64 `json:"phases"`            // seconds, of the slowest rank
	Total   float64            `json:"total"`             // seconds from the request to the commit
	MiB     float64            `json:"mib"`               // of all images
	Restart float64            `json:"restart,omitempty"` // seconds from the start of the launcher until the job answers
}

// phaseNames are the columns of the table, in the order in which a checkpoint goes through them.
var phaseNames = []string{"agree", "close", "stop", "drain", "snapshot", "write"}

// limitOfMany is enough for a job of hundreds of ranks on two processors.
const limitOfMany = 10 * time.Minute

// measureRanks saves, kills and continues jobs of more ranks than this machine has processors.
func measureRanks(ctx context.Context, b *bench) (*report, error) {
	r := &report{
		Title: "Many ranks on one machine",
		Text: "Jobs of many ranks are saved at random moments, killed with the checkpoint and continued, twice; their result is that of a native " +
			"run, bit for bit, or this fails. *heat* is the example (1024 x 1024 cells in all), *pipeline* a ring with non-blocking reductions " +
			"under way at each moment (`internal/soak/programs/pipeline.c`). Times are of the slowest rank, in seconds: agree and stop hold " +
			"what ranks need to come to their next call of MPI, while hundreds of them share the processors. *Restart* is the time from the start of the launcher until " +
			"the job answers `ckptctl`. What a safe state takes on as many processors as ranks is simulated by `go run ./bench/safestate -ranks N`. " +
			"256 ranks are measured with `RANKS=256` after the others, or with `FULL=1`; native runs of so many fail now and then (Open MPI " +
			"takes a rank whose end it hears of late for one that broke off), and are begun again.",
	}
	numbers := []int{16, 64, 128}
	if b.full {
		numbers = append(numbers, 256)
	}
	if b.ranks != 0 {
		numbers = []int{b.ranks}
		var err error
		if r.Many, err = rowsOfOthers(filepath.Join(b.results, "ranks.json"), b.ranks); err != nil {
			return nil, err
		}
	}
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for i, mpi := range implementations {
		name := strings.TrimPrefix(mpi.suffix, ".")
		for _, n := range numbers {
			if i == 0 && (n > 16 || b.ranks != 0) {
				continue // ranks of MPICH wait without giving way to others
			}
			heat := []string{filepath.Join(b.build, "examples", "heat."+name), filepath.Join(b.build, "..", "examples/heat/heat.par"),
				"rows=1024", "columns=1024", "checkpoint_every=1000000", "steps=" + strconv.Itoa(400+16000/n)}
			pipeline := []string{filepath.Join(b.build, "soak", "pipeline."+name), strconv.Itoa(100 + 16000/n), "10000"}
			for _, program := range [][]string{heat, pipeline} {
				rows, err := b.manyRanks(ctx, random, mpi, n, program)
				r.Many = append(r.Many, rows...)
				if err != nil {
					// What was measured until then took half an hour, and is no less true.
					err = fmt.Errorf("%d ranks under %s: %w", n, name, err)
					what, _, _ := strings.Cut(err.Error(), "\n")
					r.Partial, r.Text = len(r.Many) > 0, r.Text+"\n\nThis run is not complete: "+what
					return r, err
				}
			}
		}
	}
	return r, nil
}

// rowsOfOthers are the rows of an earlier run that are not of n ranks.
func rowsOfOthers(path string, n int) ([]*manyRanks, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var was report
	if err := json.Unmarshal(data, &was); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return slices.DeleteFunc(was.Many, func(row *manyRanks) bool { return row.Ranks == n }), nil
}

// manyRanks runs a program natively, and as a job that is killed and continued twice.
func (b *bench) manyRanks(ctx context.Context, random *rand.Rand, mpi implementation, n int, program []string) ([]*manyRanks, error) {
	const times = 2
	name := strings.TrimSuffix(filepath.Base(program[0]), mpi.suffix)
	launch := slices.Clone(mpi.launch)
	for i := range launch {
		if launch[i] == "-n" {
			launch[i+1] = strconv.Itoa(n)
		}
	}
	const tries = 5
	var begun time.Time
	var want []byte
	var failed int
	for {
		begun = time.Now()
		var err error
		if want, err = b.exec(ctx, limitOfMany, join(launch, program)); err == nil {
			break
		}
		fmt.Printf("   %s, %d ranks, natively: %v\n", name, n, err)
		if failed++; failed == tries || ctx.Err() != nil {
			return nil, err
		}
	}
	natively := time.Since(begun)
	// Where ranks wait without giving way to others, ckptrun's way of waiting is many times as fast.
	begun = time.Now()
	if _, err := b.exec(ctx, limitOfMany, join(launch, b.ckptrun("--dir", "once", "--"), program)); err != nil {
		return nil, err
	}
	under := time.Since(begun)
	fmt.Printf("   %s, %d ranks under %s: %.1f s natively, %.1f s under ckptrun\n", name, n, strings.TrimPrefix(mpi.suffix, "."),
		natively.Seconds(), under.Seconds())

	const dir = "many"
	path := filepath.Join(b.scratch, dir)
	defer os.RemoveAll(path)
	var rows []*manyRanks
	command := join(launch, b.ckptrun("--dir", dir, "--"), program)
	var all []byte
	for k := 0; ; k++ {
		job, err := b.begin(ctx, command)
		if err != nil {
			return rows, err
		}
		if k == times {
			out, err := job.end()
			if all = append(all, out...); err != nil {
				return rows, err
			}
			break
		}
		up, err := b.answers(ctx, job, dir)
		if err != nil {
			return rows, err
		}
		if k > 0 {
			rows[k-1].Restart = up.Seconds()
		}
		after := time.Duration(random.Int64N(int64(max(0, under-up)/(2*times)) + 1))
		time.Sleep(after)
		if _, err := b.exec(ctx, limitOfMany, []string{filepath.Join(b.build, "bin/ckptctl"), "checkpoint", dir, "--then", "kill", "--timeout", "5m"}); err != nil {
			return rows, errors.Join(err, job.kill())
		}
		out, _ := job.end() // it was killed
		all = append(all, out...)
		row, err := manyEpoch(path)
		if err != nil {
			return rows, err
		}
		row.Program, row.MPI, row.Ranks, row.After = name, strings.TrimPrefix(mpi.suffix, "."), n, after.Seconds()
		row.Failed, row.Native, row.Under = failed, natively.Seconds(), under.Seconds()
		rows = append(rows, row)
		fmt.Printf("      epoch %d: %.2f s, %.0f MiB\n", row.Epoch, row.Total, row.MiB)
		command = join(launch, b.ckptrun("--restart", dir))
	}
	// A launcher that is killed with its job may add words of its own, on lines of their own.
	for line := range strings.Lines(string(want)) {
		if !strings.Contains(string(all), line) {
			return rows, fmt.Errorf("natively it prints %q, and the job that was continued has printed %q", line, tail(all))
		}
	}
	return rows, nil
}

// newestOf finds the newest epoch of a directory.
func newestOf(dir string) (*store.Store, int, *store.Manifest, error) {
	st, err := store.Open(dir)
	if err != nil {
		return nil, 0, nil, err
	}
	epoch, err := st.Newest()
	if err != nil {
		return nil, 0, nil, err
	}
	m, err := st.Manifest(epoch)
	return st, epoch, m, err
}

// manyEpoch is the newest epoch of a directory.
func manyEpoch(dir string) (*manyRanks, error) {
	_, epoch, m, err := newestOf(dir)
	if err != nil {
		return nil, err
	}
	row := &manyRanks{Epoch: epoch, Total: m.TotalSeconds, Phases: map[string]float64{}}
	for i := range m.Images {
		row.MiB += float64(m.Images[i].Bytes) / (1 << 20)
		for _, p := range m.Images[i].Phases {
			row.Phases[p.Name] = max(row.Phases[p.Name], p.Seconds)
		}
	}
	return row, nil
}

// liveJob is a job that goes on while it is looked at.
type liveJob struct {
	cmd    *exec.Cmd
	begun  time.Time
	ended  chan error
	out    bytes.Buffer
	errors bytes.Buffer
	shown  string
}

func (b *bench) begin(ctx context.Context, command []string) (*liveJob, error) {
	j := &liveJob{ended: make(chan error, 1), shown: b.shown(command)}
	j.cmd = exec.CommandContext(ctx, command[0], command[1:]...)
	j.cmd.Dir, j.cmd.Env = b.scratch, environment()
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.errors
	j.cmd.Cancel = func() error { return j.cmd.Process.Signal(syscall.SIGTERM) }
	j.cmd.WaitDelay = 10 * time.Second
	j.begun = time.Now()
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { j.ended <- j.cmd.Wait() }()
	return j, nil
}

// end waits for the end of the job, and returns what it has printed.
func (j *liveJob) end() ([]byte, error) {
	select {
	case err := <-j.ended:
		if err != nil {
			err = fmt.Errorf("%s: %w\n%s", j.shown, err, tail(j.errors.Bytes()))
		}
		return j.out.Bytes(), err
	case <-time.After(limitOfMany):
		return nil, errors.Join(fmt.Errorf("%s: not done after %v", j.shown, limitOfMany), j.kill())
	}
}

func (j *liveJob) kill() error {
	_ = j.cmd.Process.Signal(syscall.SIGTERM)
	return <-j.ended
}

// answers waits until the job of a directory answers, and returns how long that was.
func (b *bench) answers(ctx context.Context, j *liveJob, dir string) (time.Duration, error) {
	for time.Since(j.begun) < limitOfMany {
		if _, err := b.exec(ctx, limitOfRun, []string{filepath.Join(b.build, "bin/ckptctl"), "status", dir}); err == nil {
			return time.Since(j.begun), nil
		}
		select {
		case err := <-j.ended:
			return 0, fmt.Errorf("%s ended before it answered: %w\n%s", j.shown, err, tail(j.errors.Bytes()))
		case <-time.After(100 * time.Millisecond):
		}
	}
	return 0, errors.Join(fmt.Errorf("%s does not answer after %v", j.shown, limitOfMany), j.kill())
}

func tableOfMany(out *strings.Builder, rows []*manyRanks) {
	out.WriteString("\n")
	columns := []string{"program", "MPI", "ranks", "natively", "under ckptrun", "asked after"}
	head(out, slices.Concat(columns, phaseNames, []string{"committed", "MiB", "restart"})...)
	for _, m := range rows {
		native := number(m.Native)
		if m.Failed > 0 {
			native += fmt.Sprintf(" (%d failed)", m.Failed)
		}
		cells := []string{m.Program, m.MPI, strconv.Itoa(m.Ranks), native, number(m.Under), number(m.After)}
		for _, name := range phaseNames {
			cells = append(cells, number(m.Phases[name]))
		}
		restart := "" // the last one is not asked any more
		if m.Restart > 0 {
			restart = number(m.Restart)
		}
		line(out, append(cells, number(m.Total), number(m.MiB), restart)...)
	}
}
