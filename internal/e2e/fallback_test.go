// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/ckpt/image"
)

// flip changes a byte of a file.
func flip(t *testing.T, path string, at int64) {
	t.Helper()
	b := mustRead(t, path)
	b[at] ^= 1
	writeFile(t, path, b)
}

// ownPage is where the file of an image has content in the middle of its largest chunk.
func ownPage(t *testing.T, path string) int64 {
	t.Helper()
	f, err := image.Open(path)
	must(t, err)
	defer f.Close()
	var at, most int64
	for _, c := range f.Chunks() {
		if n := int64(c.Stored); c.Source == 0 && n > most {
			at, most = c.Offset+n/2, n
		}
	}
	if most == 0 {
		t.Fatalf("%s has no content of its own", path)
	}
	return at
}

// TestFallback: the newest epoch is damaged, in each way and in that of its parent. `--restart DIR` continues the newest
// older one that is whole, says once what was lost and what is taken instead, and keeps what is damaged. --fallback no,
// a named epoch and a directory without another one end with what is damaged.
func TestFallback(t *testing.T) {
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			d := newDrift(t, mpi)
			d.killed("--full", "every", "4", "--keep", "100", "--compress", "none")
			good := filepath.Join(t.TempDir(), "good")
			must(t, os.Rename(d.dir(), good))
			second := func(epoch int) string { return filepath.Join(d.folder(epoch), "rank-00001.ckpt") }
			manifest := filepath.Join(d.folder(driftKill), "manifest.json")
			cases := []struct {
				name, mode string
				hurt       func(t *testing.T)
				what       string // in the sentence
				taken      int
			}{
				{"rotten page", "eager", func(t *testing.T) { flip(t, second(6), ownPage(t, second(6))) },
					"epoch 6 is lost: rank 1: " + second(6) + ": damaged image: pages 0x", 5},
				{"rotten parent", "eager", func(t *testing.T) { flip(t, second(5), pageOf(t, second(6), "rank-00001.ckpt")) },
					"epoch 5 is lost: rank 1: " + second(5) + ": damaged image: pages 0x", 4},
				{"image gone", "lazy", func(t *testing.T) { must(t, os.Remove(second(6))) },
					"epoch 6 is lost: rank 1: ", 5},
				{"parent's image gone", "lazy", func(t *testing.T) { must(t, os.Remove(second(5))) },
					"epoch 6 is lost: rank 1: " + second(6) + ": content is in " + second(5) + ", which is lost: ", 4},
				{"manifest cut", "auto", func(t *testing.T) { must(t, os.Truncate(manifest, 100)) },
					"epoch 6 is lost: " + manifest + ": damaged image: manifest at offset ", 5},
			}
			if mpi == "openmpi" {
				cases = append(cases[:1], cases[4])
			}
			for i, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					d.t = t
					must(t, os.RemoveAll(d.dir()))
					if b, err := exec.Command("cp", "-a", good, d.dir()).CombinedOutput(); err != nil {
						t.Fatalf("%v: %s", err, b)
					}
					c.hurt(t)
					if i == 0 {
						d.refused(c.taken, d.dir(), "--fallback", "no")
						d.refused(c.taken, d.at(driftKill))
					}
					if c.name == "manifest cut" { // which each rank finds before the ranks have met
						if said := d.refused(c.taken, d.dir(), "--fallback", "no"); strings.Count(said, manifest) != 1 {
							t.Errorf("not said once: %s", said)
						}
					}
					damaged, err := os.ReadDir(d.folder(driftKill))
					must(t, err)
					said := d.restart(d.dir(), "--keep", "100", "--restart-mode", c.mode, "--full", "every", "4")
					instead := fmt.Sprintf("; taken instead: epoch %d\n", c.taken)
					if strings.Count(said, "taken instead") != 1 || !strings.Contains(said, c.what) || !strings.Contains(strings.ReplaceAll(said, "\r", ""), instead) {
						t.Errorf("said %q, want %q and %q", said, c.what, instead)
					}
					list, left := d.epochs(), damagedState(d)
					if after, err := os.ReadDir(d.folder(driftKill)); err != nil || len(after) != len(damaged) {
						t.Errorf("of the damaged epoch there is %v, there was %v (%v)", after, damaged, err)
					}
					if left == "committed" || list[7].State != "committed" || list[7].Parent != c.taken && list[7].Parent != 0 {
						t.Errorf("epoch 6 is %q, epoch 7 is %+v", left, list[7])
					}
					d.ctl(0, []string{"verify", d.at(7)}, "all sound")
				})
			}
			if mpi == "openmpi" {
				return
			}
			t.Run("no other", func(t *testing.T) {
				d.t = t
				must(t, os.RemoveAll(d.dir()))
				if b, err := exec.Command("cp", "-a", good, d.dir()).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, b)
				}
				for n := 1; n < 5; n++ {
					must(t, os.RemoveAll(d.folder(n)))
				}
				must(t, os.Remove(second(5))) // which epoch 6 needs
				said := d.refused(0, d.dir())
				for _, w := range []string{"epoch 6 is lost: ", "epoch 5 is lost: "} {
					if !strings.Contains(said, w) {
						t.Errorf("want %q: %s", w, said)
					}
				}
			})
		})
	}
}

// damagedState is what ckptctl ls says of the epoch that was hurt.
func damagedState(d *drift) string { return d.epochs()[driftKill].State }

// refused restarts the job, which is not continued, and names the epoch that could be; 0: none. It returns what was said.
func (d *drift) refused(older int, from string, options ...string) string {
	d.t.Helper()
	again := startMPI(d.t, d.mpi, driftRanks, func(*Run) []string {
		return append(append([]string{built.CkptRun(), "--restart-mode", "eager"}, options...), "--restart", from)
	})
	exit, err := again.Wait(mpiLimit)
	said := string(mustRead(d.t, again.run.Stderr))
	if err != nil || strings.Contains(string(mustRead(d.t, again.run.Stdout)), d.want) {
		d.t.Errorf("%v, %v: it went on: %s", exit, err, said)
	}
	if exit == (Exit{}) && d.mpi != "mpich" { // the launcher of MPICH 4.2 sometimes ends with status 0
		d.t.Errorf("exit status 0: %s", said)
	}
	if w := fmt.Sprintf("%s@%d", d.dir(), older); older != 0 && strings.Count(said, w) != 1 {
		d.t.Errorf("want %q once: %s", w, said)
	}
	if strings.Contains(said, "taken instead") {
		d.t.Errorf("an older epoch was taken: %s", said)
	}
	return said
}
