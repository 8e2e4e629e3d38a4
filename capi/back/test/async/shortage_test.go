// SPDX-License-Identifier: Apache-2.0

package async

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// shortfall is the file by which allocations of the back are made to fail (testdata/shortfall.h).
type shortfall struct {
	t    *testing.T
	path string
}

const shortfallBytes = 64 // of a rank

// newShortfall has all jobs that this test starts preload the allocator that fails.
func newShortfall(t *testing.T) *shortfall {
	t.Helper()
	s := &shortfall{t, filepath.Join(t.TempDir(), "shortfall")}
	library := filepath.Join(t.TempDir(), "shortfall.so")
	if b, err := exec.Command("gcc", "-O2", "-shared", "-fPIC", "-o", library, "testdata/shortfall.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	if err := os.WriteFile(s.path, make([]byte, 8*shortfallBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SHORTFALL", s.path)
	t.Setenv("LD_PRELOAD", library)
	return s
}

// arm has the n-th allocation of each rank fail, all for -1, none for 0. It returns how many have failed.
func (s *shortfall) arm(n int) (failed int) {
	s.t.Helper()
	f, err := os.OpenFile(s.path, os.O_RDWR, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	for r := range int64(ranks) {
		var b [4]byte
		if _, err := f.ReadAt(b[:], r*shortfallBytes+4); err != nil {
			s.t.Fatal(err)
		}
		failed += int(binary.LittleEndian.Uint32(b[:]))
		binary.LittleEndian.PutUint32(b[:], uint32(int32(n)))
		if _, err := f.WriteAt(b[:], r*shortfallBytes); err != nil {
			s.t.Fatal(err)
		}
	}
	return failed
}

// where is the place in the back of the last allocation that failed, of each rank, for addr2line.
func (s *shortfall) where() string {
	b, err := os.ReadFile(s.path)
	if err != nil {
		return err.Error()
	}
	var at []string
	for r := range ranks {
		at = append(at, fmt.Sprintf("%#x", binary.LittleEndian.Uint64(b[r*shortfallBytes+8:])))
	}
	return "allocations failed last at " + strings.Join(at, ", ")
}

// TestShortOfMemory has every allocation of the back fail once, while messages, requests, synchronous sends,
// windows and files are under way: in the program's calls, while it is saved, and when it is continued. Each
// checkpoint is made, or refused for want of memory; the program loses nothing and comes to its end.
func TestShortOfMemory(t *testing.T) {
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			m := &moments{t: t, mpi: mpi, dir: filepath.Join(t.TempDir(), "ckpt"), stages: t.TempDir()}
			m.program = cycle.Compile(t, mpi, "shortage.c", "-Wno-stringop-overflow")
			s := newShortfall(t)
			m.job = cycle.Start(t, mpi, ranks, cycle.Tool(t, "ckptrun"), "--dir", m.dir, m.program, m.stages, s.path)

			made, refused, k := 0, 0, 1
			for ; ; k++ {
				if !m.reaches(fmt.Sprintf("at.%d", k), "rounds.0") {
					break
				}
				c := m.ctl("checkpoint", m.dir, "--timeout", "2m")
				if err := <-c.done; err == nil {
					made++
				} else if refused++; !strings.Contains(c.err.String(), "memory") {
					t.Fatalf("round %d: refused, but not for want of memory: %s\n%s\n%s", k, c.err.String(), s.where(), m.job.Where())
				}
				m.leave(fmt.Sprintf("go.%d", k))
			}
			failed := s.arm(0)
			t.Logf("%d rounds, %d allocations failed, %d checkpoints, %d refused", k-1, failed, made, refused)
			if made == 0 || failed < 100 {
				t.Errorf("%d checkpoints were made, %d allocations failed", made, failed)
			}

			const killed = 401 // round of shortage.c
			m.reaches(fmt.Sprintf("at.%d", killed))
			epoch := m.epoch(m.ask())
			m.job.Kill()
			if err := os.Remove(filepath.Join(m.dir, "job.json")); err != nil {
				t.Fatal(err)
			}
			m.leave(fmt.Sprintf("go.%d", killed))
			tried := 0
			for n := 1; ; n += 1 + n/2 {
				before := s.arm(n)
				m.restart()
				m.end()
				if m.job.Result() == "shortage ok" {
					break
				}
				if tried++; s.arm(0) == before {
					t.Fatalf("restart %d fails although there is memory\n%s", tried, m.job.Output())
				}
				for line := range strings.Lines(m.job.Output()) { // others may say that they have lost the rank
					if strings.HasPrefix(line, "ckptrun: ") && !strings.Contains(line, "memory") && !strings.Contains(line, "rank") {
						t.Fatalf("restart %d fails, but not for want of memory: %s\n%s", tried, line, s.where())
					}
				}
			}
			t.Logf("%d restarts failed for want of memory", tried)
			if tried < 5 {
				t.Errorf("only %d restarts of epoch %d failed", tried, epoch)
			}
		})
	}
}

// reaches waits until the program has written the first of the stages, and says whether it was that one.
func (m *moments) reaches(stages ...string) bool {
	m.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for i, stage := range stages {
			if _, err := os.Stat(filepath.Join(m.stages, stage)); err == nil {
				return i == 0
			}
		}
		if m.job.Ended(0) {
			break
		}
	}
	m.t.Fatalf("the program does not come to %q\n%s", stages, m.job.Where())
	return false
}
