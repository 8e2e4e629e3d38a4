// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/rails/signaling"
)

// A restart with local directories. The nodes of now tell what they have. The newest epoch of which each node can get
// what it needs is taken; what is missing on a node is fetched from another one, or computed from parities, before
// anything of the program is touched. If none is left of an epoch, an older one is taken, and the user is told.

// gatherAny is an all-gather of values of any length. Collective.
func gatherAny(rt Runtime, mine []byte) ([][]byte, error) {
	if rt == nil {
		return [][]byte{mine}, nil
	}
	return gatherWith(rt.Allgather, mine)
}

// gatherWith is gatherAny with an all-gather of values of one length.
func gatherWith(gather func([]byte) ([][]byte, error), mine []byte) ([][]byte, error) {
	all, err := gather(binary.LittleEndian.AppendUint64(nil, uint64(len(mine))))
	if err != nil {
		return nil, err
	}
	lengths := make([]int, len(all))
	most := 0
	for r, b := range all {
		if len(b) != 8 || binary.LittleEndian.Uint64(b) > maxGather {
			return nil, fmt.Errorf("rank %d has too much to say of its local files", r)
		}
		lengths[r] = int(binary.LittleEndian.Uint64(b))
		most = max(most, lengths[r])
	}
	if all, err = gather(append(mine, make([]byte, most-len(mine))...)); err != nil {
		return nil, err
	}
	out := make([][]byte, len(all)) // all may be the same for ranks in one process
	for r := range all {
		out[r] = bytes.Clone(all[r][:lengths[r]])
	}
	return out, nil
}

// maxGather bounds what a rank tells of its local files.
const maxGather = 64 << 20

func gatherWords[T any](rt Runtime, mine T) ([]T, error) {
	b, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := gatherAny(rt, b)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(all))
	for r, b := range all {
		if err := json.Unmarshal(b, &out[r]); err != nil {
			return nil, fmt.Errorf("what rank %d says of its local files: %w", r, err)
		}
	}
	return out, nil
}

// choice is what rank 0 has all look at: the epochs that could be continued, newest first.
type choice struct {
	Epochs []int  `json:"epochs,omitempty"`
	Error  string `json:"error,omitempty"`
}

// settleLevels finds the epoch that is continued, and has its images brought to where they are needed. Afterwards all
// ranks have the same manifest, and open finds their images. rt is nil without a runtime. Collective.
func (r *Restart) settleLevels(h Host, o launch.Options, rt Runtime, log *zap.Logger) error {
	process, processes := 0, 1
	if rt != nil {
		process, processes = rt.Rank(), rt.Ranks()
	}
	var mine choice
	if process == 0 {
		mine = r.candidates()
	}
	words, err := gatherWords(rt, mine)
	if err != nil {
		return err
	}
	c := words[0]
	if c.Error != "" {
		return errors.New(c.Error)
	}
	if len(c.Epochs) == 0 {
		return nil // all is in the directory
	}
	host, _ := os.Hostname()
	set := ""
	if process == 0 {
		if m, err := r.store.Manifest(c.Epochs[0]); err == nil && m.Levels != nil {
			set = m.Levels.Set
		}
		set = setOr(set, r.store.Dir())
	}
	l, err := meetPlaces(o, host, process, set, func(_ int, w placeWord) ([]placeWord, error) { return gatherWords(rt, w) })
	if err != nil {
		return r.sayOnce(h, process, err)
	}
	if l == nil {
		l = &leveled{}
	}
	b := &rebuilding{r: r, rt: rt, l: l, options: o, process: process, processes: processes, log: log}
	b.node, _ = ownPlace(o, host, process)
	b.later = r.later(o)
	defer b.close()
	var lost []string
	for i, e := range c.Epochs {
		m, done, err := b.try(e)
		var gone *levels.LostError
		if errors.As(err, &gone) {
			lost = append(lost, fmt.Sprintf("epoch %d is lost: %v", e, gone)+damagedText(done))
			if i+1 < len(c.Epochs) {
				continue
			}
			err = fmt.Errorf("%w: %s", store.ErrNone, lostText(lost))
		}
		if err != nil {
			return r.sayOnce(h, process, err)
		}
		r.manifest, r.store = m, r.store.WithLocal(l.place.Dir)
		if m.Levels != nil && l.place.Dir != "" {
			r.aside = filepath.Join(l.place.Dir, m.Levels.Set)
		}
		if process == 0 {
			r.tellSettled(m, lost, done, log)
			r.markLost(c.Epochs[:i], lost)
		}
		return nil
	}
	return nil
}

// setOr is the set, or one for the directory.
func setOr(set, dir string) string {
	if set == "" {
		set, _ = levels.SetName(dir) // without one no local file is found
	}
	return set
}

// sayOnce has rank 0 tell the user of an error that all ranks have.
func (r *Restart) sayOnce(h Host, process int, err error) error {
	if process == 0 {
		return say(h, err)
	}
	return &SaidError{err}
}

// candidates lists the epoch that was asked for and, unless it was named, older ones of the same job; none, when that
// is in the directory as a whole.
func (r *Restart) candidates() choice {
	// An epoch that is lost is found to be so by try, or, when no node has anything, where images are opened: both say
	// what is gone, and look for an older epoch.
	chain, _ := r.needed(r.manifest)
	local := false
	for _, m := range chain {
		local = local || m.Levels != nil || m.Objects != nil
	}
	if !local {
		return choice{}
	}
	c := choice{Epochs: []int{r.manifest.Epoch}}
	if _, named, err := store.SplitSpec(r.spec); err != nil || named != 0 {
		return c
	}
	list, err := r.store.Epochs()
	if err != nil {
		return choice{Error: err.Error()}
	}
	for i := len(list) - 1; i >= 0; i-- {
		if e := &list[i]; e.Committed() && !e.Lost() && e.Number < r.manifest.Epoch && r.alike(e.Manifest) {
			c.Epochs = append(c.Epochs, e.Number)
		}
	}
	return c
}

// alike tells whether another epoch could be continued by what was started for this one.
func (r *Restart) alike(m *store.Manifest) bool {
	was := r.manifest
	return m.Program == was.Program && m.Mode == was.Mode && m.MPI.ABI == was.MPI.ABI &&
		(m.MPI.Name == "none") == (was.MPI.Name == "none") && (m.ProcessCount() == was.ProcessCount() || m.Mode == modeRegions)
}

// needed is an epoch and those that it needs; with an error, as far as they are there.
func (r *Restart) needed(m *store.Manifest) ([]*store.Manifest, error) {
	list := []*store.Manifest{m}
	for _, n := range m.Needs {
		one, err := r.store.Manifest(n)
		if err != nil {
			return list, fmt.Errorf("epoch %d has content in epoch %d: %w", m.Epoch, n, err)
		}
		list = append(list, one)
	}
	return list, nil
}

// rebuilding is this process's part in it.
type rebuilding struct {
	r                  *Restart
	rt                 Runtime
	l                  *leveled
	options            launch.Options
	node               string
	process, processes int
	log                *zap.Logger
	net                *signaling.Network // made when something has to be fetched
	// later tells whether the pages of an image of that many bytes are read when the program touches them, and checked
	// then. nil: none are.
	later func(bytes int64) bool

	mu    sync.Mutex // what others ask for is of the epoch that is tried
	sound func(epoch int, file, path string) error
	place levels.Place
}

// try gets what each node needs of an epoch. Collective; *levels.LostError on all ranks if that cannot be done.
func (b *rebuilding) try(epoch int) (*store.Manifest, levels.Outcome, error) {
	m, err := b.r.store.Manifest(epoch)
	var chain []*store.Manifest
	if err == nil {
		chain, err = b.r.needed(m)
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	words, gerr := gatherWords(b.rt, text)
	if gerr != nil {
		return nil, levels.Outcome{}, gerr
	}
	for rank, why := range words {
		if why != "" {
			return nil, levels.Outcome{}, &levels.LostError{Losses: []levels.Loss{{Why: fmt.Sprintf("rank %d: %s", rank, why)}}}
		}
	}
	byEpoch := map[int]*store.Manifest{}
	rebuild := &levels.Rebuild{
		Place: b.l.place, Node: b.node, Process: b.process, Records: map[int]*levels.Record{},
		Gather:  func(mine []byte) ([][]byte, error) { return gatherAny(b.rt, mine) },
		Connect: b.connect,
		Shared:  func(e int, file string) string { return b.r.store.EpochDir(e) + "/" + file },
		Sound: func(e int, file, path string) error {
			m, i, err := imageOf(byEpoch, e, file)
			if err != nil {
				return err
			}
			return soundImage(path, m, i)
		},
	}
	if b.later != nil && m.Mode != modeRegions && b.process < len(m.Images) && b.later(m.Images[b.process].Bytes+int64(m.Images[b.process].Shared)) {
		rebuild.Glance = func(e int, file, path string) error {
			m, i, err := imageOf(byEpoch, e, file)
			if err != nil {
				return err
			}
			f, err := openSound(path, m, i)
			if err != nil {
				return err
			}
			return f.Close()
		}
	}
	for _, m := range chain {
		byEpoch[m.Epoch] = m
		rebuild.Records[m.Epoch] = m.Levels
		if m.Levels != nil { // the set may be that of an earlier directory
			rebuild.Place.Set = m.Levels.Set
		}
		for i := range m.Images {
			if b.wants(m, i) || b.looksAfter(chain[0], i) {
				rebuild.Wants = append(rebuild.Wants, levels.Want{Epoch: m.Epoch, File: m.Images[i].File})
			}
		}
	}
	b.withObjects(rebuild, byEpoch, b.options)
	b.mu.Lock()
	b.sound, b.place = rebuild.Sound, rebuild.Place
	b.mu.Unlock()
	done, err := rebuild.Run()
	if gone, is := errors.AsType[*levels.LostError](err); is {
		for i := range gone.Losses {
			if l := &gone.Losses[i]; l.Epoch != epoch {
				l.Why = fmt.Sprintf("of epoch %d, which it needs, %s", l.Epoch, l.Why)
			}
		}
	}
	return m, done, err
}

// looksAfter tells whether this process is the one of its node that sees to the image of a process that is elsewhere now,
// since images of the epoch of processes that are here refer to it. Where there are no local directories, each process
// sees to its own in the directory of all.
func (b *rebuilding) looksAfter(m *store.Manifest, i int) bool {
	if m.Mode == modeRegions || b.l.node >= len(b.l.layout.Names) {
		return false
	}
	mates := b.l.layout.Processes(b.l.node)
	if slices.Contains(mates, i) {
		return false
	}
	first := slices.IndexFunc(mates, func(p int) bool { return p < len(m.Images) && slices.Contains(m.Images[p].Others, i) })
	return first >= 0 && mates[first] == b.process
}

// imageOf finds the image with that file.
func imageOf(byEpoch map[int]*store.Manifest, epoch int, file string) (*store.Manifest, int, error) {
	m := byEpoch[epoch]
	if m == nil {
		return nil, 0, fmt.Errorf("epoch %d is not looked at", epoch)
	}
	i := m.RankOf(file)
	if i < 0 {
		return nil, 0, fmt.Errorf("epoch %d has no image %s", epoch, file)
	}
	return m, i, nil
}

// connect makes a network for the files, which ends with settleLevels. Collective.
func (b *rebuilding) connect() (levels.Dial, error) {
	if b.rt == nil {
		return func(int) (levels.Conn, error) { return nil, errors.New("there is no other node") }, nil
	}
	if b.net == nil {
		net, err := join(b.rt, signaling.Config{Log: structured(b.log)})
		if err != nil {
			return nil, err
		}
		b.net = net
		net.OnConnect(func(_ int, conn *signaling.Bulk) {
			b.mu.Lock()
			place, sound := b.place, b.sound
			b.mu.Unlock()
			if err := place.Serve(conn, sound); err != nil {
				b.log.Debug("giving local files to another node", zap.Error(err))
			}
		})
	}
	return func(process int) (levels.Conn, error) { return b.net.Connect(context.Background(), process) }, nil
}

// close ends that network.
func (b *rebuilding) close() {
	if b.net == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := await(b.rt.Progress, func() (struct{}, error) { return struct{}{}, b.net.Shutdown(ctx) })
	if err != nil {
		b.log.Debug("the network for local files", zap.Error(err))
	}
}

// tellSettled says what was lost, and what was taken.
func (r *Restart) tellSettled(m *store.Manifest, lost []string, done levels.Outcome, logger *zap.Logger) {
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
	case n == 0:
		text += ", whose images are all there"
	default:
		text += ", with " + strings.Join(done.Actions[:min(n, maxTold)], ", ")
		if n > maxTold {
			text += fmt.Sprintf(" and %d more", n-maxTold)
		}
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

// markLost notes in newer epochs that they cannot be had, so that they do not count when old ones are removed.
func (r *Restart) markLost(epochs []int, why []string) {
	s := r.store
	if r.owned != nil {
		s = s.Guard(r.owned.check)
	}
	for i, e := range epochs {
		_ = s.Change(e, func(m *store.Manifest) error { // it is found out again otherwise
			if m.Levels == nil {
				return errors.New("it has no levels")
			}
			m.Levels.Lost = why[i]
			return nil
		})
	}
}
