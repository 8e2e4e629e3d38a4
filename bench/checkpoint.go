// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/store"
)

const ranksOfCheckpoint = 2

// save is one way to save one amount of memory, with what was measured, in seconds, one value a round.
type save struct {
	MiB      int    `json:"mibARank"`
	Data     string `json:"data"` // random or smooth
	Snapshot string `json:"snapshot"`
	Compress string `json:"compress"`

	Commands []string `json:"commands"`

	Touched   series `json:"touched"`   // memset of as much fresh memory, slowest rank
	Stopped   series `json:"stopped"`   // inside MPIX_Checkpoint, slowest rank
	Committed series `json:"committed"` // from the request to the commit
	DD        series `json:"dd"`        // the same bytes of memory, written by dd and synced
	Image     series `json:"imageMiB"`  // mean of the ranks
	Warm      series `json:"warm"`      // from the start of mpiexec to the return of MPIX_Checkpoint
	WarmRead  series `json:"warmRead"`  // ... and until all memory was read and found right
	Cold      series `json:"cold"`      // the same with the images out of the page cache
	ColdRead  series `json:"coldRead"`
}

// plan lists what is measured, and how many rounds of it.
func (e *effort) plan() (all []*save, rounds []int) {
	for _, mib := range []int{64, 512, 1024} {
		for _, data := range []string{"random", "smooth"} {
			for _, snapshot := range []string{"cow", "stop"} {
				for _, compress := range []string{"none", "snappy"} {
					n := e.saves
					if !e.full && mib > 64 {
						// The largest is what others are compared at; that in the middle says whether it grows in proportion.
						if n = 1; mib == 1024 {
							n = 7
						}
						if snapshot == "stop" || data == "smooth" && compress == "none" {
							continue
						}
					}
					all = append(all, &save{MiB: mib, Data: data, Snapshot: snapshot, Compress: compress})
					rounds = append(rounds, n)
				}
			}
		}
	}
	return all, rounds
}

func measureCheckpoint(ctx context.Context, b *bench) (*report, error) {
	plan, rounds := b.plan()
	if err := b.room(plan); err != nil {
		return nil, err
	}
	starts, err := b.job(ctx, "startup", "ms", nil, nil, nil)
	if err != nil {
		return nil, err
	}
	for i, s := range plan {
		fmt.Printf("   %d MiB a rank, %s, %s, %s: %d rounds\n", s.MiB, s.Data, s.Snapshot, s.Compress, rounds[i])
		for round := range rounds[i] {
			if err := s.round(ctx, b, round); err != nil {
				return nil, err
			}
		}
	}
	return &report{
		Title: "Checkpoint and restart",
		Text: "2 ranks under MPICH fill their memory, save themselves once and are continued from what was saved. " +
			"*Random* data cannot be compressed; *smooth* is a slowly varying field, where neighbours are mostly " +
			"equal. *Stopped* is the time inside `MPIX_Checkpoint` on the slowest rank, *committed* that from the " +
			"request to the rename of the manifest, all images synced. *dd* writes the same amount of memory: one " +
			"`dd bs=1M conv=fsync` a rank at the same time, in turns with the checkpoints, of random bytes that stand in memory (a file in /dev/shm, as " +
			"/dev/zero has a single page of them, and a disk may make less of zeros).\n\n" +
			"*Restart* is the time from the start of `mpiexec` to the return of `MPIX_Checkpoint` on the slowest " +
			"rank, *read* that until every rank has read all its memory and found it right. *Cold* is with the " +
			"images dropped from the page cache of this system. *Touch* is what the program itself needs to write to " +
			"as much fresh memory for the first time, with `memset`: memory alone takes that long.",
		Comparisons: starts,
		Saves:       plan,
	}, nil
}

// room refuses to begin what cannot end.
func (b *bench) room(plan []*save) error {
	most := 0
	for _, s := range plan {
		most = max(most, s.MiB)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(b.scratch, &fs); err != nil {
		return err
	}
	// Images and the files of dd, and as much again.
	need := uint64(most) << 20 * ranksOfCheckpoint * 3
	if free := fs.Bavail * uint64(fs.Bsize); free < need {
		return fmt.Errorf("%s has %d MiB free, and %d MiB are needed", b.build, free>>20, need>>20)
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return err
	}
	need = uint64(most)<<20*ranksOfCheckpoint*2 + 1<<30 // an image and its copy, or what dd reads and writes
	if all := uint64(info.Totalram) * uint64(info.Unit); all < need {
		return fmt.Errorf("this machine has %d MiB of memory, and %d MiB are needed", all>>20, need>>20)
	}
	return nil
}

// round is dd, a checkpoint and two restarts; dd comes after them in every second round.
func (s *save) round(ctx context.Context, b *bench, round int) error {
	if round%2 == 0 {
		if err := s.dd(ctx, b); err != nil {
			return err
		}
	}
	if err := s.saveAndRestart(ctx, b); err != nil {
		return err
	}
	if round%2 == 1 {
		return s.dd(ctx, b)
	}
	return nil
}

// limit is generous: 10 MiB a second and rank.
func (s *save) limit() time.Duration { return limitOfRun + time.Duration(s.MiB)*100*time.Millisecond }

func (s *save) saveAndRestart(ctx context.Context, b *bench) error {
	const name = "ckpt" // in the working directory of what is run
	dir := filepath.Join(b.scratch, name)
	defer os.RemoveAll(dir)
	launch := implementations[0].launch
	program := []string{b.program("checkpoint" + implementations[0].suffix), strconv.Itoa(s.MiB), s.Data}
	saving := join(launch, b.ckptrun("--dir", name, "--snapshot", s.Snapshot, "--compress", s.Compress, "--"), program)
	restart := join(launch, b.ckptrun("--restart", name))
	s.Commands = []string{b.shown(saving), b.shown(restart)}

	answers, err := b.run(ctx, s.limit(), saving)
	if err != nil {
		return err
	}
	touched, err1 := need(answers, "touched")
	stopped, err2 := need(answers, "stopped")
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("%s: %w", b.shown(saving), err)
	}
	st, err := store.Open(dir)
	if err != nil {
		return err
	}
	epoch, err := st.Newest()
	if err != nil {
		return fmt.Errorf("%s left no committed epoch: %w", b.shown(saving), err)
	}
	m, err := st.Manifest(epoch)
	if err != nil {
		return err
	}
	if m.TotalSeconds <= 0 || len(m.Images) != ranksOfCheckpoint {
		return fmt.Errorf("the manifest speaks of %d images and %g s", len(m.Images), m.TotalSeconds)
	}
	bytes := int64(0)
	for _, im := range m.Images {
		bytes += im.Bytes
	}
	s.Touched = append(s.Touched, touched)
	s.Stopped = append(s.Stopped, stopped)
	s.Committed = append(s.Committed, m.TotalSeconds)
	s.Image = append(s.Image, float64(bytes)/float64(len(m.Images))/(1<<20))

	for _, cold := range []bool{false, true} {
		at, read := &s.Warm, &s.WarmRead
		if cold {
			at, read = &s.Cold, &s.ColdRead
			for r := range m.Images {
				if err := forget(st.ImagePath(epoch, r)); err != nil {
					return err
				}
			}
		}
		answers, err := b.run(ctx, s.limit(), restart)
		if err != nil {
			return err
		}
		restarted, err1 := need(answers, "restarted")
		checked, err2 := need(answers, "checked")
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("%s: %w", b.shown(restart), err)
		}
		*at, *read = append(*at, restarted), append(*read, checked)
	}
	return nil
}

// need returns the answer of a name, in seconds.
func need(answers []answer, name string) (float64, error) {
	for _, a := range answers {
		if a.name == name {
			return a.value * units["s"], nil
		}
	}
	return 0, fmt.Errorf("does not say %q", name)
}

// forget drops a synced file from the page cache.
func forget(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return &os.PathError{Op: "fadvise", Path: path, Err: err}
	}
	return nil
}

// dd times one dd a rank, all at the same time.
func (s *save) dd(ctx context.Context, b *bench) error {
	if _, err := exec.LookPath("dd"); err != nil {
		return err
	}
	var from [ranksOfCheckpoint]string
	for r := range from {
		var err error
		if from[r], err = memory(s.MiB, uint64(r)); err != nil {
			return err
		}
		defer os.Remove(from[r])
	}
	errs := make([]error, ranksOfCheckpoint)
	var all sync.WaitGroup
	began := time.Now()
	for r := range ranksOfCheckpoint {
		name := fmt.Sprintf("dd.%d", r)
		defer os.Remove(filepath.Join(b.scratch, name))
		all.Go(func() {
			_, errs[r] = b.exec(ctx, s.limit(), []string{"dd", "if=" + from[r], "of=" + name, "bs=1M", "conv=fsync", "status=none"})
		})
	}
	all.Wait()
	s.DD = append(s.DD, time.Since(began).Seconds())
	return errors.Join(errs...)
}

// memory is a file that is in memory alone, of so many MiB of random bytes.
func memory(mib int, seed uint64) (string, error) {
	f, err := os.CreateTemp("/dev/shm", "libckpt-bench-")
	if err != nil {
		return "", err
	}
	source := rand.NewChaCha8([32]byte{byte(seed)})
	_, err = io.CopyN(f, source, int64(mib)<<20)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("write %d MiB to memory: %w", mib, err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}
