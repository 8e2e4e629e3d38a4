// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/attributes"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/regions"
	"github.com/libckpt/libckpt/ckpt/snapshot"
	"github.com/libckpt/libckpt/ckpt/sockets"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/vid"
)

// Regions mode: a process that ckptrun has not started saves memory that its runtime names, rank by rank, and nothing
// else of itself. The way of a checkpoint is that of an embedded runtime (embedded.go), but for its end: threads are
// not stopped, since the runtime says by Quiesce that no rank runs, and an image has the pages of ranks in place of a
// process. A restart is a start: the runtime opens the job, asks which ranks there are, and takes them one by one.

// modeRegions is what manifests and images say of it.
const (
	modeRegions = "regions"
	abiRegions  = "regions"
)

// regional is what a job in regions mode has.
type regional struct {
	set   *regions.Set
	self  regions.Program
	saved *saved // the epoch that is continued; nil: a fresh start
	named *named // the program names its state, and there is nothing of the above; else nil
}

// saved is a committed epoch from which ranks are taken.
type saved struct {
	restart *Restart

	mu     sync.Mutex
	images map[int]*savedImage // by their numbers in the manifest; open
}

type savedImage struct {
	file  *image.File
	table *regions.Table
}

// ownProcess stands in for ckptrun: nothing is stopped, copied or put in place.
type ownProcess struct{}

var errAlone = errors.New("this process was not started by ckptrun")

func (ownProcess) Park(time.Duration) error                     { return nil }
func (ownProcess) Release()                                     {}
func (ownProcess) Errand(f func()) error                        { return errAlone }
func (ownProcess) State() ([]byte, error)                       { return nil, errAlone }
func (ownProcess) Freeze() (int, error)                         { return 0, errAlone }
func (ownProcess) Thaw(int)                                     {}
func (ownProcess) Threads() []attributes.ThreadID               { return nil }
func (ownProcess) Asked(attributes.Asked) attributes.Asked      { return 0 }
func (ownProcess) Descriptors() []int                           { return nil }
func (ownProcess) Limit(int, *unix.Rlimit) (unix.Rlimit, error) { return unix.Rlimit{}, nil }
func (ownProcess) Closed() []files.Closed                       { return nil }
func (ownProcess) ClosedSafe(uint64)                            {}
func (ownProcess) Original(int) int                             { return -1 }
func (ownProcess) Place(int, int, bool) error                   { return errAlone }
func (ownProcess) Say(string) bool                              { return false }
func (ownProcess) SetTables(uintptr)                            {}
func (ownProcess) Outside() (s, e uint64, is bool)              { return 0, 0, false }
func (ownProcess) Made(int, int, int64, int64)                  {}
func (ownProcess) Foreign(uint64, uint64) bool                  { return false }
func (ownProcess) Load([]byte, uint64) error                    { return errAlone }
func (ownProcess) Stands([]byte) []uint64                       { return nil }
func (ownProcess) Lazy(bool)                                    {}
func (ownProcess) Name([]sockets.Name)                          {}
func (ownProcess) Fail(status int)                              { unix.Exit(status) }
func (ownProcess) End(status int) {
	if status < 0 {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	unix.Exit(status)
}

// RegionOptions reads the settings of a job in regions mode: those of ckptrun, from the environment and ckpt.toml. dir
// and restart are "" where the environment shall say it.
func RegionOptions(dir, restart string, getenv func(string) string) (launch.Options, error) {
	var args []string
	if dir != "" {
		args = append(args, "--dir", dir)
	}
	if restart == "" {
		restart = getenv("CKPT_RESTART")
	}
	if restart != "" {
		args = append(args, "--restart", restart)
	} else {
		args = append(args, "--", "program")
	}
	o, _, _, err := launch.Parse(args, getenv)
	o.Snapshot = "stop" // who saves memory of a plain process waits until it is written
	return o, err
}

// OpenRegions makes the process one of a job in regions mode. Collective.
func (p *Process) OpenRegions(rt Embedded, tables *vid.Tables, o launch.Options, bind func() error) error {
	job, err := openRegions(rt, tables, o, bind, p.Log)
	var told *SaidError
	if errors.As(err, &told) { // here nobody has told it
		err = told.Err
	}
	if err != nil {
		return err
	}
	p.Job, p.Options = job, o
	return nil
}

func openRegions(rt Embedded, tables *vid.Tables, o launch.Options, bind func() error, log *zap.Logger) (_ *Job, err error) {
	if err := bind(); err != nil {
		return nil, err
	}
	j, err := newRegional(o, log)
	if err = errorOfAll(rt, err); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			j.owned.release()
		}
	}()
	if s := j.regional.saved; s != nil {
		err = s.restart.ownTogether(j.host, o, rt, log)
		j.owned = s.restart.owned
		if err == nil {
			err = s.restart.settle(j.host, o, rt, log)
		}
		j.meta.Epoch = s.restart.manifest.Epoch
		if err == nil && !s.restart.Regions() { // it is a newer one
			err = errNoRegions(s.restart.manifest, o.Restart)
		}
	} else {
		err = ownTogether(j.host, rt, func() (err error) {
			j.owned, err = own(j.host, o, "", j.meta.Program, true, log)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	if err = j.connect(rt, tables); err != nil {
		return nil, err
	}
	return j, j.meetAndServe()
}

// newRegional is this process's part of the job, before it has met the others.
func newRegional(o launch.Options, log *zap.Logger) (*Job, error) {
	self, err := regions.Self()
	if err != nil {
		return nil, err
	}
	meta, err := describe(o, launch.Program{Exe: self.Path, Argv: commandLine()})
	if err != nil {
		return nil, err
	}
	if meta.Dir, err = os.Getwd(); err != nil {
		return nil, err
	}
	meta.Mode, meta.MPI.ABI = modeRegions, abiRegions
	j := newJob(ownProcess{}, o, meta, log)
	j.regional = &regional{set: regions.NewSet(self), self: self}
	if o.Restart == "" {
		return j, nil
	}
	o.Fallback = o.Fallback && heard(log) // see Restart.candidates
	r, err := findRestart(o)
	if err != nil {
		return nil, err
	}
	if !r.Regions() || named0(r.manifest) {
		return nil, errNoRegions(r.manifest, o.Restart)
	}
	j.regional.saved = &saved{restart: r, images: map[int]*savedImage{}}
	return j, nil
}

// commandLine is os.Args of a program that is not written in Go.
func commandLine() []string {
	b, err := os.ReadFile("/proc/self/cmdline")
	if err != nil || len(b) == 0 {
		return os.Args
	}
	return splitZero(b)
}

func splitZero(b []byte) (list []string) {
	for start, i := 0, 0; i < len(b); i++ {
		if b[i] == 0 {
			list, start = append(list, string(b[start:i])), i+1
		}
	}
	return list
}

func errNoRegions(m *store.Manifest, spec string) error {
	if named0(m) {
		return fmt.Errorf("epoch %d has the state that %s has named (MPIX_Checkpoint_protect), and not the memory of ranks: start that program again, with CKPT_RESTART=%s", m.Epoch, m.Program, spec)
	}
	return fmt.Errorf("epoch %d has processes, and not the memory of ranks: continue it by `ckptrun --restart %s`", m.Epoch, spec)
}

// Regions tells whether the epoch has the memory of ranks, and not processes.
func (r *Restart) Regions() bool { return r.manifest.Mode == modeRegions }

// errRegions is what ckptrun says of such an epoch.
func (r *Restart) errRegions() error {
	m := r.manifest
	if named0(m) {
		return fmt.Errorf("epoch %d of %s has the state that a program has named (MPIX_Checkpoint_protect), and no process that could be continued: start %s as it was started, without ckptrun, with CKPT_RESTART=%s",
			m.Epoch, r.store.Dir(), m.Program, r.spec)
	}
	return fmt.Errorf("epoch %d of %s has the memory of %d ranks (regions mode), and no process that could be continued: start %s without ckptrun, in any number of processes, with CKPT_RESTART=%s",
		m.Epoch, r.store.Dir(), m.Ranks, m.Program, r.spec)
}

// ---- whose memory --------------------------------------------------------------------------------

// TaskRegion says that memory belongs to a rank of the job. Without regions mode all memory is saved, and nothing is
// to be done. bytes 0: it does no more.
func (j *Job) TaskRegion(rank int, span regions.Span) error {
	switch {
	case j.regional == nil:
		return nil
	case span.Bytes == 0:
		return j.regional.set.Remove(rank, span.Base)
	}
	return j.regional.set.Add(rank, span)
}

// TaskAt is the rank in whose memory the address lies.
func (j *Job) TaskAt(address uint64) (rank int, is bool) {
	if j.regional == nil || j.regional.set == nil {
		return 0, false
	}
	return j.regional.set.Holder(address)
}

// SavedTasks describes the epoch that the job continues.
type SavedTasks struct {
	Epoch, Ranks, Processes int
	Answers                 bool // the programs had called for it
}

// Saved says what there is to be loaded; false: it is a fresh start.
func (j *Job) Saved() (SavedTasks, bool, error) {
	if j.regional == nil || j.regional.saved == nil {
		return SavedTasks{}, false, nil
	}
	s := j.regional.saved
	s.mu.Lock()
	defer s.mu.Unlock()
	im, err := s.image(0)
	if err != nil {
		return SavedTasks{}, false, err
	}
	m := s.restart.manifest
	return SavedTasks{m.Epoch, m.Ranks, len(m.Images), im.table.Answers}, true, nil
}

// image opens an image and checks it, but for its pages. mu is held.
func (s *saved) image(n int) (*savedImage, error) {
	if im := s.images[n]; im != nil {
		return im, nil
	}
	f, _, err := s.restart.open(n)
	if err != nil {
		return nil, s.restart.advise(err)
	}
	table, err := readTasks(f)
	if err == nil && !slices.Equal(table.Ranks(), s.restart.manifest.Images[n].Tasks) {
		err = fmt.Errorf("%s: section %q: has ranks %v, by the manifest %v", f.Name(), sectionTasks, table.Ranks(), s.restart.manifest.Images[n].Tasks)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	s.images[n] = &savedImage{f, table}
	return s.images[n], nil
}

// LoadTask puts the memory of a saved rank where it was, in this process, whose rank it is from then on. It is there as
// a whole, or not at all. base is where it begins.
func (j *Job) LoadTask(rank int) (base uint64, err error) {
	if j.regional == nil || j.regional.saved == nil {
		return 0, errors.New("the job is not continued from saved ranks")
	}
	s := j.regional.saved
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.restart.manifest
	n := m.ImageOf(rank)
	if n < 0 {
		return 0, fmt.Errorf("epoch %d has ranks 0 to %d, no rank %d", m.Epoch, m.Ranks-1, rank)
	}
	if j.regional.set.Has(rank) {
		return 0, fmt.Errorf("rank %d is in this process already", rank)
	}
	im, err := s.image(n)
	if err != nil {
		return 0, fmt.Errorf("rank %d cannot go on: %w", rank, err)
	}
	spans := im.table.Spans(rank)
	for _, span := range spans {
		if span.Code {
			if err := j.regional.self.SameBuild(im.table); err != nil {
				return 0, fmt.Errorf("rank %d cannot go on: %w", rank, err)
			}
		}
	}
	mine := func(r *image.Region) bool {
		return slices.ContainsFunc(spans, func(s regions.Span) bool { return s.Base == r.Start })
	}
	if err := snapshot.MapSome(context.Background(), im.file, mine); err != nil {
		return 0, s.restart.advise(fmt.Errorf("rank %d cannot go on: %w", rank, err))
	}
	for _, span := range spans {
		if err := j.regional.set.Add(rank, span); err != nil {
			return 0, err
		}
	}
	return spans[0].Base, nil
}

// done closes what was read from.
func (s *saved) done() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, im := range s.images {
		im.file.Close()
		delete(s.images, n)
	}
}

// ---- a checkpoint --------------------------------------------------------------------------------

// captureTasks describes the ranks of this process.
func (a *attempt) captureTasks() {
	j := a.j
	if j.regional.named != nil {
		a.captureNamed()
		return
	}
	j.regional.saved.done() // all are loaded that will be
	table := j.regional.set.Table(a.open.Program)
	section, err := table.Encode()
	if err != nil {
		a.state.Failure = err.Error()
		return
	}
	a.capture = &capture{meta: j.meta, sections: []image.Section{{Name: sectionTasks, Data: section}}, regions: table.Regions()}
	a.state.Tasks = table.Ranks()
}

// allRegions says what is wrong with what the ranks have, taken together.
func (j *Job) allRegions(all []captureReport) error {
	switch {
	case j.regional == nil:
		return nil
	case j.regional.named != nil:
		return someNamed(all)
	}
	return allTasks(all)
}

// allTasks refuses an epoch that not every rank would be in, once.
func allTasks(all []captureReport) error {
	where, n := map[int]int{}, 0
	for process, one := range all {
		for _, rank := range one.Tasks {
			if other, twice := where[rank]; twice {
				return &control.RefusedError{Reasons: []string{fmt.Sprintf("rank %d has memory in processes %d and %d (ckpt_task_region)", rank, other, process)}}
			}
			where[rank], n = process, max(n, rank+1)
		}
	}
	for rank := range n {
		if _, there := where[rank]; !there {
			return &control.RefusedError{Reasons: []string{fmt.Sprintf("rank %d of %d has no memory in any process (ckpt_task_region)", rank, n)}}
		}
	}
	if n == 0 {
		return &control.RefusedError{Reasons: []string{"no rank has memory (ckpt_task_region): there is nothing to be saved"}}
	}
	return nil
}

// describeTasks makes a manifest one of ranks that are apart from processes.
func describeTasks(m *store.Manifest, all []imageReport) {
	m.Mode, m.Processes, m.Ranks = modeRegions, len(all), 0
	for i := range m.Images {
		m.Images[i].Tasks = all[i].Tasks
		m.Ranks += len(all[i].Tasks)
	}
}

// checkTasks is the rest of CheckImage for an image of ranks, or of what a program has named.
func checkTasks(f *image.File) error {
	var err error
	if slices.ContainsFunc(f.Sections(), func(s image.SectionInfo) bool { return s.Name == sectionProtected }) {
		_, err = readState(f)
	} else {
		_, err = readTasks(f)
	}
	return err
}

func readTasks(f *image.File) (*regions.Table, error) {
	b, err := f.Section(sectionTasks)
	if err != nil {
		return nil, err
	}
	t, err := regions.Decode(b)
	if err == nil {
		err = t.CheckRegions(f.Regions())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: section %q: %w", f.Name(), sectionTasks, err)
	}
	return t, nil
}
