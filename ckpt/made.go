// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/internal/regular"
)

// Names that the program gives to files after a checkpoint are noted in a log of each process, in the folder "made" of the checkpoint
// directory: so a restart can move out of the way what was not there at the epoch that it takes (capi/host/made.c). An image says
// where the log ended then. The log goes on from one run to the next, and what is before all epochs that are left is
// given back to the disk.

const (
	madeFolder = "made"
	madeMagic  = "ckptmade" // so no place in a log is 0
	// madeBatch is how much is given back at a time.
	madeBatch = 4 << 20
)

// madeLog is the log of this process.
type madeLog struct {
	file   *os.File
	folder *os.File      // of what is kept; nil: nothing is
	tried  string        // the directory, or empty
	ends   map[int]int64 // by epoch of which this is known
	freed  int64
}

func (j *Job) madePath(s *store.Store) string {
	return filepath.Join(s.Dir(), madeFolder, store.ImagePrefix(j.meta.Rank))
}

// keptPath is the folder in which it is kept what the program takes from files after a checkpoint.
func (j *Job) keptPath(s *store.Store) string { return j.madePath(s) + ".kept" }

func openKept(path string) (*os.File, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// noteMade has names noted from now on, and returns where the log ends; 0: there is none.
func (j *Job) noteMade(s *store.Store) int64 {
	l := &j.made
	if !j.options.KeepsFiles() || j.regional != nil {
		return 0
	}
	if l.tried != s.Dir() {
		// A restart goes on with the log of where it comes from, until an epoch is made elsewhere. The host has those files until it gets others.
		defer func(old madeLog) {
			if old.file != nil {
				_ = old.file.Close()
			}
			if old.folder != nil {
				_ = old.folder.Close()
			}
		}(*l)
		*l = madeLog{tried: s.Dir()}
		var err error
		if l.file, err = openMade(j.madePath(s)); err != nil {
			j.log.Warn("files that the program makes after this are not moved out of the way by a restart", zap.Error(err))
			j.host.Made(-1, -1, 0, 0)
			return 0
		}
		if l.folder, err = openKept(j.keptPath(s)); err != nil {
			j.log.Warn("files that the program changes after this are not put back by a restart", zap.Error(err))
		}
	}
	if l.file == nil {
		return 0
	}
	begin := func(end int64) int64 {
		folder := -1
		if l.folder != nil {
			folder = int(l.folder.Fd())
		}
		// Each time: from here on the log is to be of use without what is before.
		j.host.Made(int(l.file.Fd()), folder, end, j.options.FilesCopy)
		return end
	}
	st, err := l.file.Stat()
	if err == nil && st.Size() < j.meta.Made { // a power cut has taken its end, of which nothing was made durable
		if err = l.file.Truncate(j.meta.Made); err == nil {
			return begin(j.meta.Made)
		}
	}
	if err != nil {
		return 0
	}
	return begin(st.Size())
}

func openMade(path string) (*os.File, error) {
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	switch {
	case err != nil:
	case !st.Mode().IsRegular():
		err = fmt.Errorf("%s is not a regular file", path)
	case st.Size() == 0:
		_, err = f.WriteString(madeMagic)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// madeAt remembers where the log ended at an epoch, and frees what no epoch needs.
func (j *Job) madeAt(epoch int, end int64) {
	l := &j.made
	if l.file == nil || end == 0 {
		return
	}
	if l.ends == nil {
		l.ends = map[int]int64{}
	}
	l.ends[epoch] = end
	if j.store == nil { // a restart has not come so far
		return
	}
	kept := l.kept()
	if len(kept) == 0 && end-l.freed < madeBatch {
		return
	}
	list, err := j.store.Epochs()
	if err != nil {
		return
	}
	for _, e := range list {
		at, known := l.ends[e.Number]
		if !known {
			return
		}
		end = min(end, at)
	}
	for _, name := range kept {
		at, _, _ := strings.Cut(name, "-")
		if of, err := strconv.ParseInt(at, 16, 64); err == nil && of < end {
			_ = os.Remove(filepath.Join(l.folder.Name(), name))
		}
	}
	if end-l.freed < madeBatch {
		return
	}
	// A file system that cannot keeps it.
	if unix.Fallocate(int(l.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, end) == nil {
		l.freed = end
	}
}

// kept are the names of what is kept. Each begins with the place in the log after which it is needed.
func (l *madeLog) kept() []string {
	if l.folder == nil {
		return nil
	}
	list, _ := os.ReadDir(l.folder.Name())
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name()
	}
	return names
}

// changesWord is what a process says of what it did to files after the epoch.
type changesWord struct {
	Changes []files.Change `json:"changes,omitempty"`
	remadeWord
	// Seen is when the job was last seen to live before this, in nanoseconds since 1970, as the owner of the directory knows it; 0: it does not.
	Seen int64 `json:"seen,omitempty"`
}

// remadeWord has what was made in the place of files, in pairs.
type remadeWord struct {
	Remade []files.Which `json:"remade,omitempty"`
}

func (w *remadeWord) tell(remade map[files.Which]files.Which) {
	for old, now := range remade {
		w.Remade = append(w.Remade, old, now)
	}
}

func (w *remadeWord) learn(remade map[files.Which]files.Which) {
	for i := 0; i+1 < len(w.Remade); i += 2 {
		remade[w.Remade[i]] = w.Remade[i+1]
	}
}

// undoWord is what became of a turn.
type undoWord struct {
	remadeWord
	Failed string `json:"failed,omitempty"`
}

// undo gives files back what the job took from them after the epoch, and moves what it made since out of the way. Collective; when it
// returns, all ranks have done it.
func (j *Job) undo(s *store.Store, gather func([]byte) ([][]byte, error)) (*undone, error) {
	changes, err := j.changes(s)
	if err != nil {
		j.log.Warn("files that were made or changed after the checkpoint may stay so", zap.Error(err))
	}
	mine := changes.List
	word := changesWord{Changes: files.Tell(mine, nil)}
	word.tell(changes.Remade)
	if at := j.owned.lastSeen(s.Dir()); !at.IsZero() {
		word.Seen = at.UnixNano()
	}
	words, err := gatherAs(gather, word)
	if err != nil {
		return nil, err
	}
	me := 0
	if gather != nil {
		me = j.meta.Rank
	}
	var seen time.Time
	all := make([][]files.Change, len(words))
	any := false
	remade := map[files.Which]files.Which{}
	for r, w := range words {
		all[r] = w.Changes
		w.learn(remade)
		any = any || len(w.Changes) > 0
		if w.Seen != 0 {
			seen = time.Unix(0, w.Seen)
		}
	}
	if any && len(words) > 1 {
		others := slices.Clone(all)
		others[me] = nil
		words, err := gatherAs(gather, changesWord{Changes: files.Tell(mine, others)})
		if err != nil {
			return nil, err
		}
		for r, w := range words {
			all[r] = append(all[r], w.Changes...)
		}
	}
	plan := files.NewPlan(all)
	var moved, back []string
	u := &files.Undoing{Folder: j.keptPath(s), Seen: seen, Epoch: j.meta.Made, Log: io.Discard, Remade: remade,
		Moved: func(p string) { moved = append(moved, p) },
		Others: func(p string) {
			j.log.Warn("a file that was written to after the job had ended is as it was at the checkpoint; what it had is in .newer", zap.String("file", p))
		},
		Back: func(p string) { back = append(back, p) },
		Lost: func(err error) { j.log.Warn("a file that was changed after the checkpoint stays so", zap.Error(err)) }}
	if len(mine) > 0 {
		f, err := openMade(j.madePath(s))
		if err != nil {
			u.Unnoted = err
		} else {
			defer f.Close()
			u.Log = f
		}
	}
	done := false
	defer func() {
		if !done {
			u.Close()
		}
	}()
	for turn := range max(plan.N, 1) {
		var now []files.Change // the last first
		for ; len(mine) > 0; mine = mine[:len(mine)-1] {
			at := len(mine) - 1
			c, of, told := plan.Turn(me, at)
			if told && of > turn {
				break
			}
			switch {
			case !told:
				now = append(now, mine[at])
			case of >= 0:
				now = append(now, mine[at].As(c))
			}
		}
		slices.Reverse(now)
		known := len(u.Remade)
		var did undoWord
		if err := u.Undo(now); err != nil {
			did.Failed = err.Error()
		}
		if len(u.Remade) > known {
			did.tell(u.Remade)
		}
		dids, err := gatherAs(gather, did)
		if err != nil {
			return nil, err
		}
		for r := range dids {
			dids[r].learn(u.Remade)
			if dids[r].Failed == "" {
				continue
			}
			err := fmt.Errorf("rank %d: files that were made or changed after the checkpoint cannot be as they were: %s", r, dids[r].Failed)
			if j.options.Files != "ignore" {
				return nil, fmt.Errorf("%w; mend that and restart again, or go on with --files ignore", err)
			}
			j.log.Warn("the program goes on with files as they are", zap.Error(err))
		}
	}
	if len(moved) > 0 {
		j.log.Warn("files that were made after the checkpoint have other names now (.newer)", zap.Int("files", len(moved)), zap.String("first", moved[0]))
	}
	if len(back) > 0 {
		j.log.Info("files that were changed, renamed or removed after the checkpoint are as they were", zap.Int("files", len(back)), zap.String("first", back[0]))
	}
	if u.Unnoted != nil {
		j.log.Warn("if this restart is killed before it has put all files back, the next one may not do it right", zap.Error(u.Unnoted))
	}
	done = true
	return &undone{plan, u}, nil
}

// undone is what a restart knows of files that it has put back.
type undone struct {
	*files.Plan
	*files.Undoing
}

// noteThrough notes that what came after the epoch is undone, once that is so in all ranks.
func (j *Job) noteThrough(s *store.Store) {
	if j.meta.Made == 0 || !j.options.KeepsFiles() {
		return
	}
	f, err := regular.Open(j.madePath(s), os.O_WRONLY|os.O_APPEND)
	if errors.Is(err, fs.ErrNotExist) || readOnly(err) { // then nothing else is noted there either
		return
	}
	if err == nil {
		err = errors.Join(files.NoteThrough(f, j.meta.Made), f.Close())
	}
	if err != nil {
		j.log.Warn("the next restart may not know which files this one has put back", zap.Error(err))
	}
}

// changes reads what this process did to files after the epoch.
func (j *Job) changes(s *store.Store) (c files.Changes, err error) {
	if j.meta.Made == 0 || !j.options.KeepsFiles() {
		return c, nil
	}
	f, err := j.openMadeLog(s)
	if f == nil {
		return c, err
	}
	defer func() { _ = f.Close() }()
	c, err = files.ReadChanges(f, j.meta.Made)
	if err == nil && c.More {
		err = errors.New("there were more than are noted")
	}
	if err == nil && c.Behind {
		err = errors.New("the job was continued from an older epoch meanwhile")
	}
	return c, err
}

// appendedWord is what a process says of files that were appended to after the epoch.
type appendedWord struct {
	Files []files.Appended `json:"files,omitempty"`
	// Open are files that were open at the epoch: they are put back as they were, whoever wrote to them.
	Open []uint64 `json:"open,omitempty"`
	// Seen is when the job was last seen to live before this, in nanoseconds since 1970, as the owner of the directory knows it; 0: it does not.
	Seen int64 `json:"seen,omitempty"`
}

// cutWord is what became of the files of which this process is the first, by their places in the list.
type cutWord struct {
	Cut  []int `json:"cut,omitempty"`
	Left []int `json:"left,omitempty"` // they are longer than they were
}

// appended is what the job appended after the epoch to files that it opened for that.
type appended struct {
	mine  []files.Appended
	list  []files.Appended // of all ranks
	first []int            // of each of these, the rank that cuts it
	open  map[uint64]bool  // inodes that are put back as they were, whoever wrote to them
	seen  time.Time        // when the job was last seen to live
}

// grown tells whether a file that was only read at the epoch is one to which the job has appended since. Another rank may have.
func (a *appended) grown(ino uint64, size int64) bool {
	return slices.ContainsFunc(a.list, func(f files.Appended) bool { return f.File.Ino == ino && f.Base == size && !f.Unsure })
}

// gatherAppended finds that out. Collective; nothing is changed.
func (j *Job) gatherAppended(s *store.Store, table *files.Table, gather func([]byte) ([][]byte, error)) (*appended, error) {
	mine := appendedWord{Open: table.Written()}
	if at := j.owned.lastSeen(s.Dir()); !at.IsZero() {
		mine.Seen = at.UnixNano()
	}
	if j.meta.Made != 0 && j.options.KeepsFiles() {
		var err error
		if mine.Files, err = j.readAppended(s); err != nil {
			mine.Files = nil // what follows may say that others were at them
			j.log.Warn("what was appended to files after the checkpoint stays", zap.Error(err))
		}
	}
	words, err := gatherAs(gather, mine)
	if err != nil {
		return nil, err
	}
	a := &appended{mine: mine.Files, open: map[uint64]bool{}}
	all := make([][]files.Appended, len(words))
	for r, w := range words {
		all[r] = w.Files
		if w.Seen != 0 {
			a.seen = time.Unix(0, w.Seen)
		}
		for _, ino := range w.Open {
			a.open[ino] = true
		}
	}
	a.list, a.first = files.JoinAppended(all)
	return a, nil
}

// cutAppended cuts it off. Collective; when it returns, nobody moves anything aside any more.
func (j *Job) cutAppended(s *store.Store, table *files.Table, a *appended, undone *undone, gather func([]byte) ([][]byte, error)) error {
	list := a.list
	if len(list) == 0 {
		j.noteThrough(s)
		return nil
	}
	var did cutWord
	bytes := int64(0)
	for i := range list {
		if a.first[i] != j.meta.Rank || a.open[list[i].File.Ino] || undone.Knows(list[i].File) {
			continue
		}
		n, err := list[i].Cut(a.seen, undone.Found(list[i].File))
		if err != nil {
			did.Left = append(did.Left, i)
			j.log.Warn("a file that was appended to after the checkpoint", zap.Error(err))
		}
		if n > 0 {
			did.Cut = append(did.Cut, i)
			bytes += n
		}
	}
	if n := len(did.Cut); n > 0 {
		j.log.Info("what the job appended to closed files after the checkpoint was cut off: it writes that again", zap.Int("files", n),
			zap.Int64("bytes", bytes), zap.String("first", list[did.Cut[0]].Path))
	}
	cuts, err := gatherAs(gather, did)
	if err != nil {
		return err
	}
	j.noteThrough(s)
	for _, c := range cuts {
		for _, i := range c.Cut {
			if i < 0 || i >= len(list) {
				continue
			}
			if err := table.Restamp(list[i].File.Ino); err != nil {
				j.log.Warn("a file that was appended to after the checkpoint", zap.Error(err))
			}
		}
		err := errors.Join(j.noteCut(s, list, c.Cut, a.mine, true), j.noteCut(s, list, c.Left, a.mine, false))
		if err != nil {
			j.log.Warn("the next restart may not know what this job appends to a file", zap.Error(err))
		}
	}
	return nil
}

// noteCut notes what became of those files of the list that are among mine, too.
func (j *Job) noteCut(s *store.Store, list []files.Appended, which []int, mine []files.Appended, cut bool) error {
	var errs []error
	for _, i := range which {
		if i < 0 || i >= len(list) || !slices.ContainsFunc(mine, func(a files.Appended) bool { return a.File == list[i].File }) {
			continue
		}
		f, err := openMade(j.madePath(s))
		if err != nil {
			return err
		}
		errs = append(errs, list[i].Note(f, cut), f.Close())
	}
	return errors.Join(errs...)
}

// readAppended reads what this process appended after the epoch.
func (j *Job) readAppended(s *store.Store) ([]files.Appended, error) {
	f, err := j.openMadeLog(s)
	if f == nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return files.ReadAppended(f, j.meta.Made)
}

// openMadeLog opens the log of this process where it ended at the epoch; nil: there is none.
func (j *Job) openMadeLog(s *store.Store) (*os.File, error) {
	f, err := regular.Open(j.madePath(s), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) { // a copy of the epoch
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if _, err = f.Seek(j.meta.Made, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
