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
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/rails/signaling"
)

// A restart with local directories. The nodes of now tell what they have; what is missing on a node of an epoch is fetched
// from another one, or computed from parities, before anything of the program is touched. Which epoch that is: settle.go.

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

// setOr is the set, or one for the directory.
func setOr(set, dir string) string {
	if set == "" {
		set, _ = levels.SetName(dir) // without one no local file is found
	}
	return set
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
	// later tells whether the pages of an image with that much memory are read when the program touches them, and checked
	// then. nil: none are.
	later func(memory int64) bool

	mu    sync.Mutex // what others ask for is of the epoch that is tried
	sound func(epoch int, file, path string) error
	place levels.Place
}

// meet has the processes tell of their local directories. newest is the epoch that is tried first. Collective.
func (b *rebuilding) meet(newest int) error {
	host, _ := os.Hostname()
	set := ""
	if b.process == 0 {
		if m, err := b.r.store.Manifest(newest); err == nil && m.Levels != nil {
			set = m.Levels.Set
		}
		set = setOr(set, b.r.store.Dir())
	}
	l, err := meetPlaces(b.options, host, b.process, set, func(_ int, w placeWord) ([]placeWord, error) { return gatherWords(b.rt, w) })
	if l != nil {
		b.l = l
	}
	b.node, _ = ownPlace(b.options, host, b.process)
	b.later = b.r.later(b.options)
	return err
}

// bring gets what each node needs of an epoch, whose chain is that of needed. Collective; *levels.LostError on all ranks
// if that cannot be done.
func (b *rebuilding) bring(epoch int, chain []*store.Manifest) (levels.Outcome, error) {
	m := chain[0]
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
	if b.later != nil && m.Mode != modeRegions && b.process < len(m.Images) && b.later(int64(m.Images[b.process].Payload+m.Images[b.process].Shared)) {
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
	return done, err
}

// manifests reads the manifest of an epoch on all processes, and those of the epochs that it needs. These may be
// missing unless all is wanted. Collective; lostOf says yes to the error if one of them cannot be read anywhere.
func (b *rebuilding) manifests(epoch int, all bool) ([]*store.Manifest, error) {
	m, err := b.r.store.Manifest(epoch)
	var chain []*store.Manifest
	if err == nil {
		if chain, err = b.r.needed(m); !all {
			err = nil
		}
	}
	return chain, oneVoice(b.rt, b.processes, err)
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

// connect makes a network for the files, which ends with settle. Collective.
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
