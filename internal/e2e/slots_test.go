// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Jobs of examples/tmpi whose ranks are saved apart from their processes (tmpirun --slots).

// slotJob is 64 ranks that begin in 4 processes.
type slotJob []string

func (j slotJob) start(dir string) []string {
	return append([]string{tmpi("tmpirun"), "-n", "4", "-r", "16", "--slots", dir, tmpi(j[0] + "-slots")}, j[1:]...)
}

// restart continues it in another number of processes. What it was started with is with the ranks.
func (j slotJob) restart(spec string, processes, workers int) []string {
	return []string{tmpi("tmpirun"), "-n", strconv.Itoa(processes), "-w", strconv.Itoa(workers), "--restart", spec, tmpi(j[0] + "-slots")}
}

func (j slotJob) native(t *testing.T) string {
	t.Helper()
	return tmpiJob{4, 16, 2, j}.native(t)
}

// sameEnd compares what a job printed over several lives with what it prints in one. Standard output is not put back,
// so lines of iterations that were made again come twice.
func sameEnd(t *testing.T, got, want string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(want), "\n")
	have := strings.Split(strings.TrimSpace(got), "\n")
	for _, line := range have {
		if _, err := strconv.Atoi(line); err == nil {
			continue // ckptctl says which epoch it has made
		}
		if !slices.Contains(lines, line) {
			t.Errorf("printed %q, which it does not natively", line)
		}
	}
	if want == "" || have[len(have)-1] != lines[len(lines)-1] {
		t.Errorf("ends with %q, natively with %q", have[len(have)-1], lines[len(lines)-1])
	}
}

// TestSlots: 64 ranks that were saved by 4 processes go on in 2, 8, 1, 4 and 3, each of which saves them
// again and is killed at a random moment, or is asked to by an operator. Nothing of what they print differs.
func TestSlots(t *testing.T) {
	for name, c := range map[string]struct {
		job       slotJob
		interrupt func(t *testing.T, c *Chain, p *Process, mark Mark) (ended bool)
	}{
		"killed-cg":   {slotJob{"cg", "384", "3000", "100", "30"}, killed},
		"killed-heat": {slotJob{"heat", "128", "256", "6000", "200", "60"}, killed},
		"asked-cg":    {slotJob{"cg", "384", "3000", "100", "500"}, asked}, // over the program's own
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := NewRun(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			seed := fromEnv(t, "CKPT_E2E_SEED", *seedFlag)
			if seed == 0 {
				seed = rand.Uint64()
			}
			t.Logf("seed %d", seed)
			want := c.job.native(t)
			chain := &Chain{Built: built, Run: r, Random: rand.New(rand.NewPCG(seed, 1))}
			mark := NewMark()
			t.Cleanup(mark.KillAll)
			p, err := r.Start(mark, c.job.start(r.Checkpoints())...)
			if err != nil {
				t.Fatal(err)
			}
			then := []int{2, 8, 1, 4, 3}
			lives := 0
			for lives < len(then) && !c.interrupt(t, chain, p, mark) {
				if p, err = r.Start(mark, c.job.restart(r.Checkpoints(), then[lives], 1+lives%2)...); err != nil {
					t.Fatal(err)
				}
				lives++
			}
			exit, err := p.Wait(2 * patience)
			if err != nil || exit != (Exit{}) {
				t.Fatalf("after %d interruptions: %v, %v\n%s", lives, exit, err, chain.stderr())
			}
			if err := noneLeft(mark); err != nil {
				t.Error(err)
			}
			if lives < 4 {
				t.Errorf("ended after %d interruptions: it is too short", lives)
			}
			sameEnd(t, string(mustRead(t, r.Stdout)), want)
		})
	}
}

// slotEpoch has a job of 64 ranks make some epochs, and end.
func slotEpoch(t *testing.T, job slotJob, under ...string) *Run {
	t.Helper()
	r, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Once(patience, append(under, job.start(r.Checkpoints())...)...); err != nil {
		t.Fatal(err)
	}
	if r.Exit != (Exit{}) {
		t.Fatalf("%v\n%s", r.Exit, mustRead(t, r.Stderr))
	}
	return r
}

// again runs a command in a folder of its own and returns how it ended and what it said.
func again(t *testing.T, argv ...string) (Exit, string, string) {
	t.Helper()
	r, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Once(patience, argv...); err != nil {
		t.Fatal(err)
	}
	return r.Exit, string(mustRead(t, r.Stdout)), string(mustRead(t, r.Stderr))
}

var shortSlots = slotJob{"cg", "128", "200", "50", "40"}

// TestSlotsTold: what ckptctl says of such an epoch, and who may continue it.
func TestSlotsTold(t *testing.T) {
	t.Parallel()
	r := slotEpoch(t, shortSlots)
	dir := r.Checkpoints()
	for _, c := range []struct {
		argv []string
		exit int
		want []string
	}{
		{[]string{built.CkptCtl(), "ls", dir}, 0, []string{" 64/4 ", "committed"}},
		{[]string{built.CkptCtl(), "inspect", dir}, 0, []string{"64 in 4 processes", "0-15", "48-63", "[rank 0]", "tasks"}},
		{[]string{built.CkptCtl(), "verify", dir}, 0, []string{"4 images", "all sound"}},
		{[]string{built.CkptRun(), "--restart", dir}, 1, []string{"memory of 64 ranks", "CKPT_RESTART="}},
		{[]string{built.CkptRun(), "--whole", "--restart", dir}, 1, []string{"memory of 64 ranks", "CKPT_RESTART="}},
		{slotJob{"heat"}.restart(dir, 4, 2), 70, []string{"build", "the very program that was saved"}},
		{shortSlots.restart(dir, 65, 1), 70, []string{"64 ranks are too few for 65 processes"}},
		{shortSlots.restart(dir+"@99", 1, 1), 70, []string{"epoch 99 is not there"}},
		{[]string{tmpi("tmpirun"), "-n", "2", "--slots", dir + "-pie", tmpi("cg"), "64", "20", "5", "5"}, 70, []string{"link it with -no-pie"}},
	} {
		exit, out, said := again(t, c.argv...)
		if exit.Code != c.exit {
			t.Errorf("%q: %v: %s%s", c.argv, exit, out, said)
		}
		for _, want := range c.want {
			if !strings.Contains(out+said, want) {
				t.Errorf("%q: no %q in: %s%s", c.argv, want, out, said)
			}
		}
	}
	_, out, _ := again(t, built.CkptCtl(), "inspect", "--json", dir)
	var told struct {
		Manifest struct {
			Mode             string
			Ranks, Processes int
			Images           []struct{ Tasks []int }
		}
	}
	if err := json.Unmarshal([]byte(out), &told); err != nil {
		t.Fatal(err)
	}
	m, n := told.Manifest, 0
	for _, im := range m.Images {
		for _, rank := range im.Tasks {
			if rank != n {
				t.Errorf("rank %d where %d should be", rank, n)
			}
			n++
		}
	}
	if m.Mode != "regions" || m.Ranks != 64 || m.Processes != 4 || n != 64 {
		t.Errorf("%+v", m)
	}
	// A job that ckptrun has saved is nothing for regions mode.
	whole := dir + "-whole"
	if exit, _, said := again(t, tmpi("tmpirun"), "-n", "1", built.CkptRun(), "--whole", "--dir", whole, tmpi("cg"), "64", "20", "5", "5"); exit != (Exit{}) {
		t.Fatalf("%v: %s", exit, said)
	}
	if exit, _, said := again(t, shortSlots.restart(whole, 1, 1)...); exit.Code != 70 || !strings.Contains(said, "has processes, and not the memory of ranks") {
		t.Errorf("%v: %s", exit, said)
	}
}

// TestSlotsDamaged: damage anywhere in an image is found before a rank goes on, with the file and its section, and the
// epoch before continues the job.
func TestSlotsDamaged(t *testing.T) {
	t.Parallel()
	r := slotEpoch(t, shortSlots)
	want := shortSlots.native(t)
	chain := &Chain{Built: built, Run: r}
	newest, err := chain.epochs()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(r.Checkpoints(), fmt.Sprintf("epoch-%06d", newest), "rank-00002.ckpt")
	sound := mustRead(t, name)
	for _, c := range []struct {
		what, section string
		damage        func(b []byte) []byte
	}{
		{"header", "header", func(b []byte) []byte { b[20] ^= 1; return b }},
		{"tasks", "section tasks", func(b []byte) []byte {
			b[strings.Index(string(b), `"tasks":`)] ^= 1
			return b
		}},
		{"pages", "pages 0x3", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }},
		{"cut", "footer", func(b []byte) []byte { return b[:len(b)-4096] }},
	} {
		if err := os.WriteFile(name, c.damage(slices.Clone(sound)), 0o600); err != nil {
			t.Fatal(err)
		}
		exit, _, said := again(t, shortSlots.restart(fmt.Sprintf("%s@%d", r.Checkpoints(), newest), 2, 2)...)
		for _, word := range []string{name, c.section, "CKPT_RESTART=" + r.Checkpoints() + "@"} {
			if exit.Code != 70 || !strings.Contains(said, word) {
				t.Errorf("%s: %v, no %q in: %s", c.what, exit, word, said)
			}
		}
		if exit, _, said := again(t, built.CkptCtl(), "verify", r.Checkpoints()); exit.Code != 1 || !strings.Contains(said, "1 of 4 images are damaged") {
			t.Errorf("%s: verify: %v: %s", c.what, exit, said)
		}
	}
	if exit, _, said := again(t, shortSlots.restart(r.Checkpoints(), 2, 2)...); exit.Code != 70 || !strings.Contains(said, fmt.Sprintf("@%d", newest-1)) {
		t.Errorf("nobody would be told: %v: %s", exit, said)
	}
	exit, out, said := again(t, append([]string{"env", "CKPT_LOG=warn"}, shortSlots.restart(r.Checkpoints(), 2, 2)...)...)
	if exit != (Exit{}) {
		t.Fatalf("%v: %s", exit, said)
	}
	if w := fmt.Sprintf("epoch %d is lost: ", newest); !strings.Contains(said, w) || !strings.Contains(said, fmt.Sprintf("taken instead: epoch %d", newest-1)) {
		t.Errorf("no %q: %s", w, said)
	}
	sameEnd(t, out, want)
}

// TestSlotsFaults: an epoch that cannot be written, or is torn by a kill, harms neither the job nor the epoch before.
func TestSlotsFaults(t *testing.T) {
	needCommands(t)
	want := shortSlots.native(t)
	lib := "LD_LIBRARY_PATH=" + filepath.Join(built.Root, "build", "obj", "faults", "lib")
	for _, c := range []struct {
		fault string
		exit  Exit
	}{
		{"image.write.sync=enospc:2", Exit{}},
		{"image.write.rename=error:2", Exit{}},
		{"store.begin.mkdir=enospc:2", Exit{}},
		{"store.commit.rename=error:2", Exit{}},
		{"ckpt.closed=error:2", Exit{}},
		{"image.write.rename=kill:2", Exit{Code: 128 + int(syscall.SIGKILL)}},
		{"store.commit.rename=kill:2", Exit{Code: 128 + int(syscall.SIGKILL)}},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			r, err := NewRun(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			argv := append([]string{"env", lib, "CKPT_FAULT=" + c.fault, "CKPT_KEEP=9"}, shortSlots.start(r.Checkpoints())...)
			if err := r.Once(patience, argv...); err != nil {
				t.Fatal(err)
			}
			if r.Exit != c.exit {
				t.Fatalf("%v, want %v: %s", r.Exit, c.exit, mustRead(t, r.Stderr))
			}
			chain := &Chain{Built: built, Run: r}
			newest, err := chain.epochs()
			if err != nil || newest == 0 {
				t.Fatalf("%d epochs, %v", newest, err)
			}
			if c.exit == (Exit{}) {
				sameEnd(t, string(mustRead(t, r.Stdout)), want)
				if there := epochsIn(r.Checkpoints()); len(there) != 3 {
					t.Errorf("epochs %v, where one of four cannot be made", there)
				}
			}
			exit, out, said := again(t, shortSlots.restart(r.Checkpoints(), 8, 1)...)
			if exit != (Exit{}) {
				t.Fatalf("%v: %s", exit, said)
			}
			sameEnd(t, out, want)
		})
	}
}

// TestSlotsDisk: a disk that is full takes no epoch, and the job goes on.
func TestSlotsDisk(t *testing.T) {
	needCommands(t)
	if os.Getuid() != 0 {
		t.Skip("mounts a file system")
	}
	t.Setenv("CKPT_COMPRESS", "snappy") // auto stores more when the processors are busy
	want := shortSlots.native(t)
	dir := filepath.Join(t.TempDir(), "small")
	smallDisk(t, dir, 2<<20) // two epochs
	exit, out, said := again(t, shortSlots.start(filepath.Join(dir, "ckpt"))...)
	if exit != (Exit{}) {
		t.Fatalf("%v: %s", exit, said)
	}
	sameEnd(t, out, want)
	exit, out, said = again(t, built.CkptCtl(), "verify", filepath.Join(dir, "ckpt"))
	if exit != (Exit{}) || !strings.Contains(out, "epoch-000002") {
		t.Errorf("%v: %s%s", exit, out, said)
	}
	exit, out, said = again(t, shortSlots.restart(filepath.Join(dir, "ckpt"), 2, 2)...)
	if exit != (Exit{}) {
		t.Fatalf("%v: %s", exit, said)
	}
	sameEnd(t, out, want)
}
