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

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/snapshot"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/vid"
)

// Restart is a committed epoch that this process is to continue.
type Restart struct {
	spec     string
	store    *store.Store
	manifest *store.Manifest
	passed   []string // newer epochs that are known to be lost, in words
	owned    *owned   // rank 0, after Own
	distant  *distant // nil: the directory has the epoch
	aside    string   // the folder of epochs in this node's local directory; "": there is none
	ready    *ready   // after settle; nil: processes take from any image
}

// OpenRestart finds the epoch that spec, DIR or DIR@EPOCH, names. With fallback a newest one whose manifest is damaged is
// passed over. The error wraps store.ErrNone when there is no committed one.
func OpenRestart(spec string, fallback bool) (*Restart, error) {
	dir, epoch, err := store.SplitSpec(spec)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(dir)
	if err != nil {
		return nil, err
	}
	r := &Restart{spec: spec, store: s}
	switch {
	case epoch != 0:
	case fallback:
		var passed []store.Epoch
		epoch, passed, err = s.NewestSound()
		r.passed = passedText(passed)
	default:
		epoch, err = s.Newest()
	}
	if err != nil {
		return nil, err
	}
	if r.manifest, err = s.Manifest(epoch); err != nil {
		return nil, err
	}
	return r, nil
}

// Own makes this job the owner of the directory that it is restarted from, and of the one that it will be saved
// into. It finds the epoch again: the former owner may have committed one meanwhile. Rank 0 calls it, before
// anything of the epoch is touched; on failure nothing is owned.
func (r *Restart) Own(h Host, o launch.Options, log *zap.Logger) error {
	if r.owned != nil {
		return nil
	}
	from := ""
	if r.distant == nil {
		from = absolute(r.store.Dir())
	}
	w, err := own(h, o, from, r.manifest.Program, true, log)
	if err != nil {
		return err
	}
	o.Restart = r.spec
	again, err := findRestart(o)
	if err == nil {
		again.owned = w
		err = again.bring(o, log)
	}
	if err != nil {
		w.release()
		return err
	}
	r.owned, r.manifest, r.distant, r.passed = w, again.manifest, again.distant, again.passed
	return nil
}

// AwaitOwner is for the other ranks, where the launcher tells which rank this is.
func (r *Restart) AwaitOwner(o launch.Options, log *zap.Logger) error {
	return awaitOwner(o, absolute(r.store.Dir()), log)
}

// Disown gives back what Own took, when the restart failed.
func (r *Restart) Disown() {
	r.owned.release()
	r.owned = nil
}

// ownTogether has rank 0 own the directory, where it does not yet. Collective; settle tells the others the epoch.
func (r *Restart) ownTogether(h Host, o launch.Options, rt Runtime, log *zap.Logger) error {
	return ownTogether(h, rt, func() error { return r.Own(h, o, log) })
}

// MPI tells whether the job was an MPI job.
func (r *Restart) MPI() bool { return r.manifest.MPI.Name != "none" }

// Ranks is how many processes the epoch has, each of which has one rank but in jobs of a runtime with tasks.
func (r *Restart) Ranks() int { return r.manifest.ProcessCount() }

// MPIName is the MPI that the epoch was made under.
func (r *Restart) MPIName() string { return r.manifest.MPI.Name }

// MPIVersion is its version.
func (r *Restart) MPIVersion() string { return r.manifest.MPI.Version }

// Threads is the highest thread level that a rank of the job asked for, as MPI numbers them.
func (r *Restart) Threads() int {
	if i := slices.Index(threadLevels, r.manifest.MPI.Threads); i >= 0 {
		return i
	}
	return len(threadLevels) - 1 // not recorded: the one that serves all
}

// threadLevels are MPI's, in the order of their numbers.
var threadLevels = []string{"single", "funneled", "serialized", "multiple"}

func threadLevel(n int) string {
	if n < 0 || n >= len(threadLevels) {
		return ""
	}
	return threadLevels[n]
}

// CheckRanks refuses another number of ranks than the epoch's.
func (r *Restart) CheckRanks(ranks int) error {
	n := r.manifest.ProcessCount()
	if ranks == n {
		return nil
	}
	if r.Together() {
		return fmt.Errorf("epoch %d is of %d processes, but %d were started: start %d, as with `ckptrun --restart ...` in as many shells", r.manifest.Epoch, n, ranks, n)
	}
	if !r.MPI() {
		return fmt.Errorf("epoch %d is of a program without MPI, but %d processes were started: run `ckptrun --restart` without mpiexec", r.manifest.Epoch, ranks)
	}
	if n != r.manifest.Ranks {
		return fmt.Errorf("epoch %d has %d processes (with %d ranks), but %d were started", r.manifest.Epoch, n, r.manifest.Ranks, ranks)
	}
	return fmt.Errorf("epoch %d has %d ranks, but %d were started: start %d, as with `mpiexec -n %d ckptrun --restart ...`", r.manifest.Epoch, n, ranks, n, n)
}

// open opens and checks a rank's image.
func (r *Restart) open(rank int) (*image.File, Meta, error) {
	f, err := r.store.OpenImageKeeping(r.manifest, rank, r.keepsSegment(new(int64)))
	if err != nil {
		return nil, Meta{}, err
	}
	if err := f.CheckSources(); err != nil {
		f.Close()
		return nil, Meta{}, err
	}
	if err := CheckImage(f, r.manifest, rank); err != nil {
		f.Close()
		return nil, Meta{}, err
	}
	meta, err := readMeta(f)
	if err != nil {
		f.Close()
		return nil, Meta{}, err
	}
	here, err := snapshot.CPUFlags()
	if err == nil {
		if missing := snapshot.MissingFlags(meta.CPU, here); len(missing) > 0 {
			err = fmt.Errorf("%s: this processor lacks features that the program may use: %s; restart on a machine like %s", f.Name(), strings.Join(missing, " "), meta.Host)
		}
	}
	if err != nil {
		f.Close()
		return nil, Meta{}, err
	}
	return f, meta, nil
}

// advisedError is an error with what to do about it.
type advisedError struct {
	Err    error
	advice string
}

func (e *advisedError) Error() string { return e.Err.Error() + "; " + e.advice }
func (e *advisedError) Unwrap() error { return e.Err }

// advise adds what to do when an image is damaged and an older epoch is there.
func (r *Restart) advise(err error) error {
	if err == nil || !isDamage(err) {
		return err
	}
	corrupt, _ := errors.AsType[*image.CorruptError](err)
	if older := r.older(corrupt); older != "" {
		return &advisedError{err, older}
	}
	return err
}

// older names the newest epoch before this one that is whole, as far as is known; "" when there is none. damage is what
// was found in this one, nil: nothing.
func (r *Restart) older(damage *image.CorruptError) string {
	damaged := 0
	if damage != nil {
		damaged = r.store.EpochAt(damage.File)
	}
	m, err := r.store.NewestWhole(r.manifest.Epoch, damaged)
	if err != nil {
		return ""
	}
	how := "--restart "
	if r.Regions() {
		how = "CKPT_RESTART="
	}
	return fmt.Sprintf("an older epoch is there: %s%s@%d", how, r.store.Dir(), m.Epoch)
}

// Continue restores a program without MPI into this process.
func Continue(h Host, o launch.Options, r *Restart, log *zap.Logger) (*Job, error) {
	err := r.Own(h, o, log)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.Disown()
		}
	}()
	if err = r.settle(h, o, nil, log); err != nil {
		return nil, err
	}
	j, f := beginRestore(h, o, r, log)
	defer func() { j.doneWith(f) }()
	if err = j.restore(r, f, func(err error) error { return err }, nil); err != nil {
		return nil, err
	}
	err = j.meetAndServe()
	go j.tellLoading()
	return j, err
}

// ContinueRuntime restores this rank of an MPI job: memory first, then the objects in the fresh
// runtime. Collective.
func ContinueRuntime(h Host, o launch.Options, r *Restart, rt Runtime, tables *vid.Tables, log *zap.Logger) (_ *Job, err error) {
	if err := r.CheckRanks(rt.Ranks()); err != nil {
		r.Disown()
		return nil, err
	}
	if err := r.ownTogether(h, o, rt, log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.Disown()
		}
	}()
	if err = r.settle(h, o, rt, log); err != nil {
		return nil, err
	}
	j, f := beginRestore(h, o, r, log)
	defer func() { j.doneWith(f) }()
	if err = j.restore(r, f, func(err error) error { return errorOfAll(rt, err) }, rt.Allgather); err != nil {
		return nil, err
	}
	objects, err := f.Section(sectionObjects)
	if err != nil {
		return nil, err
	}
	if err := tables.Load(objects); err != nil {
		return nil, fmt.Errorf("%s: section %q: %w", f.Name(), sectionObjects, err)
	}
	if n := tables.Tasks(); n > max(1, len(j.meta.Tasks)) {
		return nil, fmt.Errorf("%s: section %q: %w: of %d local tasks, of %d", f.Name(), sectionObjects, vid.ErrCorrupt, n, max(1, len(j.meta.Tasks)))
	}
	if r.Whole() {
		tables.ForgetCalls()
	} else { // in whole mode both are in the memory
		if j.messages, err = readMessages(f); err != nil {
			return nil, err
		}
		if j.state, err = f.Section(sectionRuntime); err != nil {
			return nil, err
		}
	}
	err = j.connect(rt, tables)
	return j, err
}

// Whole tells whether the runtime is in the program's half, and so in the image.
func (r *Restart) Whole() bool { return r.manifest.MPI.ABI == abiWhole }

// abiWhole stands for the ABI of a job whose runtime is saved with the program.
const abiWhole = "whole"

// Reopen is the second step of a restart with an embedded runtime, whose memory is there and whose threads run: it
// binds its predefined objects and makes the others again, and its rails are opened. Collective.
func (j *Job) Reopen(bind func() error) error {
	if j.embedded == nil {
		return errors.New("this process was not restarted in whole mode")
	}
	err := bind()
	if err == nil {
		err = j.tables.Rebuild(func(k vid.Kind, id vid.ID, desc []byte, real uint64) (uint64, error) {
			return j.runtime.Rebuild(uint32(k), uint32(id), desc, real)
		})
	}
	if err == nil {
		err = openRails(j.embedded, WhyRestarted)
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	all, gerr := allgatherJSON(context.Background(), j.group, stepReopened, j.runtime.Progress, text)
	if err != nil || gerr != nil {
		return cmp.Or(err, gerr)
	}
	for rank, why := range all {
		if why != "" {
			return fmt.Errorf("rank %d: %s", rank, why)
		}
	}
	return j.meetAndServe()
}

// RebuildObjects makes every object again in the fresh runtime; the runtime has bound its predefined
// ones. Collective. The job can be saved only after this: a rank that is still in here has calls under way
// that no counter knows.
func (j *Job) RebuildObjects() error {
	if err := j.rebuildObjects(); err != nil {
		return err
	}
	if _, err := j.runtime.Allgather([]byte{0}); err != nil {
		return err
	}
	go j.tellLoading()
	return j.meetAndServe()
}

func (j *Job) rebuildObjects() error {
	err := j.tables.Rebuild(func(k vid.Kind, id vid.ID, desc []byte, real uint64) (uint64, error) {
		return j.runtime.Rebuild(uint32(k), uint32(id), desc, real)
	})
	if err == nil {
		err = j.runtime.Load(j.messages)
		j.messages = nil
	}
	return err
}

// beginRestore makes the job of an epoch that is settled.
func beginRestore(h Host, o launch.Options, r *Restart, log *zap.Logger) (*Job, *image.File) {
	f, meta := r.ready.file, r.ready.meta
	meta.Libckpt, meta.Kernel = Version, kernel()
	meta.Host, _ = os.Hostname()
	j := newJob(h, o, meta, log)
	j.owned = r.owned
	j.inherit(r, f, meta.Chain)
	return j, f
}

// maxReason bounds what a rank tells the others of its failure.
const maxReason = 1000

// errorOfAll returns the same error on all ranks: that of the first rank that has one. Collective.
func errorOfAll(rt Runtime, err error) error {
	mine := make([]byte, maxReason)
	if err != nil {
		copy(mine, err.Error())
	}
	all, gerr := rt.Allgather(mine)
	if err != nil || gerr != nil {
		return cmp.Or(err, gerr)
	}
	for rank, b := range all {
		if why := strings.TrimRight(string(b), "\x00"); why != "" {
			return fmt.Errorf("rank %d: %s", rank, why)
		}
	}
	return nil
}

// restore brings memory, files and threads of the image into this process. agree waits for all ranks and returns
// the error of any rank on all of them: no file is touched before every rank has found its own in order, and none
// is opened before all are back in place. gather gives all ranks what each says.
func (j *Job) restore(r *Restart, f *image.File, agree func(error) error, gather func([]byte) ([][]byte, error)) (err error) {
	defer r.ready.shared.Drop()
	threads, err := f.Section(sectionThreads)
	if err != nil {
		return err
	}
	table, err := readFiles(f)
	if err != nil {
		return err
	}
	options := r.filesOptions(j.options)
	options.Inherited = [3]int{j.host.Original(0), j.host.Original(1), j.host.Original(2)}
	options.Place = j.host.Place
	options.Warn = func(m string) { j.log.Warn(m) }
	// Before anything is looked at: a file that was only read at the checkpoint may have been replaced since.
	undone, err := j.undo(r.store, gather)
	if err != nil {
		return err
	}
	defer undone.Close()
	if err = os.Chdir(j.meta.Dir); err != nil {
		err = fmt.Errorf("the program's working directory: %w; make it again, or mount what it was on", err)
	}
	mapped, err := j.makePosix(f, err, agree, gather)
	if err != nil {
		return err
	}
	defer func() { mapped.Done(err == nil) }()
	options.Unnamed = mapped.Unnamed
	appended, err := j.gatherAppended(r.store, &table, gather)
	if err != nil {
		return err
	}
	options.Grown = appended.grown
	if err := agree(files.Prepare(table, options)); err != nil {
		return err
	}
	made, err := j.makeSockets(f, gather)
	if err := agree(err); err != nil {
		return err
	}
	defer made.Close()
	options.Socket = made.Take
	if r.Whole() {
		if err := j.placeSegments(f, agree, gather); err != nil {
			return err
		}
		defer j.remade.Close()
	}
	if err := j.cutAppended(r.store, &table, appended, undone, gather); err != nil { // on all ranks, before anything is put back
		return err
	}
	if err := agree(files.PutBack(table, options)); err != nil {
		return err
	}
	if err := openPosix(mapped, agree); err != nil {
		return err
	}
	if r.Whole() {
		if err := j.remakeSegments(agree); err != nil {
			return err
		}
	}
	segments, err := j.makeSysV(r, f, agree, gather)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = segments.Done(false)
		}
	}()
	later, err := j.lazily(r, f)
	if err != nil {
		return err
	}
	memory := snapshot.Options{Shared: j.sharedFile(mapped), Attach: segments.Attach, Later: later, Aside: r.ready.shared}
	if r.ready.filled {
		memory.Made = snapshot.Private
	}
	err = snapshot.Map(context.Background(), f, memory)
	err = agree(err) // others may map what this rank has filled
	if err == nil {
		err = j.endSysV(segments)
	}
	if err != nil {
		return r.advise(err)
	}
	if err := j.beginLazily(threads); err != nil {
		return err
	}
	j.noteRestored(f)
	err = files.Restore(table, options)
	if err != nil {
		return err
	}
	if j.noteMade(r.store) != 0 {
		j.madeAt(j.meta.Epoch, j.meta.Made)
	}
	// The launcher gave 0, 1 and 2; the program may have closed some.
	for n := range 3 {
		if !slices.ContainsFunc(table.Numbers, func(x files.Number) bool { return x.FD == n }) {
			if err := j.host.Place(n, -1, false); err != nil {
				return fmt.Errorf("descriptor %d: %w", n, err)
			}
		}
	}
	unix.Umask(j.meta.Umask)
	if err := j.adviseAgain(f, later != nil); err != nil {
		return err
	}
	if err := j.makeVerbs(f, agree, gather); err != nil {
		return err
	}
	if err := j.host.Load(threads, snapshot.StateComponents(j.meta.CPU)); err != nil {
		return fmt.Errorf("%s: section %q: %w", f.Name(), sectionThreads, err)
	}
	return j.askAgain(f)
}
