// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// Programs that name their state (programs/plate.c), without ckptrun.

// namedJob is such a program under a launcher.
type namedJob struct {
	launcher []string // then the number of ranks; nil: none
	program  string
}

// buildNamed compiles a program of that name, without MPI, or with that of mpicc.
func buildNamed(t *testing.T, name, mpi string) string {
	t.Helper()
	out, lib := filepath.Join(t.TempDir(), name), filepath.Join(built.Root, "build", "lib")
	argv := []string{"gcc", "-DALONE"}
	if mpi != "" {
		needmpi.Test(t, mpi)
		argv = []string{"mpicc." + mpi}
	}
	argv = append(argv, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I", filepath.Join(built.Root, "build", "include"), "-o", out,
		filepath.Join(built.Src, name+".c"), "-L", lib, "-lckpt", "-Wl,-rpath,"+lib)
	if b, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, b)
	}
	return out
}

func newNamedJob(t *testing.T, program, mpi string) *namedJob {
	t.Helper()
	j := &namedJob{program: buildNamed(t, program, mpi)}
	switch mpi {
	case "mpich":
		j.launcher = []string{"mpiexec.mpich", "-n"}
	case "openmpi":
		j.launcher = []string{"mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe", "-n"}
	}
	return j
}

func (j *namedJob) argv(ranks int, dir string, argv ...string) []string {
	argv = append([]string{"env", "CKPT_DIR=" + dir, j.program}, argv...)
	if j.launcher == nil {
		return argv
	}
	return append(append(slices.Clone(j.launcher), strconv.Itoa(ranks)), argv...)
}

// once runs it to its end in a folder of its own.
func (j *namedJob) once(t *testing.T, ranks int, dir string, argv ...string) (Exit, string, string) {
	t.Helper()
	return again(t, j.argv(ranks, dir, argv...)...)
}

// withoutNetwork is what Open MPI 5 says on a machine that has no network, whoever calls it. The words of ranks mix.
var withoutNetwork = regexp.MustCompile(`\[[^][]*\]\[\[[^][]*\],\d+\]\[[^][]*btl_tcp_proc[^][]*\]|Unable to find reachable pairing between local and remote interfaces|\s`)

// must is once for runs that end well; it returns what was printed.
func (j *namedJob) must(t *testing.T, ranks int, dir string, argv ...string) string {
	t.Helper()
	exit, out, said := j.once(t, ranks, dir, argv...)
	if exit != (Exit{}) || withoutNetwork.ReplaceAllString(said, "") != "" {
		t.Fatalf("%d ranks, %v: %v\n%s%s", ranks, argv, exit, out, said)
	}
	return out
}

// endOf is the line with the sum of the result.
func endOf(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if last := lines[len(lines)-1]; strings.HasPrefix(last, "end ") {
		return last
	}
	return "no end in: " + out
}

// running are the processes of a program.
func running(mark Mark, program string) (pids []int) {
	for _, pid := range mark.Processes() {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && exe == program {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestNamed: plain starts of a program, each killed at a random moment, of one rank or of all, and started again in the
// same way, end with the result of an undisturbed run, bit for bit.
func TestNamed(t *testing.T) {
	for name, c := range map[string]struct {
		mpi   string
		words []string
	}{
		"alone":         {"", nil},
		"alone-grow":    {"", []string{"grow"}},
		"mpich":         {"mpich", nil},
		"mpich-lazy":    {"mpich", []string{"lazy"}},
		"mpich-uneven":  {"mpich", []string{"uneven"}},
		"openmpi":       {"openmpi", nil},
		"openmpi-grow":  {"openmpi", []string{"grow"}},
		"openmpi-three": {"openmpi", []string{"uneven"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := fromEnv(t, "CKPT_E2E_SEED", *seedFlag)
			if seed == 0 {
				seed = rand.Uint64()
			}
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 1))
			ranks := 2
			if strings.HasSuffix(name, "-three") {
				ranks = 3
			}
			j := newNamedJob(t, "plate", c.mpi)
			r, err := NewRun(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			want := endOf(j.must(t, ranks, r.Dir+"/none", append([]string{"300", "0"}, c.words...)...))
			argv := j.argv(ranks, r.Checkpoints(), append([]string{"300", "10", "slow"}, c.words...)...)
			killed := 0
			for {
				mark := NewMark()
				t.Cleanup(mark.KillAll)
				p, err := r.Start(mark, argv...)
				if err != nil {
					t.Fatal(err)
				}
				before, _ := os.ReadFile(r.Stdout)
				if killed < 3 {
					Poll(patience, p.Done(), func() bool {
						now, _ := os.ReadFile(r.Stdout)
						return strings.Count(string(now[len(before):]), "saved ") > 1
					})
					time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
					pids := running(mark, j.program)
					if len(pids) > 0 && random.IntN(2) == 0 { // one of them
						pids = pids[:1+random.IntN(len(pids))]
					}
					for _, pid := range pids {
						_ = syscall.Kill(pid, syscall.SIGKILL)
					}
				}
				exit, err := p.Wait(2 * patience)
				if err != nil {
					t.Fatalf("%v\n%s", err, mustRead(t, r.Stderr))
				}
				// MPICH 4.2's launcher sometimes ends with status 0 when ranks were killed, whoever they are.
				if exit == (Exit{}) && (killed == 3 || strings.HasPrefix(endOf(string(mustRead(t, r.Stdout))), "end ")) {
					break
				}
				mark.KillAll()
				if killed++; killed > 3 {
					t.Fatalf("%v\n%s%s", exit, mustRead(t, r.Stdout), mustRead(t, r.Stderr))
				}
			}
			out := string(mustRead(t, r.Stdout))
			if killed < 3 {
				t.Errorf("killed only %d times:\n%s", killed, out)
			}
			if got := endOf(out); got != want {
				t.Errorf("%s, undisturbed %s", got, want)
			}
			if n := strings.Count(out, "restart at ") + strings.Count(out, "recovered one by one"); n != killed {
				t.Errorf("continued %d times after %d kills:\n%s", n, killed, out)
			}
		})
	}
}

// TestNamedRanks: what 2 ranks have saved goes on in 3, 1 and 4 when the program says how it is distributed, and is
// refused when it does not.
func TestNamedRanks(t *testing.T) {
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			t.Parallel()
			j, dir := newNamedJob(t, "plate", mpi), t.TempDir()
			want := endOf(j.must(t, 1, dir+"/none", "80", "0"))
			steps := 0
			for _, ranks := range []int{2, 3, 1, 4} {
				at := steps
				steps += 20
				out := j.must(t, ranks, dir+"/spread", strconv.Itoa(steps), "10", "spread")
				if at > 0 && !strings.Contains(out, fmt.Sprintf("restart at %d\n", at)) {
					t.Errorf("%d ranks: want a restart at %d: %s", ranks, at, out)
				}
				if steps == 80 && endOf(out) != want {
					t.Errorf("%s, undisturbed %s", endOf(out), want)
				}
			}
			j.must(t, 2, dir+"/own", "20", "10")
			exit, out, said := j.once(t, 3, dir+"/own", "20", "10", "spread")
			for _, want := range []string{"epoch 2 was saved by 2 ranks and there are 3 now", "region 1 was not distributed when it was saved: start 2 ranks"} {
				if exit == (Exit{}) || !strings.Contains(said, want) {
					t.Errorf("%v, %s%s: want %q", exit, out, said, want)
				}
			}
		})
	}
}

// TestNamedSizes: a region whose size has changed on one rank is loaded on none, and all are told which it is; the epoch stays,
// and is loaded when the sizes are right.
func TestNamedSizes(t *testing.T) {
	t.Parallel()
	j, dir := newNamedJob(t, "plate", "mpich"), t.TempDir()
	want := endOf(j.must(t, 2, dir+"/none", "30", "0"))
	j.must(t, 2, dir+"/ckpt", "20", "10")
	out := j.must(t, 2, dir+"/ckpt", "30", "0", "other")
	for _, line := range []string{
		"rank 0: other size: 15, 0, rank 1: region 7 was saved with 196608 bytes and is protected with 196600: ask MPIX_Checkpoint_saved for the size, and protect it anew\n",
		"rank 1: other size: 15, 0, ", "restart at 20\n", want,
	} {
		if !strings.Contains(out, line) {
			t.Errorf("want %q: %s", line, out)
		}
	}
}

// damage has f change the newest image of rank 1, or the manifest, of an epoch.
func damage(t *testing.T, dir string, epoch int, file string, f func([]byte) []byte) {
	t.Helper()
	path := filepath.Join(dir, fmt.Sprintf("epoch-%06d", epoch), file)
	b := mustRead(t, path)
	if err := os.WriteFile(path, f(slices.Clone(b)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestNamedDamaged: an epoch one of whose files is damaged is passed over by all ranks, with a word, and when there is no
// other one the program is told.
func TestNamedDamaged(t *testing.T) {
	t.Parallel()
	j := newNamedJob(t, "plate", "mpich")
	want := endOf(j.must(t, 2, t.TempDir()+"/none", "30", "0"))
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	cut := func(b []byte) []byte { return b[:len(b)-5000] }
	for name, c := range map[string]struct {
		file string
		f    func([]byte) []byte
		says string
	}{
		"rotten":   {"rank-00001.ckpt", flip, "rank 1: "},
		"torn":     {"rank-00000.ckpt", cut, "rank 0: "},
		"manifest": {"manifest.json", flip, "manifest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "ckpt")
			j.must(t, 2, dir, "20", "10")
			damage(t, dir, 2, c.file, c.f)
			out := j.must(t, 2, dir, "30", "0")
			for _, want := range []string{"lost: epoch 2 cannot be loaded (", c.says, ": epoch 1 was taken\nrestart at 10\n", want + "\n"} {
				if !strings.Contains(out, want) {
					t.Errorf("want %q: %s", want, out)
				}
			}
			damage(t, dir, 1, c.file, c.f)
			exit, _, said := j.once(t, 2, dir, "30", "0")
			for _, want := range []string{": recover: 15, 0, epoch 2 cannot be loaded (", "; epoch 1 cannot be loaded (", "; there is no other one"} {
				if exit == (Exit{}) || !strings.Contains(said, want) { // 3, or that of a rank that the launcher has killed by then
					t.Errorf("%v: want %q: %s", exit, want, said)
				}
			}
		})
	}
}

// TestNamedDisk: a disk that is full makes no epoch and says so on all ranks; the program goes on, and is continued from
// the last epoch that there is.
func TestNamedDisk(t *testing.T) {
	j, dir := newNamedJob(t, "plate", "openmpi"), filepath.Join(t.TempDir(), "disk")
	smallDisk(t, dir, 16<<20)
	r, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ckpt := filepath.Join(dir, "ckpt")
	want := endOf(j.must(t, 2, r.Dir+"/none", "300", "0"))
	mark := NewMark()
	t.Cleanup(mark.KillAll)
	p, err := r.Start(mark, j.argv(2, ckpt, "300", "10", "slow")...)
	if err != nil {
		t.Fatal(err)
	}
	if !Poll(patience, p.Done(), func() bool { return strings.Contains(string(mustRead(t, r.Stdout)), "saved ") }) {
		t.Fatalf("%s%s", mustRead(t, r.Stdout), mustRead(t, r.Stderr))
	}
	fillDisk(t, dir)
	exit, err := p.Wait(2 * patience)
	said := string(mustRead(t, r.Stderr))
	if err != nil || exit != (Exit{}) || endOf(string(mustRead(t, r.Stdout))) != want {
		t.Errorf("%v, %v: %s%s", exit, err, mustRead(t, r.Stdout), said)
	}
	for _, rank := range []string{"rank 0: step ", "rank 1: step "} {
		if !strings.Contains(said, rank) || !strings.Contains(said, "no space left on device") {
			t.Errorf("want %q and why: %s", rank, said)
		}
	}
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	if out := j.must(t, 2, ckpt, "300", "0"); !strings.Contains(out, "restart at ") || endOf(out) != want {
		t.Errorf("%s\nundisturbed: %s", out, want)
	}
}

// TestNamedTwice: a second start in the directory of a job that runs is refused, and the first one goes on.
func TestNamedTwice(t *testing.T) {
	t.Parallel()
	j := newNamedJob(t, "plate", "mpich")
	r, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mark := NewMark()
	t.Cleanup(mark.KillAll)
	p, err := r.Start(mark, j.argv(2, r.Checkpoints(), "100000", "10", "slow")...)
	if err != nil {
		t.Fatal(err)
	}
	saved := func(n int) func() bool {
		return func() bool { return strings.Count(string(mustRead(t, r.Stdout)), "saved ") >= n }
	}
	if !Poll(patience, p.Done(), saved(1)) {
		t.Fatalf("%s%s", mustRead(t, r.Stdout), mustRead(t, r.Stderr))
	}
	exit, _, said := j.once(t, 2, r.Checkpoints(), "20", "10")
	if exit.Code != 3 || !strings.Contains(said, ": recover: 15, 0, ") || !strings.Contains(said, "plate") {
		t.Errorf("%v: %s", exit, said)
	}
	n := strings.Count(string(mustRead(t, r.Stdout)), "saved ")
	if !Poll(patience, p.Done(), saved(n+2)) {
		t.Errorf("the first job does not go on: %s%s", mustRead(t, r.Stdout), mustRead(t, r.Stderr))
	}
	p.Kill()
}

// TestNamedElsewhere: epochs of ckptrun are not taken for such a program's, and the other way round; under ckptrun the
// calls change nothing.
func TestNamedElsewhere(t *testing.T) {
	t.Parallel()
	j, dir := newNamedJob(t, "plate", ""), t.TempDir()
	want := endOf(j.must(t, 1, dir+"/none", "30", "0"))
	exit, out, said := again(t, built.CkptRun(), "--dir", dir+"/whole", "--", j.program, "30", "10")
	if exit != (Exit{}) || endOf(out) != want || !strings.Contains(out, "fresh at 0\nsaved 10\n") {
		t.Errorf("under ckptrun: %v\n%s%s", exit, out, said)
	}
	if exit, _, said = j.once(t, 1, dir+"/whole", "30", "10"); exit.Code != 3 || !strings.Contains(said, "is not of a program that names its state (MPIX_Checkpoint_protect): `ckptrun --restart ") {
		t.Errorf("%v: %s", exit, said)
	}
	j.must(t, 1, dir+"/named", "30", "10")
	if exit, _, said = again(t, built.CkptRun(), "--restart", dir+"/named"); exit.Code != 1 || !strings.Contains(said, "no process that could be continued") {
		t.Errorf("%v: %s", exit, said)
	}
	for _, command := range [][]string{{"ls"}, {"verify"}, {"inspect"}} {
		if exit, out, said := again(t, built.CkptCtl(), command[0], dir+"/named"); exit != (Exit{}) {
			t.Errorf("ckptctl %s: %v\n%s%s", command[0], exit, out, said)
		}
	}
}

// TestNamedErrors: calls that are wrong, or come in a wrong state, are answered with a number and in words; and a process
// that is only linked with libckpt has no thread, no handler and no fork of its that hangs.
func TestNamedErrors(t *testing.T) {
	t.Parallel()
	for _, mpi := range []string{"", "mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			t.Parallel()
			j, dir := newNamedJob(t, "misnamed", mpi), t.TempDir()
			both := []string{
				map[bool]string{true: "threads 1, handler 0\n", false: "handler "}[mpi == ""], // UCX has one of its own
				"\nMPIX_Checkpoint_protect(0, a, sizeof a): 0 \nMPIX_Checkpoint_unprotect(0): 0 \nMPIX_Checkpoint(&state): 0 the program was not started by ckptrun, and names no state",
				"MPIX_Checkpoint(NULL): 12 state is NULL\n",
				"MPIX_Checkpoint_protect(-1, a, sizeof a): 12 the number of a region is 0 or more\n",
				"MPIX_Checkpoint_protect(0, NULL, 8): 12 the address of the region is NULL\n",
				"MPIX_Checkpoint_unprotect(5): 12 region 5 is not protected\n",
				"MPIX_Checkpoint_saved(0, &n): 15 nobody has looked what is saved",
				"MPIX_Checkpoint_saved(0, NULL): 12 bytes is NULL\n",
				"MPIX_Checkpoint_recover_one(0): 15 nobody has looked what is saved",
				"100 bytes) overlaps region 0 (",
				"100 elements from element 1 on are not in an array of 100\n",
				"region 0 has 800 bytes, and the block that it is said to be has 792\n",
				"MPIX_Checkpoint_level(5): 15 there is no level 5: levels are 1 to 4\n",
				"MPIX_Checkpoint_level(4): 0 \n",
				"MPIX_Checkpoint_recover_one(4): 12 region 4 is not protected\n",
				"MPIX_Checkpoint(&state): 0 \nstate 1\nMPIX_Checkpoint_recover(&state): 15 a checkpoint was made since the start",
				"MPIX_Checkpoint(&state): 0 this process was forked after libckpt was loaded, whose threads it does not have: exec first\nstate 0\n",
				"MPIX_Checkpoint(&state): 0 checkpoint refused: no rank protects anything (MPIX_Checkpoint_protect): there is nothing to be saved\nstate 3\n",
			}
			for start, more := range [][]string{{
				"MPIX_Checkpoint_recover(NULL): 37 nothing is saved here: a fresh start\nMPIX_Checkpoint_saved(7, &n): 37 ",
				"MPIX_Checkpoint_recover(&state): 0 nothing is saved here: a fresh start\nstate 3\n",
			}, {
				"MPIX_Checkpoint_recover(NULL): 0 \nMPIX_Checkpoint_saved(7, &n): 15 epoch 1 has no region 7 of rank 0: it has 0, 2\nMPIX_Checkpoint_saved(0, &n): 0 \n",
				"region 0 was saved with 800 bytes and is protected with 80: ask MPIX_Checkpoint_saved for the size, and protect it anew\nstate 0\n",
				"MPIX_Checkpoint_recover(&state): 15 epoch 1 has no region 3 of rank 0: it has 0, 2\n",
				"MPIX_Checkpoint_recover_one(0): 0 \n",
			}} {
				exit, out, said := j.once(t, 1, dir+"/ckpt")
				if exit != (Exit{}) {
					t.Fatalf("%v\n%s%s", exit, out, said)
				}
				for _, want := range append(more, both...) {
					if !strings.Contains(out, want) {
						t.Errorf("start %d: want %q:\n%s", start, want, out)
					}
				}
			}
		})
	}
}

// TestNamedLaunched: ranks without MPI know each other by their launcher, or by the directory, and make one epoch.
func TestNamedLaunched(t *testing.T) {
	t.Parallel()
	j := newNamedJob(t, "plate", "")
	dir := t.TempDir()
	want := endOf(j.must(t, 1, dir+"/none", "40", "0"))
	for name, launcher := range map[string][]string{
		"mpich":     {"mpiexec.mpich", "-n", "2"},
		"openmpi":   {"mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"},
		"directory": {"sh", "-c", `CKPT_SIZE=2 CKPT_RANK=1 "$@" & CKPT_SIZE=2 CKPT_RANK=0 "$@"; s=$?; wait $! && exit $s`, "sh"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "directory" {
				needmpi.Test(t, name)
			}
			for _, steps := range []string{"20", "40"} {
				out := outputOf(t, append(launcher, j.argv(2, dir+"/"+name, steps, "10")...)...)
				if steps == "40" && (strings.Count(out, "restart at 20\n") != 2 || strings.Count(out, want) != 2) {
					t.Errorf("%s\nundisturbed: %s", out, want)
				}
			}
			images, _ := filepath.Glob(dir + "/" + name + "/epoch-*/rank-0000[01].ckpt")
			if len(images) != 4 {
				t.Errorf("images: %v", images)
			}
		})
	}
}
