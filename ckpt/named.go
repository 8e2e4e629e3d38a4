// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/objects"
	"github.com/libckpt/libckpt/ckpt/regions"
	"github.com/libckpt/libckpt/ckpt/snapshot"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/rails/signaling"
	"github.com/libckpt/libckpt/vid"
)

// Programs that name their state (MPIX_Checkpoint_protect, package regions): a job in regions mode whose images have
// what the program has named, by numbers of its own. The program is the one that calls; a start looks in the directory
// what there is, and the program has it put where it wants it now.
//
//	open ──► look (collective, once): the newest epoch that is whole ──► load ──► save ──► save ...
//
// One goroutine at a time calls these methods.

// Protected is a piece of the program's state.
type Protected struct {
	ID    int
	Data  []byte
	Block *regions.Block // nil: this rank's own
}

// named is what a job of such a program has.
type named struct {
	mu     sync.Mutex
	now    []Protected // that the next checkpoint saves
	level  int
	failed error

	looked bool
	from   *source // nil: there is nothing to be loaded
	lost   []string
	saved  bool // a checkpoint was asked for: nothing is loaded any more
}

// source is a committed epoch that is loaded from.
type source struct {
	store    *store.Store
	manifest *store.Manifest
	states   map[int]*regions.State // by rank: this one's, or with another number of ranks all
	files    map[int]*image.File
}

// ErrNoneSaved says that there is nothing to be loaded.
var ErrNoneSaved = errors.New("nothing is saved here: a fresh start")

// NamedOptions reads the settings of such a job, see RegionOptions. dir is "" where the environment shall say it.
func NamedOptions(dir string, getenv func(string) string) (launch.Options, error) {
	return RegionOptions(dir, "", func(name string) string {
		if name == "CKPT_RESTART" && dir != "" {
			return "" // the caller's directory is meant
		}
		return getenv(name)
	})
}

// OpenNamed makes the process one of a job that names its state. Collective. name and version are of the MPI, or
// "none". progress drives the program's own communication while a call waits, and may be nil.
func OpenNamed(ranks Ranks, name, version string, progress func(), o launch.Options, log *zap.Logger) (*Job, error) {
	j, err := openNamed(&plain{ranks, name, version, progress}, o, log)
	var told *SaidError
	if errors.As(err, &told) { // here nobody has told it
		err = told.Err
	}
	return j, err
}

func openNamed(rt *plain, o launch.Options, log *zap.Logger) (_ *Job, err error) {
	tables, err := vid.Open(0, snapshot.TablesBytes)
	if err = errorOfAll(rt, err); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && tables != nil {
			_ = tables.Close()
		}
	}()
	j, err := newNamed(o, log)
	if err = errorOfAll(rt, err); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			j.owned.release()
		}
	}()
	if err = ownTogether(j.host, rt, func() error {
		from := ""
		var distant *Restart
		if objects.Is(o.Restart) {
			var err error
			if distant, err = findRestart(o); err != nil {
				return err
			}
		} else if o.Restart != "" {
			dir, _, err := store.SplitSpec(o.Restart)
			if err != nil {
				return err
			}
			if _, err := store.Open(dir); err != nil {
				return err
			}
			from = absolute(dir)
		}
		var err error
		j.owned, err = own(j.host, o, from, j.meta.Program, true, log)
		if err == nil && distant != nil {
			distant.owned = j.owned
			err = distant.bring(o, log)
		}
		return err
	}); err != nil {
		return nil, err
	}
	if err = j.connect(rt, tables); err != nil {
		return nil, err
	}
	return j, j.meetAndServe()
}

func newNamed(o launch.Options, log *zap.Logger) (*Job, error) {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	meta, err := describe(o, launch.Program{Exe: path, Argv: commandLine()})
	if err != nil {
		return nil, err
	}
	if meta.Dir, err = os.Getwd(); err != nil {
		return nil, err
	}
	meta.Mode, meta.MPI.ABI = modeRegions, abiRegions
	j := newJob(ownProcess{}, o, meta, log)
	j.regional = &regional{named: &named{}}
	return j, nil
}

// Network is the ranks' own, for messages of kinds from ckpt.h's CKPT_SIGNAL_FIRST on.
func (j *Job) Network() *signaling.Network { return j.net }

// ---- what there is -------------------------------------------------------------------------------

// candidates lists the epochs that may be loaded, the newest first, and says of others why earlier starts could not load
// them. Rank 0.
func (j *Job) candidates() (dir string, epochs []int, passed []string, err error) {
	spec := j.options.Restart
	if spec == "" {
		spec = j.options.Dir
	}
	dir, only, err := store.SplitSpec(spec)
	if err != nil {
		return "", nil, nil, err
	}
	if objects.Is(dir) { // its manifests were brought to the directory
		dir = j.options.Dir
	}
	s, err := store.Open(dir)
	if err != nil {
		return "", nil, nil, err
	}
	if only != 0 {
		_, err := s.Manifest(only)
		return s.Dir(), []int{only}, nil, err
	}
	list, err := s.Epochs()
	if err != nil {
		return "", nil, nil, err
	}
	for i := len(list) - 1; i >= 0; i-- {
		switch e := &list[i]; {
		case e.Lost(): // an older one was taken, and this one was told of
			passed = append(passed, e.Manifest.Lost())
		case e.Committed() && named0(e.Manifest), e.Err != nil:
			epochs = append(epochs, e.Number)
		case e.Committed() && len(epochs) == 0:
			return "", nil, nil, errNotNamed(s.Dir(), e.Manifest)
		}
	}
	switch {
	case len(epochs) > 0:
	case len(passed) > 0:
		return "", nil, nil, fmt.Errorf("%s: %w: %s", dir, store.ErrLost, lostText(passed))
	case j.options.Restart != "":
		return "", nil, nil, fmt.Errorf("%s: %w", dir, store.ErrNone)
	}
	return s.Dir(), epochs, passed, nil
}

// named0 tells whether an epoch is of a program that names its state.
func named0(m *store.Manifest) bool { return m.Mode == modeRegions && m.Processes == 0 }

func errNotNamed(dir string, m *store.Manifest) error {
	how := fmt.Sprintf("`ckptrun --restart %s` continues it", dir)
	if m.Mode == modeRegions {
		how = "the runtime that made it continues it, with CKPT_RESTART=" + dir
	}
	return fmt.Errorf("epoch %d of %s is not of a program that names its state (MPIX_Checkpoint_protect): %s; give this program another directory, by CKPT_DIR", m.Epoch, dir, how)
}

// Look finds the epoch that is loaded: the newest one whose images are all whole. It says what was lost to get there.
// Collective when it is called first; ErrNoneSaved when there is none.
func (j *Job) Look() (epoch int, lost []string, err error) {
	n := j.regional.named
	if n.saved {
		return 0, nil, errors.New("a checkpoint was made since the start: what was saved before can be loaded only before the first one")
	}
	if !n.looked {
		if err := j.look(); err != nil {
			return 0, n.lost, err
		}
		n.looked = true
	}
	if n.from == nil {
		return 0, n.lost, ErrNoneSaved
	}
	return n.from.manifest.Epoch, n.lost, nil
}

func (j *Job) look() error {
	type word struct {
		Dir    string `json:"dir"`
		Epochs []int  `json:"epochs"`
		Spread []int  `json:"spread,omitempty"` // those of them that are, or were, on nodes
		Older  int    `json:"older,omitempty"`  // the newest one that is not to be taken: --fallback no
		Error  string `json:"error,omitempty"`

		Passed []string `json:"passed,omitempty"` // what earlier starts could not load
	}
	n, mine := j.regional.named, word{}
	n.lost = nil
	if j.group.rank() == 0 {
		var err error
		if mine.Dir, mine.Epochs, mine.Passed, err = j.candidates(); err != nil {
			mine.Error = err.Error()
		}
		if len(mine.Epochs) > 1 && !j.options.Fallback {
			mine.Older, mine.Epochs = mine.Epochs[1], mine.Epochs[:1]
		}
		mine.Spread = spreadOf(mine.Dir, mine.Epochs)
	}
	all, err := allgatherJSON(context.Background(), j.group, stepLook, j.runtime.Progress, mine)
	if err != nil {
		return err
	}
	if all[0].Error != "" {
		return errors.New(all[0].Error)
	}
	dir := all[0].Dir
	var lost []candidate // as far as files are damaged or gone
	var why []string
	var nodes *bringing
	defer func() { nodes.close() }()
	for _, epoch := range all[0].Epochs {
		var s *source
		spread := slices.Contains(all[0].Spread, epoch)
		if spread && nodes == nil {
			if nodes, err = j.newBringing(dir); err != nil {
				return err
			}
		}
		err = nil
		if spread {
			err = nodes.bring(epoch)
		}
		if err == nil {
			s, err = await(j.runtime.Progress, func() (*source, error) { return j.openSource(dir, epoch, nodes.local(), spread) })
			err = oneVoice(j.runtime, j.group.size(), err)
		} else if _, gone := lostOf(err); !gone {
			return err
		}
		if err == nil {
			n.from = s
			j.settled(s, nodes, lost, why)
			return nil
		}
		s.close()
		n.lost = append(n.lost, fmt.Sprintf("epoch %d cannot be loaded (%v)", epoch, err))
		if _, gone := lostOf(err); gone {
			lost, why = append(lost, candidate{Epoch: epoch}), append(why, n.lost[len(n.lost)-1])
		}
		if j.group.rank() == 0 {
			j.log.Warn(n.lost[len(n.lost)-1])
		}
	}
	if older := all[0].Older; older != 0 {
		return fmt.Errorf("%s; an older epoch is there: CKPT_RESTART=%s@%d", strings.Join(n.lost, "; "), dir, older)
	}
	if len(n.lost) > 0 {
		return fmt.Errorf("%s; there is no other one: mend it, or give the program another directory, by CKPT_DIR", strings.Join(append(all[0].Passed, n.lost...), "; "))
	}
	return nil
}

// settled says what was done to have an epoch here, and notes which newer ones cannot be had.
func (j *Job) settled(s *source, nodes *bringing, lost []candidate, why []string) {
	if j.group.rank() != 0 {
		return
	}
	r := &Restart{store: s.store, manifest: s.manifest, owned: j.owned}
	if nodes != nil {
		r.tellSettled(nil, nodes.done, j.log)
	}
	r.markLost(lost, why)
}

// together returns the error of the first rank that has one, on all ranks. Collective.
func (j *Job) together(err error) error {
	text := ""
	if err != nil {
		text = err.Error()
	}
	all, gerr := allgatherJSON(context.Background(), j.group, stepTogether, j.runtime.Progress, text)
	if gerr != nil {
		return cmp.Or(err, gerr)
	}
	for rank, why := range all {
		switch {
		case why == "":
		case len(all) == 1:
			return errors.New(why)
		default:
			return fmt.Errorf("rank %d: %s", rank, why)
		}
	}
	return nil
}

// openSource opens what this rank needs of an epoch, and reads and checks each byte of its share, unless that was done.
// local is the local directory of this node.
func (j *Job) openSource(dir string, epoch int, local string, checked bool) (*source, error) {
	s := &source{states: map[int]*regions.State{}, files: map[int]*image.File{}}
	var err error
	if s.store, err = store.Open(dir); err != nil {
		return s, err
	}
	s.store = s.store.WithLocal(local)
	if s.manifest, err = s.store.Manifest(epoch); err != nil {
		return s, err
	}
	if !named0(s.manifest) {
		return s, errNotNamed(dir, s.manifest)
	}
	size, rank := j.group.size(), j.group.rank()
	for i := range s.manifest.Ranks {
		mine := i%size == rank
		if !mine && s.manifest.Ranks == size {
			continue
		}
		f, err := s.file(i)
		if err == nil && mine && !checked {
			err = f.Verify(context.Background(), nil)
		}
		if err != nil {
			return s, err
		}
		if s.states[i], err = readState(f); err != nil {
			return s, err
		}
		if s.manifest.Ranks != size { // there may be many
			f.Close()
			delete(s.files, i)
		}
	}
	return s, nil
}

// file opens a rank's image and checks it, but for its pages.
func (s *source) file(rank int) (*image.File, error) {
	if f := s.files[rank]; f != nil {
		return f, nil
	}
	f, err := s.store.OpenImage(s.manifest, rank)
	if err != nil {
		return nil, err
	}
	if err := CheckImage(f, s.manifest, rank); err != nil {
		f.Close()
		return nil, err
	}
	s.files[rank] = f
	return f, nil
}

// done closes what is loaded from.
func (n *named) done() {
	if n != nil {
		n.from.close()
		n.from = nil
	}
}

func (s *source) close() {
	if s == nil {
		return
	}
	for rank, f := range s.files {
		f.Close()
		delete(s.files, rank)
	}
}

func readState(f *image.File) (*regions.State, error) {
	b, err := f.Section(sectionProtected)
	if err != nil {
		return nil, err
	}
	s, err := regions.DecodeState(b)
	if err == nil {
		err = s.CheckRegions(f.Regions())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: section %q: %w", f.Name(), sectionProtected, err)
	}
	return s, nil
}

// ---- a checkpoint --------------------------------------------------------------------------------

// SaveNamed saves the state that the program names. The program stands until the epoch is committed, or given up: the
// answer is what became of it. Collective.
// With failed this rank has no state to give, and there is no epoch.
func (j *Job) SaveNamed(list []Protected, level int, failed error) (state State, epoch int, err error) {
	n := j.regional.named
	n.mu.Lock()
	n.now, n.level, n.failed = list, level, failed
	n.mu.Unlock()
	n.saved = true
	n.done()
	if state, err = j.Whole(false); state != StateCheckpoint {
		return state, 0, err
	}
	j.mu.Lock()
	last := j.last
	j.mu.Unlock()
	o, _ := await(j.runtime.Progress, func() (outcome, error) { return last.outcome(), nil })
	if o.err != nil {
		return StateError, 0, o.err
	}
	return StateCheckpoint, last.epoch, nil
}

// captureNamed describes what the program has named.
func (a *attempt) captureNamed() {
	j, n := a.j, a.j.regional.named
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failed != nil {
		a.state.Failure = n.failed.Error()
		return
	}
	sorted := slices.Clone(n.now)
	slices.SortStableFunc(sorted, func(x, y Protected) int { return cmp.Compare(x.ID, y.ID) })
	list, data := make([]regions.Named, len(sorted)), make([][]byte, len(sorted))
	for i, p := range sorted {
		list[i] = regions.Named{ID: p.ID, Bytes: uint64(len(p.Data)), Block: p.Block}
		data[i] = p.Data
	}
	state, err := regions.NewState(list)
	var section []byte
	if err == nil {
		section, err = state.Encode()
	}
	if err != nil {
		a.state.Failure = err.Error()
		return
	}
	a.capture = &capture{meta: j.meta, sections: []image.Section{{Name: sectionProtected, Data: section}}, regions: state.Images(),
		memory: regions.NewMemory(state, data)}
	a.state.Level, a.state.Named = n.level, len(list)
}

// someNamed refuses an epoch that nothing would be in, or that ranks want at different levels.
func someNamed(all []captureReport) error {
	if !slices.ContainsFunc(all, func(r captureReport) bool { return r.Named > 0 }) {
		return &control.RefusedError{Reasons: []string{"no rank protects anything (MPIX_Checkpoint_protect): there is nothing to be saved"}}
	}
	for rank, one := range all {
		if one.Level != all[0].Level {
			return &control.RefusedError{Reasons: []string{fmt.Sprintf("rank 0 wants level %d and rank %d level %d (MPIX_Checkpoint_level): all ranks say the same",
				all[0].Level, rank, one.Level)}}
		}
	}
	return nil
}
