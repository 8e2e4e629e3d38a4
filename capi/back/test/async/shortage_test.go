// SPDX-License-Identifier: Apache-2.0

package async

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
	"github.com/libckpt/libckpt/internal/needmpi"
)

// shortfall is the file by which allocations of the back are made to fail (testdata/shortfall.h).
type shortfall struct {
	t    *testing.T
	path string
}

// The layout of testdata/shortfall.h.
const (
	shortfallRanks  = 8
	shortfallBytes  = 64 // of a rank
	shortfallPlaces = 1024
	shortfallDepth  = 4
	shortfallNew    = -1
)

// newShortfall has all jobs that this test starts preload the allocator that fails.
func newShortfall(t *testing.T) *shortfall {
	t.Helper()
	s := &shortfall{t, filepath.Join(t.TempDir(), "shortfall")}
	library := filepath.Join(t.TempDir(), "shortfall.so")
	if b, err := exec.Command("gcc", "-O2", "-shared", "-fPIC", "-o", library, "testdata/shortfall.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	if err := os.WriteFile(s.path, make([]byte, shortfallRanks*(shortfallBytes+8*shortfallPlaces*shortfallDepth)), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SHORTFALL", s.path)
	t.Setenv("LD_PRELOAD", library)
	return s
}

// arm has the n-th allocation of each rank fail, for shortfallNew the first from each place at which none has
// failed yet, none for 0. It returns how many have failed.
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

// place is a call of the allocator: the address behind it, and those behind the calls that led there.
type place [shortfallDepth]uint64

// places are those at which an allocation of rank r has failed, and which of them was the last.
func (s *shortfall) places(r int) (all []place, last int) {
	s.t.Helper()
	b, err := os.ReadFile(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	word := func(at int) int { return int(binary.LittleEndian.Uint32(b[at:])) }
	all = make([]place, word(r*shortfallBytes+8))
	for i := range all {
		at := shortfallRanks*shortfallBytes + 8*shortfallDepth*(r*shortfallPlaces+i)
		for d := range all[i] {
			all[i][d] = binary.LittleEndian.Uint64(b[at+8*d:])
		}
	}
	return all, word(r*shortfallBytes + 12)
}

// where says at which places allocations failed last.
func (s *shortfall) where(back string) string {
	var text strings.Builder
	for r := range ranks {
		all, last := s.places(r)
		if len(all) == 0 {
			continue
		}
		fmt.Fprintf(&text, "rank %d: the last allocation that failed:", r)
		for _, l := range linesOf(s.t, back, all[last][:]) {
			fmt.Fprintf(&text, " %s", l)
		}
		text.WriteString("\n")
	}
	return text.String()
}

// line is a line of the back's sources, and the function that it is in.
type line struct{ function, file string }

func (l line) String() string { return l.function + " (" + l.file + ")" }

// linesOf looks up the calls behind which the addresses are; 0 is none.
func linesOf(t *testing.T, back string, addresses []uint64) (lines []line) {
	t.Helper()
	var list strings.Builder
	for _, a := range addresses {
		if a != 0 {
			fmt.Fprintf(&list, "%#x\n", a-1)
		}
	}
	find := exec.Command("addr2line", "-f", "-e", back)
	find.Stdin = strings.NewReader(list.String())
	out, err := find.Output()
	if err != nil {
		t.Fatalf("addr2line: %v", err)
	}
	words := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i := 0; i+1 < len(words); i += 2 {
		file, _, _ := strings.Cut(words[i+1], " ") // behind it: which of several, for a line of several
		if _, in, found := strings.Cut(file, "capi/back/"); found {
			file = in
		}
		lines = append(lines, line{words[i], file})
	}
	return lines
}

// allocations are all calls of the allocator in the back, by line.
func allocations(t *testing.T, back string) map[line]bool {
	t.Helper()
	out, err := exec.Command("objdump", "-d", "--no-show-raw-insn", back).Output()
	if err != nil {
		t.Fatalf("objdump: %v", err)
	}
	call := regexp.MustCompile(`call +[0-9a-f]+ <(malloc|calloc|realloc|strdup)@plt>$`)
	var behind []uint64
	is := false
	for text := range strings.Lines(string(out)) {
		if at, _, found := strings.Cut(strings.TrimSpace(text), ":"); is && found {
			a, err := strconv.ParseUint(at, 16, 64)
			if err != nil {
				continue // the name of the next function: its own address follows
			}
			behind = append(behind, a)
		}
		is = call.MatchString(strings.TrimSpace(text))
	}
	all := map[line]bool{}
	for _, l := range linesOf(t, back, behind) {
		all[l] = true
	}
	return all
}

// TestShortOfMemory has allocations of the back fail while messages, requests, synchronous sends, windows and
// files are under way: in the program's calls, while it is saved, and when it is continued. Each checkpoint is
// made, or refused for want of memory; the program loses nothing and comes to its end. No place at which the code
// of messages, of requests or of images allocates is left out.
func TestShortOfMemory(t *testing.T) {
	needmpi.Time(t)
	all := map[line]bool{} // allocations of the backs, and those that have failed
	var failed []line
	ran := 0
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			needmpi.Time(t)
			m := &moments{t: t, mpi: mpi, dir: filepath.Join(t.TempDir(), "ckpt"), stages: t.TempDir()}
			back := filepath.Join(filepath.Dir(filepath.Dir(cycle.Tool(t, "ckptrun"))), "lib", "ckpt", "back", "libckptback-"+mpi+".so")
			m.program = cycle.Compile(t, mpi, "shortage.c", "-Wno-stringop-overflow")
			s := newShortfall(t)
			m.job = cycle.Start(t, mpi, ranks, cycle.Tool(t, "ckptrun"), "--dir", m.dir, m.program, m.stages, s.path)

			made, refused, k := 0, 0, 1
			for ; ; k++ {
				if needmpi.Over() {
					m.job.Kill()
					needmpi.Time(t)
				}
				if !m.reaches(fmt.Sprintf("at.%d", k), "rounds.0") {
					break
				}
				patience := "2m" // a disk that others write to may not answer for half a minute
				if k == 1 {      // a receive that has no memory holds it back as long as it may
					patience = "10s"
				}
				c := m.ctl("checkpoint", m.dir, "--timeout", patience)
				if err := <-c.done; err == nil {
					made++
				} else if refused++; !strings.Contains(c.err.String(), "memory") {
					t.Fatalf("round %d: refused, but not for want of memory: %s\n%s\n%s", k, c.err.String(), s.where(back), m.job.Where())
				}
				m.leave(fmt.Sprintf("go.%d", k))
			}
			times := s.arm(0)
			t.Logf("%d rounds, %d allocations failed, %d checkpoints, %d refused", k-1, times, made, refused)
			if made == 0 || times < 100 {
				t.Errorf("%d checkpoints were made, %d allocations failed", made, times)
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
			for n := 1; ; {
				how := shortfallNew
				if tried%2 == 1 && n < 30 { // in turn, as long as there are so many surely
					how, n = n, n+1+n/2
				}
				before := s.arm(how)
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
						t.Fatalf("restart %d fails, but not for want of memory: %s\n%s", tried, line, s.where(back))
					}
				}
			}
			t.Logf("%d restarts failed for want of memory", tried)
			if tried < 5 {
				t.Errorf("only %d restarts of epoch %d failed", tried, epoch)
			}
			for l := range allocations(t, back) {
				all[l] = true
			}
			failed = append(failed, s.lines(back)...)
			ran++
		})
	}
	if t.Failed() || ran < 2 {
		return // it did not come to all of them
	}
	for l := range all {
		folder, _, _ := strings.Cut(l.file, "/")
		switch {
		case slices.Contains(failed, l) || rare[l.function]:
		case folder == "image" || folder == "message" || folder == "request":
			t.Errorf("no allocation failed in %s", l)
		default:
			t.Logf("not part of this test: %s", l)
		}
	}
}

// rare are functions that need more than a round has: a collective call is in an image as one that was not started
// when it is made in the moment between the request and the stop.
var rare = map[string]bool{"load_deferred": true}

// lines are those at which allocations of any rank have failed.
func (s *shortfall) lines(back string) []line {
	s.t.Helper()
	var behind []uint64
	for r := range ranks {
		places, _ := s.places(r)
		for _, p := range places {
			behind = append(behind, p[0])
		}
	}
	return linesOf(s.t, back, behind)
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
