// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/ckpt/snapshot"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/ckpt/sysv"
	"github.com/libckpt/libckpt/internal/regular"
)

// Which epoch a restart continues. Rank 0 lists the epoch that was asked for and, unless it was named or --fallback no
// forbids it, older ones of the same job. All ranks look at one after the other, until each has what it needs:
//
//	rank 0: candidates ──► manifests ──► images are brought (rebuild.go) ──► own image opened and checked, with what is
//	                          │               │                             kept of files; memory read unless it comes later
//	                          └───────────────┴── damaged or gone on a rank: all take the next one ◄──┘
//
// Nothing of the world is touched before, and the memory that was read is given back. Rank 0 says what was lost and
// what is taken instead, and notes the loss in the manifests of what is passed over: they do not count any more when old
// epochs are removed. Any other error, such as a processor that lacks what the program uses, ends the restart.

// choice is what rank 0 has all look at.
type choice struct {
	Epochs []candidate `json:"epochs,omitempty"` // newest first
	Passed []string    `json:"passed,omitempty"` // newer ones that are not looked at, in words
	Error  string      `json:"error,omitempty"`
}

// candidate is an epoch that could be continued.
type candidate struct {
	Epoch  int  `json:"epoch"`
	Spread bool `json:"spread,omitempty"` // not all of it is in the directory
}

// ready is this process's image of the epoch that is continued: it is opened and was checked.
type ready struct {
	file *image.File
	meta Meta
	// filled: the private memory is there. Otherwise it comes while the program runs.
	filled bool
	// forbidden is why it does not, where that was wanted.
	forbidden error
	suspected []string // files that a process had found damaged while its program ran, and that are not
	// What others see is filled when the files are as they were, from what was read and checked before. nil: it is read again.
	shared *snapshot.Aside
}

// settle finds the epoch that is continued. Afterwards all ranks have the same manifest, and this process's image is
// ready. rt is nil without a runtime. Collective.
func (r *Restart) settle(h Host, o launch.Options, rt Runtime, log *zap.Logger) error {
	process, processes := 0, 1
	if rt != nil {
		process, processes = rt.Rank(), rt.Ranks()
	}
	var mine choice
	if process == 0 {
		mine = r.candidates(o, heard(log))
	}
	words, err := gatherWords(rt, mine)
	if err != nil {
		return err
	}
	c := words[0]
	if c.Error != "" {
		return r.sayOnce(h, rt, errors.New(c.Error))
	}
	b := &rebuilding{r: r, rt: rt, l: &leveled{}, options: o, process: process, processes: processes, log: log}
	if slices.ContainsFunc(c.Epochs, func(e candidate) bool { return e.Spread }) {
		if err := b.meet(c.Epochs[0].Epoch); err != nil {
			return r.sayOnce(h, rt, err)
		}
		defer b.close()
	}
	lost, found := slices.Clone(c.Passed), []string(nil)
	for i, e := range c.Epochs {
		done, err := b.take(e, i+1 < len(c.Epochs))
		why, gone := lostOf(err)
		switch {
		case err == nil:
			if process == 0 {
				r.tellSettled(lost, done, log)
				r.markLost(c.Epochs[:i], found)
			}
			r.ready.clear(log)
			return nil
		case !gone, !e.Spread && len(lost) == 0 && i+1 == len(c.Epochs):
			return r.sayOnce(h, rt, err)
		}
		why = fmt.Sprintf("epoch %d is lost: %s", e.Epoch, why) + damagedText(done)
		lost, found = append(lost, why), append(found, why)
	}
	err = fmt.Errorf("%w: %s", store.ErrNone, lostText(lost))
	if older := r.older(nil); len(c.Epochs) == 1 && older != "" { // it was not to be taken
		err = &advisedError{err, older}
	}
	return r.sayOnce(h, rt, err)
}

// take has all processes get ready for an epoch. others: there are others that could be taken instead. Collective; with
// an error for which lostOf says yes, all of them have it, and another epoch may be taken.
func (b *rebuilding) take(e candidate, others bool) (done levels.Outcome, err error) {
	r := b.r
	chain, err := b.manifests(e.Epoch, e.Spread || others)
	if err != nil {
		return done, err
	}
	r.manifest = chain[0]
	if e.Spread {
		if done, err = b.bring(e.Epoch, chain); err != nil {
			return done, err
		}
		r.store = r.store.WithLocal(b.l.place.Dir)
		if set := r.manifest.Levels; set != nil && b.l.place.Dir != "" {
			r.aside = filepath.Join(b.l.place.Dir, set.Set)
		}
	}
	if r.Regions() {
		err = r.checkShare(b.process, b.processes, e.Spread)
	} else {
		r.ready, err = r.getReady(b.process, b.options, b.log)
	}
	if err = oneVoice(b.rt, b.processes, r.advise(err)); err != nil {
		r.ready.drop()
		r.ready = nil
	}
	return done, err
}

// heard tells whether warnings are read by somebody.
func heard(logger *zap.Logger) bool { return logger.Core().Enabled(zap.WarnLevel) }

// candidates lists the epoch that was asked for and, unless it was named, older ones of the same job. heard: what is
// logged is read by somebody. A runtime in regions mode decides that, and without it would not know that it goes on from
// an older epoch. Rank 0.
func (r *Restart) candidates(o launch.Options, heard bool) (c choice) {
	c.Epochs = []candidate{{r.manifest.Epoch, r.spread(r.manifest)}}
	c.Passed = r.passed
	if r.named() || !o.Fallback || r.Regions() && !heard && !c.Epochs[0].Spread {
		return c
	}
	list, err := r.store.Epochs()
	if err != nil {
		return choice{Error: err.Error()}
	}
	for _, e := range slices.Backward(list) {
		if e.Committed() && !e.Lost() && e.Number < r.manifest.Epoch && r.alike(e.Manifest) {
			c.Epochs = append(c.Epochs, candidate{e.Number, r.spread(e.Manifest)})
		}
	}
	return c
}

// named tells whether an epoch was asked for by its number.
func (r *Restart) named() bool {
	_, epoch, err := store.SplitSpec(r.spec)
	return err != nil || epoch != 0
}

// spread tells whether some of an epoch may be on nodes or in an object store. What its needs are of is found out later
// when they cannot be read.
func (r *Restart) spread(m *store.Manifest) bool {
	chain, _ := r.needed(m)
	return slices.ContainsFunc(chain, func(m *store.Manifest) bool { return m.Levels != nil || m.Objects != nil })
}

// alike tells whether another epoch could be continued by what was started for this one.
func (r *Restart) alike(m *store.Manifest) bool {
	was := r.manifest
	return m.Program == was.Program && m.Mode == was.Mode && m.MPI.ABI == was.MPI.ABI &&
		(m.MPI.Name == "none") == (was.MPI.Name == "none") && (m.ProcessCount() == was.ProcessCount() || m.Mode == modeRegions)
}

// ---- this process ----------------------------------------------------------------------------------

// getReady opens and checks the image of this process.
func (r *Restart) getReady(process int, o launch.Options, logger *zap.Logger) (_ *ready, err error) {
	f, meta, err := r.open(process)
	if err != nil {
		return nil, err
	}
	is := &ready{file: f, meta: meta}
	defer func() {
		if err != nil {
			is.drop()
		}
	}()
	if err := r.findKept(f, o, logger); err != nil {
		return nil, err
	}
	is.suspected = suspects(f)
	if r.keepsShared(f) {
		is.shared, err = snapshot.ReadAside(context.Background(), f, notPrivate)
	} else {
		err = f.VerifyRegions(context.Background(), notPrivate)
	}
	if err != nil {
		return nil, err
	}
	var later bool
	if later, is.forbidden = r.comesLater(o, f); later {
		if len(is.suspected) > 0 {
			err = f.Verify(context.Background(), nil)
		}
		return is, err
	}
	if err = snapshot.MapSome(context.Background(), f, snapshot.Private); err != nil {
		return nil, err
	}
	is.filled = true
	return is, nil
}

// findKept looks for what is kept beside the image of this process. What is lost or damaged comes from the object store
// that has it.
func (r *Restart) findKept(f *image.File, o launch.Options, logger *zap.Logger) error {
	table, err := readFiles(f)
	if err != nil {
		return err
	}
	for fetched := map[string]bool{}; ; {
		err := files.FindKept(table, r.filesOptions(o))
		lost, is := errors.AsType[*files.LostError](err)
		if !is || fetched[lost.File] {
			return err
		}
		fetched[lost.File] = true
		switch from, no := r.fetchKept(lost.File, o); {
		case no != nil:
			logger.Warn("what is kept of a file could not be brought from the object store", zap.String("file", lost.File), zap.Error(no))
			return err
		case from == "":
			return err
		default:
			logger.Warn(lost.Where() + "; brought from the object store, " + from)
		}
	}
}

// filesOptions say which files of the epoch are put back.
func (r *Restart) filesOptions(o launch.Options) files.Options {
	return files.Options{
		Snapshot:      o.KeepsFiles(),
		Epoch:         r.store.EpochDir(r.manifest.Epoch),
		Keep:          o.Files == "keep",
		IgnoreChanged: o.Files == "ignore",
	}
}

func notPrivate(r *image.Region) bool { return !snapshot.Private(r) }

// keepsShared tells whether there is memory for what others see beside that itself and the private memory, and room among
// the addresses that this process may have.
func (r *Restart) keepsShared(f *image.File) bool {
	var addresses uint64
	for i, regions := 0, f.Regions(); i < len(regions); i++ {
		if addresses += regions[i].Bytes(); notPrivate(&regions[i]) {
			addresses += regions[i].Bytes()
		}
	}
	return r.hasRoom(snapshot.AsideBytes(f, snapshot.Private)+2*snapshot.AsideBytes(f, notPrivate)) &&
		snapshot.Addresses(addresses+spare) == nil
}

// keepsSegment is keepsShared for the content of a System V segment, of which opening an image has read some bytes already.
func (r *Restart) keepsSegment(already *int64) func(image.SectionInfo) bool {
	return func(s image.SectionInfo) bool {
		if !sysv.IsContent(s.Name) || !r.hasRoom(2*uint64(*already+s.Bytes)) {
			return false
		}
		*already += s.Bytes
		return true
	}
}

// hasRoom tells whether all processes that may be on this node can take as much memory.
func (r *Restart) hasRoom(bytes uint64) bool {
	have, err := snapshot.Available()
	return err == nil && bytes <= have/uint64(max(1, min(r.manifest.ProcessCount(), runtime.NumCPU())))
}

// drop gives back what there is.
func (is *ready) drop() {
	if is == nil || is.file == nil {
		return
	}
	is.shared.Drop()
	if is.filled {
		_ = snapshot.Unmap(is.file, snapshot.Private)
	}
	_ = is.file.Close()
	is.file = nil
}

// checkShare reads this process's share of an epoch in regions mode: the ranks come to any process later.
func (r *Restart) checkShare(process, processes int, checked bool) error {
	for i := process; i < len(r.manifest.Images); i += processes {
		f, _, err := r.open(i)
		if err != nil {
			return err
		}
		if !checked {
			err = f.Verify(context.Background(), nil)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// ---- suspects --------------------------------------------------------------------------------------

// A process that finds a part of an image damaged while its program runs notes it beside the image. Whoever continues
// from that image then reads all of it first: it is taken if it is sound after all, and else passed over.

func suspectPath(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".suspect")
}

// suspect notes why an image may be damaged.
func suspect(path string, why error) error {
	return os.WriteFile(suspectPath(path), []byte(why.Error()+"\n"), 0o600)
}

// suspects lists what is noted of an image and those that it refers to.
func suspects(f *image.File) (list []string) {
	for i := range len(f.Sources()) + 1 {
		path := f.Name()
		if i > 0 {
			path = f.SourcePath(i - 1)
		}
		if _, err := os.Lstat(suspectPath(path)); err == nil {
			list = append(list, path)
		}
	}
	return list
}

// clear removes the notes: all processes have found their images sound.
func (is *ready) clear(logger *zap.Logger) {
	if is == nil {
		return
	}
	for _, path := range is.suspected {
		logger.Warn("a part of an image was damaged when it was needed the last time, and now all of it is sound", zap.String("image", path))
		_ = os.Remove(suspectPath(path))
	}
}

// ---- one voice -------------------------------------------------------------------------------------

// epochLostError says, on all ranks, that something of an epoch is damaged or gone.
type epochLostError struct {
	brief string // what
	full  string // and what to do
	own   error  // if this process has found it
}

func (e *epochLostError) Error() string { return e.full }
func (e *epochLostError) Unwrap() error { return e.own }

// EpochLost tells whether the error is that something of an epoch is damaged or gone.
func EpochLost(err error) bool { _, is := lostOf(err); return is }

// ownError has this process's error in the words that all processes have for it.
type ownError struct {
	text string
	err  error
}

func (e *ownError) Error() string { return e.text }
func (e *ownError) Unwrap() error { return e.err }

// lostOf says what of an epoch is lost, if that is what the error is about.
func lostOf(err error) (why string, is bool) {
	if e, is := errors.AsType[*epochLostError](err); is {
		return e.brief, true
	}
	if e, is := errors.AsType[*levels.LostError](err); is {
		return e.Error(), true
	}
	return "", false
}

// isDamage tells whether the error of one process is that files are damaged or gone: those of another epoch may not be.
// What a user may not read, or a process has no room for, is not lost.
func isDamage(err error) bool {
	for _, no := range []error{fs.ErrPermission, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ESTALE, unix.EINTR} {
		if errors.Is(err, no) {
			return false
		}
	}
	for _, yes := range []error{fs.ErrNotExist, store.ErrNone, unix.EIO, unix.EBADMSG, unix.EUCLEAN, unix.ENODATA} {
		if errors.Is(err, yes) {
			return true
		}
	}
	var corrupt *image.CorruptError
	var lost *image.LostError
	var kept *files.LostError
	return errors.As(err, &corrupt) || errors.As(err, &lost) || errors.As(err, &kept) || regular.IsOther(err)
}

// brief is what an error says, without what to do where no older epoch is taken.
func brief(err error) string {
	if advised, is := errors.AsType[*advisedError](err); is {
		err = advised.Err
	}
	text := err.Error()
	var corrupt *image.CorruptError
	var lost *image.LostError
	if errors.As(err, &corrupt) {
		text = strings.ReplaceAll(text, corrupt.Error(), corrupt.Where())
	}
	if errors.As(err, &lost) {
		text = strings.ReplaceAll(text, lost.Error(), lost.Where())
	}
	if kept, is := errors.AsType[*files.LostError](err); is {
		text = strings.ReplaceAll(text, kept.Error(), kept.Where())
	}
	return strings.ReplaceAll(text, "\n", "; ")
}

// oneVoice gives all processes the same result: that of the first one with an error, but for *epochLostError only where
// nothing else is wrong. Collective.
func oneVoice(rt Runtime, processes int, err error) error {
	type word struct {
		Brief string `json:"brief,omitempty"`
		Full  string `json:"full,omitempty"`
		Lost  bool   `json:"lost,omitempty"`
	}
	var mine word
	if err != nil {
		mine = word{brief(err), err.Error(), isDamage(err)}
	}
	all, gerr := gatherWords(rt, mine)
	if gerr != nil {
		return errors.Join(err, gerr)
	}
	var lost *epochLostError
	more := 0
	for rank, w := range all {
		own := err
		if rt != nil && rt.Rank() != rank {
			own = nil
		}
		switch {
		case w.Full == "":
		case !w.Lost:
			return &ownError{ofRank(processes, rank, w.Full), own}
		case lost == nil:
			lost = &epochLostError{ofRank(processes, rank, w.Brief), ofRank(processes, rank, w.Full), own}
		default:
			more++
		}
	}
	if lost == nil {
		return nil
	}
	if more > 0 {
		lost.brief += fmt.Sprintf("; and %d more ranks cannot be continued from it", more)
	}
	return lost
}

// ofRank says whose words these are.
func ofRank(processes, rank int, text string) string {
	if processes == 1 {
		return text
	}
	return fmt.Sprintf("rank %d: %s", rank, text)
}

// sayOnce has rank 0 tell the user of an error that all ranks have, before the others end. Collective.
func (r *Restart) sayOnce(h Host, rt Runtime, err error) error {
	if rt == nil || rt.Rank() == 0 {
		err = say(h, err)
	} else {
		err = &SaidError{err}
	}
	if rt != nil {
		_, gerr := rt.Allgather([]byte{0})
		err = errors.Join(err, gerr)
	}
	return err
}

// ---- what is said ----------------------------------------------------------------------------------

// tellSettled says what was lost, and what is taken.
func (r *Restart) tellSettled(lost []string, done levels.Outcome, logger *zap.Logger) {
	m := r.manifest
	if len(lost) == 0 && len(done.Damaged) == 0 && len(done.Actions) == 0 {
		logger.Info("images are where they are needed", zap.Int("epoch", m.Epoch), zap.Int("level", m.Level))
		return
	}
	text := ""
	if len(lost) > 0 {
		text = lostText(lost) + "; taken instead: "
	}
	text += fmt.Sprintf("epoch %d", m.Epoch)
	if m.Levels != nil {
		text += fmt.Sprintf(" (level %d)", m.Level)
	}
	switch n := len(done.Actions); {
	case n > 0:
		text += ", with " + strings.Join(done.Actions[:min(n, maxTold)], ", ")
		if n > maxTold {
			text += fmt.Sprintf(" and %d more", n-maxTold)
		}
	case m.Levels != nil:
		text += ", whose images are all there"
	}
	logger.Warn(text + damagedText(done))
}

// maxTold bounds the parts of a sentence.
const maxTold = 4

// lostText names the newest of the lost epochs.
func lostText(lost []string) string {
	text := strings.Join(lost[:min(len(lost), maxLost)], "; ")
	if n := len(lost) - maxLost; n > 0 {
		text += fmt.Sprintf("; and %d older ones are lost", n)
	}
	return text
}

const maxLost = 3

func damagedText(done levels.Outcome) string {
	if len(done.Damaged) == 0 {
		return ""
	}
	text := "; not used: " + strings.Join(done.Damaged[:min(len(done.Damaged), maxTold)], "; ")
	if n := len(done.Damaged) - maxTold; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// passedText says of newer epochs why they are not looked at.
func passedText(passed []store.Epoch) (list []string) {
	for _, e := range passed {
		if e.Err != nil {
			list = append(list, fmt.Sprintf("epoch %d is lost: %s", e.Number, brief(e.Err)))
		} else {
			list = append(list, fmt.Sprintf("an earlier restart has found that %s", e.Manifest.Lost()))
		}
	}
	return list
}

// markLost notes in newer epochs that they cannot be had, and in the one that is taken that it can.
func (r *Restart) markLost(epochs []candidate, why []string) {
	s := r.store
	if r.owned != nil {
		s = s.Guard(r.owned.check)
	}
	for i, e := range epochs {
		_ = s.Change(e.Epoch, func(m *store.Manifest) error { // it is found out again otherwise
			m.SetLost(why[i])
			return nil
		})
	}
	if r.manifest.Lost() != "" {
		_ = s.Change(r.manifest.Epoch, func(m *store.Manifest) error { m.SetLost(""); return nil })
	}
}
