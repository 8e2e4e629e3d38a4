// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/libckpt/libckpt/ckpt/store"
)

// Jobs of levels have as many nodes as ranks, all on this machine, in one group.
const ranksOfLevels = 4

// lostAt are the nodes that are lost before a job is continued from a level: as many as the level survives, and such as the
// level below does not.
var lostAt = [5][]int{1: nil, 2: {0, 2}, 3: {1, 2}, 4: {0, 1, 2, 3}}

// mibOfLevels is the memory of a rank: 1 GiB in all.
func (e *effort) mibOfLevels() int { return 1024 / ranksOfLevels }

// roundsOfGrids is at least 7, so that a spread says something.
func (e *effort) roundsOfGrids() int {
	if e.full {
		return 15
	}
	return 7
}

// measureLevels saves one state to each level, loses what the level survives, and goes on.
func measureLevels(ctx context.Context, b *bench) (*report, error) {
	mib := b.mibOfLevels()
	if err := b.room([]*save{{MiB: 3 * mib * ranksOfLevels / ranksOfCheckpoint / 2}}); err != nil {
		return nil, err
	}
	r := &report{
		Title: "Levels",
		Text: fmt.Sprintf("%d ranks under MPICH, each on a node of its own (`CKPT_NODE_SIZE=1`, all on this machine and its disk), in one group, have "+
			"%d MiB each that cannot be compressed. They save themselves once, to one level, and then sleep. What nodes "+
			"had is then removed: nothing at L1, nodes 0 and 2 at L2, 1 and 2 (neighbours) at L3, all at L4; and the job is started again. "+
			"*ckptrun* saves and continues processes, *regions* what a program names without ckptrun "+
			"(`MPIX_Checkpoint_protect`, `_recover`).\n\n"+
			"*Stopped* is the time inside `MPIX_Checkpoint` on the slowest rank, *committed* that from the request to the commit, all images synced, "+
			"*raised* that from the request until the epoch is at the level, all synced. *On disk* is what the epoch takes then, "+
			"in the local directories and the shared one: two or three times the state where it is there more than once. *First instruction* is "+
			"the time from the start of `mpiexec` to the return of `MPIX_Checkpoint` or `MPIX_Checkpoint_recover` on the slowest rank, images that are "+
			"missing rebuilt; *all read* that until every rank has read all its memory, and found it right after that.", ranksOfLevels, mib),
	}
	g := &grid{Title: fmt.Sprintf("%d ranks of %d MiB", ranksOfLevels, mib), Keys: []string{"", "level", "nodes lost"},
		Columns: []string{"stopped, ms", "committed, s", "raised, s", "on disk, MiB", "first instruction, s", "all read, s"}}
	jobs := []leveledSave{}
	for _, regions := range []bool{false, true} {
		for level := 1; level <= 4; level++ {
			jobs = append(jobs, leveledSave{b: b, level: level, regions: regions, mib: mib})
		}
	}
	for i := range jobs {
		g.Rows = append(g.Rows, &gridRow{Keys: jobs[i].keys(), Commands: jobs[i].shown()})
	}
	err := g.measure(ctx, b.roundsOfGrids(), func(ctx context.Context, i int) ([]float64, error) { return jobs[i].round(ctx) })
	r.Grids = []*grid{g}
	return r, err
}

// leveledSave is a job that is saved to one level.
type leveledSave struct {
	b       *bench
	level   int
	regions bool
	mib     int
}

// Names in the working directory of what is run.
const (
	dirOfLevels   = "ckpt"
	localOfLevels = "local"
	stopOfLevels  = "stop"
)

func (l *leveledSave) keys() []string {
	mode := "ckptrun"
	if l.regions {
		mode = "regions"
	}
	return []string{mode, fmt.Sprint("L", l.level), wordsOf(lostAt[l.level])}
}

func wordsOf(nodes []int) string {
	text := ""
	for i, n := range nodes {
		if i > 0 {
			text += ", "
		}
		text += strconv.Itoa(n)
	}
	if text == "" {
		return "none"
	}
	return text
}

// policy has every epoch raised to the level.
func (l *leveledSave) policy() string {
	if l.level == 1 {
		return "L1:every"
	}
	return fmt.Sprintf("L1:every,L%d:every", l.level)
}

func (l *leveledSave) launch() []string {
	return []string{"mpiexec.mpich", "-n", strconv.Itoa(ranksOfLevels), "env", "CKPT_NODE_SIZE=1"}
}

// save and restart are the commands of the two starts.
func (l *leveledSave) save() []string {
	program := []string{l.b.program("levels.mpich"), strconv.Itoa(l.mib), stopOfLevels}
	if l.regions {
		return join(l.launch(), []string{"CKPT_DIR=" + dirOfLevels, "CKPT_LOCAL=" + localOfLevels, "CKPT_LEVELS=" + l.policy()}, program)
	}
	return join(l.launch(), l.b.ckptrun("--dir", dirOfLevels, "--local", localOfLevels, "--levels", l.policy(), "--"), program)
}

func (l *leveledSave) restart() []string {
	if l.regions {
		return l.save()
	}
	return join(l.launch(), l.b.ckptrun("--local", localOfLevels, "--restart", dirOfLevels))
}

func (l *leveledSave) shown() []string {
	if l.regions {
		return []string{l.b.shown(l.save())}
	}
	return []string{l.b.shown(l.save()), l.b.shown(l.restart())}
}

func (l *leveledSave) round(ctx context.Context) ([]float64, error) {
	at := func(name string) string { return filepath.Join(l.b.scratch, name) }
	defer func() {
		for _, name := range []string{dirOfLevels, localOfLevels, stopOfLevels} {
			_ = os.RemoveAll(at(name))
		}
	}()
	job, err := l.b.begin(ctx, l.save())
	if err != nil {
		return nil, err
	}
	m, raised, err := job.raised(ctx, at(dirOfLevels), l.level)
	if err == nil {
		err = os.WriteFile(at(stopOfLevels), nil, 0o666)
	}
	if err != nil {
		return nil, errors.Join(err, job.kill())
	}
	bytes, err := diskUse(at(dirOfLevels), at(localOfLevels))
	if err != nil {
		return nil, errors.Join(err, job.kill())
	}
	out, err := job.end()
	if err != nil {
		return nil, err
	}
	saved, err := parse(out, 0)
	if err != nil {
		return nil, err
	}
	for _, node := range lostAt[l.level] {
		if err := os.RemoveAll(filepath.Join(at(localOfLevels), fmt.Sprint("node", node))); err != nil {
			return nil, err
		}
	}
	again, err := l.b.run(ctx, limitOfMany, l.restart())
	if err != nil {
		return nil, err
	}
	stopped, err1 := need(saved, "stopped")
	restarted, err2 := need(again, "restarted")
	checked, err3 := need(again, "checked")
	return []float64{stopped * 1000, m.TotalSeconds, raised.Seconds(), float64(bytes) / (1 << 20), restarted, checked}, errors.Join(err1, err2, err3)
}

// raised waits until the first epoch of a job is at the level, and returns how long that was from the request: its manifest is
// written again when it is.
func (j *liveJob) raised(ctx context.Context, dir string, level int) (*store.Manifest, time.Duration, error) {
	for time.Since(j.begun) < limitOfMany && ctx.Err() == nil {
		if m, at, err := manifestAt(dir, level); err == nil {
			if m.Asked.IsZero() {
				return nil, 0, errors.New("the manifest does not say when the checkpoint was asked for")
			}
			return m, at.Sub(m.Asked), nil
		} else if errors.Is(err, errNotRaised) {
			return nil, 0, err
		}
		select {
		case err := <-j.ended:
			j.ended <- err // for who ends it
			return nil, 0, fmt.Errorf("%s ended before its epoch was at level %d: %w\n%s", j.shown, level, err, tail(j.errors.Bytes()))
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil, 0, errors.Join(ctx.Err(), fmt.Errorf("%s: no epoch at level %d after %v", j.shown, level, time.Since(j.begun).Round(time.Second)))
}

var (
	errNotYet    = errors.New("not at that level yet")
	errNotRaised = errors.New("the epoch could not be raised")
)

// manifestAt is the manifest of the newest epoch if it is at the level, and when it was written.
func manifestAt(dir string, level int) (*store.Manifest, time.Time, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, time.Time{}, err
	}
	st, epoch, m, err := newestOf(dir)
	if err != nil {
		return nil, time.Time{}, err
	}
	if m.Levels == nil || !m.Levels.Has(level) {
		if m.Levels != nil && len(m.Levels.Failed) > 0 {
			return nil, time.Time{}, fmt.Errorf("%w: %s", errNotRaised, m.Levels.Failed[0].Why)
		}
		return nil, time.Time{}, errNotYet
	}
	info, err := os.Stat(filepath.Join(st.EpochDir(epoch), "manifest.json"))
	if err != nil {
		return nil, time.Time{}, err
	}
	return m, info.ModTime(), nil
}

// diskUse is how many bytes the files below some folders take, each once whatever its names.
func diskUse(folders ...string) (sum int64, err error) {
	type file struct{ device, inode uint64 }
	var seen []file
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			var st syscall.Stat_t
			if err := syscall.Stat(path, &st); err != nil {
				return &fs.PathError{Op: "stat", Path: path, Err: err}
			}
			f := file{st.Dev, st.Ino}
			if !slices.Contains(seen, f) {
				seen = append(seen, f)
				sum += st.Blocks * 512
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
	}
	return sum, nil
}
