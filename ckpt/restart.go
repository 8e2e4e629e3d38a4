// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"encoding/json"
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
	"github.com/libckpt/libckpt/drain"
	"github.com/libckpt/libckpt/vid"
)

// Restart is a committed epoch that this process is to continue.
type Restart struct {
	store    *store.Store
	manifest *store.Manifest
}

// OpenRestart finds the epoch that spec, DIR or DIR@EPOCH, names. The error wraps store.ErrNone when
// there is no committed one.
func OpenRestart(spec string) (*Restart, error) {
	s, epoch, err := store.Resolve(spec)
	if err != nil {
		return nil, err
	}
	m, err := s.Manifest(epoch)
	if err != nil {
		return nil, err
	}
	return &Restart{s, m}, nil
}

// MPI tells whether the job was an MPI job.
func (r *Restart) MPI() bool { return r.manifest.MPI.Name != "none" }

// Ranks is how many ranks the epoch has.
func (r *Restart) Ranks() int { return r.manifest.Ranks }

// MPIName is the MPI that the epoch was made under.
func (r *Restart) MPIName() string { return r.manifest.MPI.Name }

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
	if ranks == r.manifest.Ranks {
		return nil
	}
	n := r.manifest.Ranks
	if !r.MPI() {
		return fmt.Errorf("epoch %d is of a program without MPI, but %d processes were started: run `ckptrun --restart` without mpiexec", r.manifest.Epoch, ranks)
	}
	return fmt.Errorf("epoch %d has %d ranks, but %d were started: run `mpiexec -n %d ckptrun --restart ...`", r.manifest.Epoch, n, ranks, n)
}

// open opens and checks a rank's image.
func (r *Restart) open(rank int) (*image.File, Meta, error) {
	f, err := r.store.OpenImage(r.manifest, rank)
	if err != nil {
		return nil, Meta{}, r.advise(err)
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

// advise adds what to do when an image is damaged and an older epoch is there.
func (r *Restart) advise(err error) error {
	var corrupt *image.CorruptError
	if !errors.As(err, &corrupt) {
		return err
	}
	epochs, lerr := r.store.Epochs()
	if lerr != nil {
		return err
	}
	for i := len(epochs) - 1; i >= 0; i-- {
		if e := &epochs[i]; e.Committed() && e.Number < r.manifest.Epoch {
			return fmt.Errorf("%w; an older epoch is there: --restart %s@%d", err, r.store.Dir(), e.Number)
		}
	}
	return err
}

func readMeta(f *image.File) (Meta, error) {
	b, err := f.Meta()
	if err != nil {
		return Meta{}, err
	}
	var m Meta
	if err := json.Unmarshal(b, &m); err != nil {
		return Meta{}, fmt.Errorf("%s: section \"meta\": %w", f.Name(), err)
	}
	if m.Version != metaVersion {
		return Meta{}, fmt.Errorf("%s: was written by libckpt %s (sections of version %d); this is libckpt %s (version %d)",
			f.Name(), m.Libckpt, m.Version, Version, metaVersion)
	}
	return m, nil
}

// Continue restores a program without MPI into this process.
func Continue(h Host, o launch.Options, r *Restart, log *zap.Logger) (*Job, error) {
	j, f, err := beginRestore(h, o, r, 0, log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := j.restore(r, f); err != nil {
		return nil, err
	}
	return j, j.serve()
}

// ContinueRuntime restores this rank of an MPI job: memory first, then the objects in the fresh
// runtime. Collective.
func ContinueRuntime(h Host, o launch.Options, r *Restart, rt Runtime, tables *vid.Tables, log *zap.Logger) (*Job, error) {
	if err := r.CheckRanks(rt.Ranks()); err != nil {
		return nil, err
	}
	j, f, err := beginRestore(h, o, r, rt.Rank(), log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := j.restore(r, f); err != nil {
		return nil, err
	}
	objects, err := f.Section(sectionObjects)
	if err != nil {
		return nil, err
	}
	if err := tables.Load(objects); err != nil {
		return nil, fmt.Errorf("%s: section %q: %w", f.Name(), sectionObjects, err)
	}
	if j.messages, err = f.Section(sectionMessages); err != nil {
		return nil, err
	}
	if _, err := drain.Decode(j.messages); err != nil {
		return nil, fmt.Errorf("%s: section %q: %w", f.Name(), sectionMessages, err)
	}
	if j.state, err = f.Section(sectionRuntime); err != nil {
		return nil, err
	}
	return j, j.connect(rt, tables)
}

// RebuildObjects makes every object again in the fresh runtime; the runtime has bound its predefined
// ones. Collective. Only then can the job be saved: a rank that is still busy here has calls under way
// that no counter knows.
func (j *Job) RebuildObjects() error {
	if err := j.rebuildObjects(); err != nil {
		return err
	}
	if _, err := j.runtime.Allgather([]byte{0}); err != nil {
		return err
	}
	return j.serve()
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

func beginRestore(h Host, o launch.Options, r *Restart, rank int, log *zap.Logger) (*Job, *image.File, error) {
	f, meta, err := r.open(rank)
	if err != nil {
		return nil, nil, err
	}
	meta.Libckpt, meta.Kernel = Version, kernel()
	meta.Host, _ = os.Hostname()
	return newJob(h, o, meta, log), f, nil
}

// restore brings memory, files and threads of the image into this process.
func (j *Job) restore(r *Restart, f *image.File) error {
	threads, err := f.Section(sectionThreads)
	if err != nil {
		return err
	}
	b, err := f.Section(sectionFiles)
	if err != nil {
		return err
	}
	table, err := files.Decode(b)
	if err != nil {
		return fmt.Errorf("%s: section %q: %w", f.Name(), sectionFiles, err)
	}
	if err := snapshot.Map(context.Background(), f, 0, nil); err != nil {
		return r.advise(err)
	}
	if err := os.Chdir(j.meta.Dir); err != nil {
		return fmt.Errorf("the program's working directory: %w; make it again, or mount what it was on", err)
	}
	err = files.Restore(table, files.Options{
		Inherited:     [3]int{j.host.Original(0), j.host.Original(1), j.host.Original(2)},
		Keep:          j.options.Files == "keep",
		IgnoreChanged: j.options.Files == "ignore",
		Place:         j.host.Place,
		Warn:          func(m string) { j.log.Warn(m) },
	})
	if err != nil {
		return err
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
	if err := j.host.Load(threads); err != nil {
		return fmt.Errorf("%s: section %q: %w", f.Name(), sectionThreads, err)
	}
	return nil
}
