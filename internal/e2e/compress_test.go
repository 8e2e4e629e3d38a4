// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/libckpt/libckpt/ckpt/image"
)

// kindsJob is a job of programs/kinds.c, killed with so many epochs committed.
type kindsJob struct {
	t            *testing.T
	mpi, program string
	want         string // what it prints in the end
	job          *mpiJob
}

const (
	kindsRanks = 2
	kindsMiB   = 10
	kindsSteps = 4
	kindsKill  = 3
)

func newKinds(t *testing.T, mpi string) *kindsJob {
	t.Helper()
	needCommands(t)
	k := &kindsJob{t: t, mpi: mpi, program: buildMPI(t, mpi, "kinds")}
	native := startMPI(t, mpi, kindsRanks, func(*Run) []string {
		return []string{k.program, strconv.Itoa(kindsSteps), strconv.Itoa(kindsMiB)}
	})
	native.mustEnd(t)
	k.want = string(mustRead(t, native.run.Stdout))
	return k
}

func (k *kindsJob) killed(options ...string) {
	k.t.Helper()
	hold := filepath.Join(k.t.TempDir(), "hold")
	writeFile(k.t, hold, nil)
	k.job = startMPI(k.t, k.mpi, kindsRanks, func(r *Run) []string {
		argv := append([]string{built.CkptRun(), "--dir", r.Checkpoints(), "--keep", "100"}, options...)
		return append(argv, "--", k.program, strconv.Itoa(kindsSteps), strconv.Itoa(kindsMiB), strconv.Itoa(kindsKill), hold)
	})
	last := filepath.Join(k.folder(kindsKill), "manifest.json")
	if !Poll(mpiLimit, k.job.Done(), func() bool { _, err := os.Stat(last); return err == nil }) {
		k.t.Fatalf("there is no %s\n%s", last, mustRead(k.t, k.job.run.Stderr))
	}
	for _, pid := range k.job.mark.Ranks() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if _, err := k.job.Wait(mpiLimit); err != nil {
		k.t.Fatal(err)
	}
	if err := os.Remove(hold); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kindsJob) folder(epoch int) string {
	return filepath.Join(k.job.run.Checkpoints(), fmt.Sprintf("epoch-%06d", epoch))
}

// restart continues the job, and returns how that ended and what was said.
func (k *kindsJob) restart(from string, options ...string) (*mpiJob, string) {
	k.t.Helper()
	again := startMPI(k.t, k.mpi, kindsRanks, func(*Run) []string {
		return append(append([]string{built.CkptRun()}, options...), "--restart", from)
	})
	if _, err := again.Wait(mpiLimit); err != nil {
		k.t.Fatal(err)
	}
	return again, string(mustRead(k.t, again.run.Stderr))
}

func (k *kindsJob) mustContinue(from string, options ...string) {
	k.t.Helper()
	again, said := k.restart(from, options...)
	if got := string(mustRead(k.t, again.run.Stdout)); got != k.want {
		k.t.Errorf("restarted from %s with %v: it printed %q, natively %q\n%s", from, options, got, k.want, said)
	}
}

// However memory is compressed, it comes back from each epoch, at once and lazily, after a kill; while a rank may write so
// much a second, and while it may have so little memory for the frozen copy that it has to stand.
func TestKindsOfMemory(t *testing.T) {
	for mpi := range launchers {
		for name, options := range map[string][]string{
			"auto":    {"--compress", "auto"},
			"zstd":    {"--compress", "zstd"},
			"limited": {"--write-limit", "40M", "--snapshot-memory", "16M"},
		} {
			t.Run(mpi+"/"+name, func(t *testing.T) {
				k := newKinds(t, mpi)
				k.killed(options...)
				stood := strings.Count(string(mustRead(t, k.job.run.Stderr)), "--snapshot-memory")
				if (name == "limited") != (stood > 0) {
					t.Errorf("the log speaks %d times of memory:\n%s", stood, mustRead(t, k.job.run.Stderr))
				}
				k.mustContinue(fmt.Sprintf("%s@2", k.job.run.Checkpoints()), "--restart-mode", "eager")
				k.mustContinue(k.job.run.Checkpoints(), "--restart-mode", "lazy")
			})
		}
	}
}

// A compressed chunk that is damaged is refused with the file and the pages, eagerly and lazily, and the epoch before it
// continues the job.
func TestDamagedCompressed(t *testing.T) {
	for mpi := range launchers {
		for _, compress := range []string{"snappy", "zstd"} {
			t.Run(mpi+"/"+compress, func(t *testing.T) {
				k := newKinds(t, mpi)
				k.killed("--compress", compress)
				path := filepath.Join(k.folder(kindsKill), "rank-00001.ckpt")
				damageChunk(t, path, map[string]image.Kind{"snappy": image.KindSnappy, "zstd": image.KindZstd}[compress])
				for _, mode := range []string{"eager", "lazy"} {
					again, said := k.restart(k.job.run.Checkpoints(), "--restart-mode", mode, "--fallback", "no")
					if again.run.Exit == (Exit{}) && strings.Contains(string(mustRead(t, again.run.Stdout)), "total") {
						t.Errorf("%s: the job ended as if nothing were wrong", mode)
					}
					for _, word := range []string{path, "damaged image: pages"} {
						if !strings.Contains(said, word) {
							t.Errorf("%s: it said %q, which does not contain %q", mode, said, word)
						}
					}
				}
				k.mustContinue(fmt.Sprintf("%s@%d", k.job.run.Checkpoints(), kindsKill-1))
			})
		}
	}
}

// damageChunk flips a bit in the middle of the largest chunk of that kind.
func damageChunk(t *testing.T, path string, kind image.Kind) {
	t.Helper()
	f, err := image.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var largest *image.Chunk
	for i, c := range f.Chunks() {
		if c.Kind == kind && c.Source == 0 && (largest == nil || c.Stored > largest.Stored) {
			largest = &f.Chunks()[i]
		}
	}
	if largest == nil {
		t.Fatalf("%s has no chunk of kind %v", path, kind)
	}
	p := mustRead(t, path)
	p[largest.Offset+int64(largest.Stored)/2] ^= 0x10
	writeFile(t, path, p)
}
