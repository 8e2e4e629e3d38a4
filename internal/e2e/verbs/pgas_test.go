// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
	"github.com/libckpt/libckpt/internal/needmpi"
)

const (
	pgasPrograms = "CKPT_PGAS_PROGRAMS" // the folder of GASNet-EX' own tests, built for its ibv-conduit
	pgasLog      = "CKPT_PGAS_LOG"      // where it is kept what ran
	pgasRanks    = 4
	pgasLives    = 3 // at most
)

// pgasTest is a test of GASNet-EX and what it is told: as much as lasts for some lives. One that cannot be told has its
// answers delayed on the adapter while it is saved.
type pgasTest struct {
	argv    []string
	delayMs int
}

// The first, and those of vectors, collectives and exchanges check what arrives; the others measure.
var pgasTests = []pgasTest{
	{argv: []string{"testgasnet"}, delayMs: 5},
	{argv: []string{"testvis", "60"}},
	{argv: []string{"testcoll", "300"}},
	{argv: []string{"testalltoall", "60"}},
	{argv: []string{"testsmall", "300", "4096"}},
	{argv: []string{"testlarge", "150", "65536"}},
	{argv: []string{"testam", "400", "4096"}},
	{argv: []string{"testbarrier", "1500"}},
}

// pgasNumber is what differs from run to run in what they print: times, addresses, the number of a process, and how wide
// that is.
var pgasNumber = regexp.MustCompile(` *(0x[0-9a-f]+|-?[0-9]+(\.[0-9]+)?|-?inf|-?nan)`)

// pgasBuild is how they say what they are built of.
var pgasBuild = regexp.MustCompile(`config=\S+`)

// needPgas is the folder of the programs. libpmi.so.0 is built beside our programs: they ask it who they are.
func needPgas(t *testing.T) string {
	t.Helper()
	need(t)
	dir := os.Getenv(pgasPrograms)
	if dir == "" {
		needmpi.Skip(t, "no PGAS programs", pgasPrograms+" names no folder: make test-pgas PROGRAMS=DIR")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if said, err := exec.CommandContext(ctx, "gcc", "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libpmi.so.0",
		"-o", filepath.Join(built.Bin, "libpmi.so.0"), filepath.Join(built.Src, "pmi/pmi.c")).CombinedOutput(); err != nil {
		t.Fatalf("build libpmi: %v: %s", err, said)
	}
	return dir
}

func newPgas(t *testing.T, dir string, argv []string) *e2e.Whole {
	t.Helper()
	w, err := e2e.NewWhole(built, t.TempDir(), append([]string{filepath.Join(dir, argv[0])}, argv[1:]...)...)
	must(t, err)
	w.Ranks, w.Together = pgasRanks, true
	meet := filepath.Join(w.Run.Dir, "pmi")
	must(t, os.Mkdir(meet, 0o755))
	env := []string{"PMI_MEET=" + meet, "LD_LIBRARY_PATH=" + built.Bin, "GASNET_SPAWNER=pmi", "GASNET_IBV_SPAWNER=pmi", "GASNET_QUIET=1",
		"GASNET_PHYSMEM_MAX=256MB", "GASNET_MAX_SEGSIZE=32MB"}
	w.RankEnv = map[int][]string{} // Env is what differs between lives
	for r := range w.Ranks {
		w.RankEnv[r] = env
	}
	t.Cleanup(w.Mark.KillAll)
	return w
}

// pgasSaid is what a rank printed, without what differs from run to run.
func pgasSaid(t *testing.T, w *e2e.Whole, rank int) string {
	t.Helper()
	return pgasNumber.ReplaceAllString(mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, rank)), "N")
}

// rightPgas: each rank says what it says natively, and none that something is wrong.
func rightPgas(t *testing.T, w, native *e2e.Whole) {
	t.Helper()
	for r := range w.Ranks {
		got, want := pgasSaid(t, w, r), pgasSaid(t, native, r)
		if got != want {
			t.Errorf("rank %d prints %q, natively %q", r, got, want)
		}
		if r == 0 && !strings.Contains(got, "done.") {
			t.Errorf("it does not say that it is through: %q", got)
		}
	}
	if said := w.Said(); strings.Contains(said, "ERROR") {
		t.Errorf("it finds something wrong: %s", said)
	}
}

// TestPgas runs GASNet-EX' own tests above its ibv-conduit: natively, under ckptrun on the adapter and over TCP, and saved at
// moments of their own, killed and continued, on the adapter and over TCP in turn.
func TestPgas(t *testing.T) {
	dir := needPgas(t)
	s := seed(t)
	say := func(format string, a ...any) { t.Logf(format, a...) }
	if path := os.Getenv(pgasLog); path != "" {
		f, err := os.Create(path)
		must(t, err)
		defer f.Close()
		say = func(format string, a ...any) {
			if _, err := fmt.Fprintf(f, format+"\n", a...); err != nil {
				t.Error(err)
			}
		}
	}
	say("seed %d: GASNet-EX' own tests above its ibv-conduit, %d ranks; natively, under ckptrun, and saved and killed, on the adapter and over TCP in turn", s, pgasRanks)
	for i, test := range pgasTests {
		argv := test.argv
		t.Run(argv[0], func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(dir, argv[0])); err != nil {
				t.Fatal(err)
			}
			from, lives := time.Now(), 0
			defer func() {
				what := "right"
				if t.Failed() {
					what = "WRONG"
				}
				say("%s: saved, killed and continued %d times, %.1f s, %s", strings.Join(argv, " "), lives, time.Since(from).Seconds(), what)
			}()
			native := newPgas(t, dir, argv)
			must(t, native.Natively())
			must(t, native.MustEnd(jobLimit))
			rightPgas(t, native, native)
			if i == 0 {
				say("%s", pgasBuild.FindString(mustRead(t, fmt.Sprintf("%s.out.0", native.Files))))
			}

			backs := []string{"ibv", "tcp"} // each second one begins over TCP
			for _, back := range backs {
				under := newPgas(t, dir, argv)
				under.Env = []string{"CKPT_VERBS=" + back}
				must(t, under.Start("shell"))
				must(t, under.MustEnd(jobLimit))
				rightPgas(t, under, native)
			}
			if i%2 == 1 {
				slices.Reverse(backs)
			}

			w := newPgas(t, dir, argv)
			l := life{t: t, w: w, random: rand.New(rand.NewPCG(s, uint64(i))), within: time.Second / 2, lives: pgasLives, backs: backs}
			l.from = func() {
				if !e2e.Poll(jobLimit, nil, func() bool {
					said, err := os.ReadFile(fmt.Sprintf("%s.out.0", w.Files))
					return w.Ended() || (err == nil && len(said) > 0)
				}) {
					t.Fatalf("it does not begin: %s", w.Said())
				}
			}
			if test.delayMs > 0 {
				for r, env := range w.RankEnv {
					w.RankEnv[r] = append(slices.Clone(env), fmt.Sprint("CKPTSOFT_ANSWER_DELAY_MS=", test.delayMs))
				}
			}
			l.run()
			lives = l.saved
			rightPgas(t, w, native)
		})
	}
}
