// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/internal/objectstore"
)

// sameImage is what the manifest says of an image and others.
type sameImage struct {
	Bytes  int64
	Shared uint64
	Same   uint64
	Others []int
}

func imagesOf(t *testing.T, folder string) []sameImage {
	t.Helper()
	var m struct{ Images []sameImage }
	if err := json.Unmarshal(mustRead(t, filepath.Join(folder, "manifest.json")), &m); err != nil {
		t.Fatal(err)
	}
	return m.Images
}

// fewSame is less than the libraries of any program have in common.
const fewSame = 1 << 20

// wantSame wants those images to have pages in that of the first rank, and that to have all of its own.
func wantSame(t *testing.T, folder string, list ...int) {
	t.Helper()
	images := imagesOf(t, folder)
	if first := images[0]; first.Same != 0 || first.Others != nil {
		t.Errorf("%s: the first image is %+v", folder, first)
	}
	for _, r := range list {
		if im := images[r]; im.Same < fewSame || im.Bytes > images[0].Bytes-fewSame || !slices.Equal(im.Others, []int{0}) {
			t.Errorf("%s: image %d is %+v, the first %+v", folder, r, im, images[0])
		}
	}
}

// TestSamePages: what the ranks of a node have the same is in the image of the first one only, in full epochs and in those
// with what changed. Epochs of all kinds continue the job, however memory comes back, and so does a copy of one alone.
func TestSamePages(t *testing.T) {
	for mpi, full := range map[string]string{"mpich": "every 4", "openmpi": "every 1"} {
		t.Run(mpi, func(t *testing.T) {
			d := newDrift(t, mpi)
			d.killed("--full="+full, "--keep", "100")
			wantSame(t, d.folder(1), 1)
			wantSame(t, d.folder(5), 1)
			if images := imagesOf(t, d.folder(driftKill)); !slices.Equal(images[1].Others, []int{0}) {
				t.Errorf("epoch %d: %+v", driftKill, images)
			}
			d.ctl(0, []string{"verify", d.dir()}, "all sound")
			d.ctl(0, []string{"diff", d.at(1), d.at(driftKill)})
			d.ctl(0, []string{"inspect", "--tree", filepath.Join(d.folder(1), "rank-00001.ckpt")}, "SHARED")
			copied := filepath.Join(t.TempDir(), "copied")
			d.ctl(0, []string{"copy", d.at(driftKill), copied})
			d.restart(d.at(5), "--keep", "100", "--restart-mode", "eager")
			d.restart(d.at(driftKill), "--keep", "100", "--restart-mode", "lazy")
			must(t, os.RemoveAll(d.dir()))
			d.ctl(0, []string{"verify", copied}, "all sound")
			d.restart(copied)
		})
	}
}

// TestSamePagesEach: with --same-pages each, an image needs no other, and continues the job when it is read alone.
func TestSamePagesEach(t *testing.T) {
	d := newDrift(t, "mpich")
	d.killed("--same-pages", "each", "--keep", "100")
	for r, im := range imagesOf(t, d.folder(driftKill)) {
		if im.Shared != 0 || im.Others != nil {
			t.Errorf("image %d is %+v", r, im)
		}
	}
	d.restart(d.dir())
}

// pageOf is where, in the file of another image, the content of a large chunk is that the image at path refers to.
func pageOf(t *testing.T, path, other string) int64 {
	t.Helper()
	f, err := image.Open(path)
	must(t, err)
	defer f.Close()
	for _, c := range f.Chunks() {
		if c.Source != 0 && filepath.Base(f.SourcePath(int(c.Source)-1)) == other && c.Stored > 64<<10 {
			return c.Offset + int64(c.Stored)/2
		}
	}
	t.Fatalf("%s refers to nothing in %s", path, other)
	return 0
}

// TestSamePagesLost: the first rank's image, to which the other refers, rots, is the one of another epoch, or is gone; or
// the other one is gone. Nothing is continued from it, and the older epoch that is there is named, and continues the job.
func TestSamePagesLost(t *testing.T) {
	d := newDrift(t, "mpich")
	d.killed("--keep", "100", "--compress", "none")
	first, second := filepath.Join(d.folder(driftKill), "rank-00000.ckpt"), filepath.Join(d.folder(driftKill), "rank-00001.ckpt")
	for _, c := range []struct {
		name, file string
		mode       string
		hurt       func() error
	}{
		{"rotten", first, "eager", func() error {
			b, at := mustRead(t, first), pageOf(t, second, "rank-00000.ckpt")
			b[at] ^= 1
			return os.WriteFile(first, b, 0o600)
		}},
		{"swapped", first, "eager", func() error {
			return os.WriteFile(first, mustRead(t, filepath.Join(d.folder(5), "rank-00000.ckpt")), 0o600)
		}},
		{"missing", first, "lazy", func() error { return os.Remove(first) }},
		{"its own missing", second, "eager", func() error { return os.Remove(second) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			was := mustRead(t, c.file)
			must(t, c.hurt())
			d.ctl(1, []string{"verify", d.at(driftKill)}, filepath.Base(c.file))
			again := startMPI(t, d.mpi, driftRanks, func(*Run) []string {
				return []string{built.CkptRun(), "--restart-mode", c.mode, "--restart", d.at(driftKill)}
			})
			exit, err := again.Wait(mpiLimit)
			said := string(mustRead(t, again.run.Stderr))
			if err != nil || exit == (Exit{}) || len(mustRead(t, again.run.Stdout)) > 0 && strings.Contains(string(mustRead(t, again.run.Stdout)), d.want) {
				t.Errorf("%v, %v: %s", exit, err, said)
			}
			for _, w := range []string{filepath.Base(c.file), fmt.Sprintf("an older epoch is there: --restart %s@5", d.dir())} {
				if !strings.Contains(said, w) {
					t.Errorf("want %q: %s", w, said)
				}
			}
			must(t, os.WriteFile(c.file, was, 0o600))
		})
	}
	must(t, os.Remove(first))
	d.restart(d.at(5))
}

// TestSamePagesWriterFails: the first rank cannot write its image, or dies while it does. There is no such epoch, the
// older one is whole and continues the job, and the other rank has not waited for ever.
func TestSamePagesWriterFails(t *testing.T) {
	for _, fault := range []string{"image.write.data=enospc:9", "image.write.sync=error:2", "image.write.data=kill:150", "image.write.rename=kill:2"} {
		t.Run(fault, func(t *testing.T) {
			d := newDrift(t, "mpich")
			faults := filepath.Join(built.Root, "build/obj/faults/bin/ckptrun")
			d.job = startMPI(t, d.mpi, driftRanks, func(r *Run) []string {
				return faulty(0, fault, faults, "--dir", r.Checkpoints(), "--keep", "100", "--", d.program, strconv.Itoa(driftSteps), strconv.Itoa(driftMiB))
			})
			if strings.Contains(fault, "kill") {
				// MPICH 4.2's launcher sometimes ends with status 0: that the job was killed is seen by its epochs.
				if exit, err := d.job.Wait(mpiLimit); err != nil {
					t.Fatalf("%v, %v", exit, err)
				}
				for _, pid := range d.job.mark.Ranks() {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			} else {
				d.job.mustEnd(t)
				if said := string(mustRead(t, d.job.run.Stderr)); !strings.Contains(said, "rank 0: ") {
					t.Errorf("does not say whose image it was: %s", said)
				}
			}
			list := d.epochs()
			if len(list) == 0 || len(list) >= driftSteps {
				t.Fatalf("%d epochs", len(list))
			}
			for n, e := range list {
				if e.State == "committed" {
					d.ctl(0, []string{"verify", d.at(n)}, "all sound")
				}
			}
			d.restart(d.dir())
		})
	}
}

// TestLevelsSamePages: two ranks on each of two nodes. What the second rank of a node has in the image of the first one is
// had again after the loss of the node, and where both ranks are on nodes of their own afterwards.
func TestLevelsSamePages(t *testing.T) {
	for _, c := range []struct {
		name, mpi, levels, level, says string
		lose                           []int
		perNode                        int
	}{
		{"partner", "mpich", "L1:every,L2:6", "2", "copied from node", []int{0}, 2},
		{"coded", "openmpi", "L1:every,L3:6", "3", "computed from parities", []int{1}, 2},
		{"shared", "mpich", "L1:every,L4:6", "4", "", []int{0, 1}, 2},
		{"other nodes", "mpich", "L1:every", "1", "rank-00001.ckpt", nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := killedDriftOn(t, c.mpi, 2, c.level, "--full", "every", "4", "--levels", c.levels)
			images := imagesOf(t, filepath.Join(j.run.Checkpoints(), "epoch-000005"))
			for r, want := range [][]int{nil, {0}, nil, {2}} {
				if !slices.Equal(images[r].Others, want) || (images[r].Same > fewSame) != (want != nil) {
					t.Errorf("image %d is %+v, want one that refers to %v", r, images[r], want)
				}
			}
			j.nodes.lose(t, c.lose...)
			j.nodes.perNode = c.perNode
			j.ends(t, []string{"--levels", "L1:every"}, c.says)
		})
	}
}

// TestObjectStoreSamePages: all is lost but what is in the object store.
func TestObjectStoreSamePages(t *testing.T) {
	server := objectstore.Start(t)
	objectstore.Setenv(t, server.Proxy(t).Endpoint)
	place := "s3://" + objectstore.Bucket + "/jobs/drift"
	to := []string{"--full", "every", "4", "--levels", "L1:every,L4:6", "--object", place}
	d := killedDriftOn(t, "mpich", 2, "4", to...)
	copied := filepath.Join(t.TempDir(), "copied")
	if out, err := exec.Command(built.CkptCtl(), "copy", place+"@6", copied).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := exec.Command(built.CkptCtl(), "verify", copied).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	must(t, os.RemoveAll(d.run.Checkpoints()))
	d.nodes.lose(t, 0, 1)
	d.ends(t, to, "brought from the object store", "epoch 6")
}
