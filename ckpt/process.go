// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"fmt"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/vid"
)

// Process is what this process was started for: by ckptrun, to run or to continue a program; or by others, with the
// library as a dependency. One thread calls its methods, in the order in which a process comes to life.
type Process struct {
	Host    Host // nil: not by ckptrun
	Options launch.Options
	Program launch.Program
	Log     *zap.Logger
	Restart *Restart // what is to be continued, until it is
	Job     *Job     // nil: nothing is saved
}

// Start is for a program that is about to run.
func (p *Process) Start() error {
	job, err := Start(p.Host, p.Options, p.Program, p.Log)
	if err != nil {
		return err
	}
	p.Job = job
	return nil
}

// Continue is for a program without MPI that is continued.
func (p *Process) Continue() error {
	next := Continue
	if p.Restart.Together() {
		next = continueTogether
	}
	job, err := next(p.Host, p.Options, p.Restart, p.Log)
	if err != nil {
		return err
	}
	p.Job = job
	return nil
}

// ContinueWhole is the first step of a restart in whole mode: memory, files and threads, and the ranks join. rt
// knows this rank, and can all-gather, by the launcher; the runtime itself is asked in Job.Reopen. Collective.
func (p *Process) ContinueWhole(rt Runtime, tables *vid.Tables) error {
	job, err := ContinueRuntime(p.Host, p.Options, p.Restart, rt, tables, p.Log)
	if err != nil {
		return err
	}
	p.Job = job
	return nil
}

// PlanRestart finds the epoch that --restart names, and waits until the job owns its directory. back is the MPI to
// start, where no launcher has named one.
func (p *Process) PlanRestart(getenv func(string) string) (back string, err error) {
	back, err = p.planRestart(getenv)
	return back, saidByRank0(p.Host, p.Options, err, p.Log)
}

func (p *Process) planRestart(getenv func(string) string) (back string, err error) {
	r, err := findRestart(p.Options)
	if err != nil {
		return "", err
	}
	if r.Regions() {
		return "", r.errRegions()
	}
	if r.Whole() { // rank 0 takes the directory when the processes have met, before anything is touched
		p.Restart, p.Options.Whole = r, true
		if _, err := store.Create(p.Options.Dir); err != nil { // the processes may meet there
			return "", err
		}
		if n := launch.WholeRanks(getenv); n > 0 {
			return "", r.CheckRanks(n)
		}
		return "", nil
	}
	if p.Options.Whole {
		return "", fmt.Errorf("epoch %d of %s is of a program whose MPI was not saved with it: leave --whole out", r.manifest.Epoch, r.store.Dir())
	}
	if r.Together() { // they meet before anything is touched
		if n := p.Options.Ranks; n > 0 && n != r.Ranks() {
			return "", r.CheckRanks(n)
		}
		if _, err := store.Create(p.Options.Dir); err != nil {
			return "", err
		}
		p.Restart, p.Options.Ranks = r, r.Ranks()
		return "", nil
	}
	if p.Options.Several() {
		return "", r.errRanks()
	}
	if n := launch.LauncherRanks(getenv); n > 0 || !r.MPI() {
		if err := r.CheckRanks(max(n, 1)); err != nil {
			return "", err
		}
	}
	// This comes before anything else, for an MPI job before MPI is started, so that a refused job has touched
	// nothing.
	switch rank := launch.LauncherRank(getenv); {
	case !r.MPI() || p.Options.MPI == "" || rank == 0:
		err = r.Own(p.Host, p.Options, p.Log)
	case rank > 0:
		err = r.AwaitOwner(p.Options, p.Log)
	}
	if err != nil {
		return "", err
	}
	if r.MPI() && p.Options.MPI == "" { // not under a launcher: a job of one rank can be continued alone
		if r.Ranks() > 1 {
			r.Disown()
			return "", fmt.Errorf("the job has %d ranks; run `mpiexec -n %d ckptrun --restart %s`", r.Ranks(), r.Ranks(), p.Options.Restart)
		}
		back = r.MPIName()
	}
	p.Restart = r
	return back, nil
}

// Open makes the process a rank of the runtime. Collective. bind has the runtime bind its predefined objects; it
// may call into the job already.
//
//	not by ckptrun     bind: virtual ids and counters work, nothing is saved
//	a program begins   bind, then the ranks join
//	one is continued   memory, files and threads, and the ranks join; then bind, in memory that is the image's;
//	                   then all other objects are made again
func (p *Process) Open(rt Runtime, tables *vid.Tables, bind func() error) error {
	if err := p.ofLauncher(rt); err != nil {
		return err
	}
	if p.Restart == nil {
		if err := bind(); err != nil || p.Job == nil {
			return err
		}
		return p.Job.OpenRuntime(rt, tables)
	}
	job, err := ContinueRuntime(p.Host, p.Options, p.Restart, rt, tables, p.Log)
	if err != nil {
		return err
	}
	p.Job, p.Restart = job, nil
	if err := bind(); err != nil {
		return err
	}
	return job.RebuildObjects()
}

// ofLauncher refuses an MPI that did not find the launcher's other ranks: each rank would be a job of its own, in the same
// directory.
func (p *Process) ofLauncher(rt Runtime) error {
	n := launch.LauncherRanks(os.Getenv)
	if p.Options.Whole || rt == nil || rt.Ranks() != 1 || n <= 1 {
		return nil
	}
	err := fmt.Errorf("the launcher started %d ranks, and the MPI below, %s (%s), sees one rank alone in each: launcher and MPI do not "+
		"match. Start the job with the mpiexec of that MPI, or name the launcher's MPI with --mpi (ckptctl back list shows which there are)",
		n, rt.Name(), shortVersion(rt.Version()))
	if launch.LauncherRank(os.Getenv) > 0 {
		// Rank 0 says it, if it lives: a launcher ends all ranks when the first of them has ended.
		time.Sleep(sayFirst)
		return &SaidError{err}
	}
	return err
}

// sayFirst is how long the other ranks wait before they end. Nothing but the sentence depends on it: a job that cannot run ends either way.
const sayFirst = 3 * time.Second

// shortVersion finds "4.0.2" in what MPI_Get_library_version says.
func shortVersion(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	for _, word := range strings.Fields(line) {
		word = strings.Trim(strings.TrimPrefix(word, "v"), ",")
		if word != "" && word[0] >= '0' && word[0] <= '9' {
			return word
		}
	}
	return strings.TrimSpace(line)
}
