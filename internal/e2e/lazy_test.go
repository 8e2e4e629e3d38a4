// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
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

	"github.com/libckpt/libckpt/internal/needmpi"
)

// pagesJob is pages.c under a launcher, or alone.
type pagesJob struct {
	t        *testing.T
	run      *Run
	mark     Mark
	launcher string // "alone", or of launchers
	ranks    int
	argv     []string
	files    RankFiles
	hold     string // while it exists, the program waits after the step that it names
	asked    int
	last     int // the step after which it is saved
}

const (
	pagesMiB   = 72 // an image of more than what auto takes for small
	pagesSteps = 12
	pagesLimit = 3 * time.Minute
)

// pagesPrograms are the compiled programs by launcher.
var pagesPrograms = map[string]string{}

func pagesProgram(t *testing.T, launcher string) string {
	t.Helper()
	if launcher != "alone" {
		needmpi.Test(t, launcher)
	}
	if path, ok := pagesPrograms[launcher]; ok {
		return path
	}
	cc := []string{"gcc", "-DMPI=0"}
	if launcher != "alone" {
		cc = []string{"mpicc." + launcher, "-DMPI=1"}
	}
	out := filepath.Join(built.Bin, "pages-"+launcher)
	cmd := exec.Command(cc[0], append(cc[1:], "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", out, filepath.Join(built.Src, "pages.c"))...)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, b)
	}
	pagesPrograms[launcher] = out
	return out
}

func newPages(t *testing.T, launcher string, threads int) *pagesJob {
	t.Helper()
	needCommands(t)
	run, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	j := &pagesJob{t: t, run: run, mark: NewMark(), launcher: launcher, ranks: 1, files: RankFiles(filepath.Join(run.Dir, "rank")),
		hold: filepath.Join(run.Dir, "hold")}
	if launcher != "alone" {
		j.ranks = 2
	}
	j.argv = []string{pagesProgram(t, launcher), strconv.Itoa(pagesMiB), strconv.Itoa(pagesSteps), strconv.Itoa(threads), j.hold}
	j.saveAfter(0)
	t.Cleanup(j.mark.KillAll)
	return j
}

// saveAfter says which change to its memory is the first after a restart.
func (j *pagesJob) saveAfter(step int) {
	j.t.Helper()
	j.last = step
	link := j.hold + ".new"
	if err := os.Symlink(strconv.Itoa(step), link); err != nil {
		j.t.Fatal(err)
	}
	if err := os.Rename(link, j.hold); err != nil {
		j.t.Fatal(err)
	}
}

func (j *pagesJob) launch(argv ...string) *Process {
	j.t.Helper()
	argv = j.files.Argv(argv...)
	if j.launcher != "alone" {
		argv = append(append(slices.Clone(launchers[j.launcher]), "-n", strconv.Itoa(j.ranks)), argv...)
	}
	p, err := Start(Command{Argv: argv, Dir: j.run.Work(), Mark: j.mark, Stdout: j.run.Stdout, Stderr: j.run.Stderr,
		Env: []string{"TMPDIR=" + j.run.Work(), "LC_ALL=C", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}})
	if err != nil {
		j.t.Fatal(err)
	}
	return p
}

// saved starts the job, has it saved after some steps, as often as wanted, and kills it with the last epoch.
func (j *pagesJob) saved(epochs int, options ...string) {
	j.t.Helper()
	p := j.launch(append(append([]string{built.CkptRun(), "--dir", j.run.Checkpoints(), "--compress", "none"}, options...), append([]string{"--"}, j.argv...)...)...)
	j.reached(p, j.last)
	for n := range epochs {
		then := "continue"
		if n == epochs-1 {
			then = "kill"
		}
		j.checkpoint(then)
	}
	if _, err := p.Wait(pagesLimit); err != nil {
		j.t.Fatal(err)
	}
}

func (j *pagesJob) checkpoint(then string) {
	j.t.Helper()
	j.asked++
	if exit, said := checkpoint(j.t, j.run, j.mark, fmt.Sprint("ask-", j.asked), then); exit != (Exit{}) {
		j.t.Fatalf("checkpoint: %v: %s\n%s", exit, said, j.said())
	}
}

// goOn lets the program, which waits, go on to its end.
func (j *pagesJob) goOn() {
	j.t.Helper()
	if err := os.Remove(j.hold); err != nil {
		j.t.Fatal(err)
	}
}

// reached waits until all ranks have done a step.
func (j *pagesJob) reached(p *Process, step int) {
	j.t.Helper()
	if !Poll(pagesLimit, p.Done(), func() bool {
		for r := range j.ranks {
			if _, err := os.Stat(fmt.Sprintf("%s.%d.%d", j.hold, r, step)); err != nil {
				return false
			}
		}
		return true
	}) {
		j.t.Fatalf("step %d is not reached: %s\n%s", step, j.said(), Dump(j.mark.Processes()))
	}
}

// serving waits until a restarted job can be asked.
func (j *pagesJob) serving(p *Process) {
	j.t.Helper()
	if !Poll(pagesLimit, p.Done(), func() bool {
		cmd := exec.Command(built.CkptCtl(), "status", j.run.Checkpoints())
		return cmd.Run() == nil
	}) {
		j.t.Fatalf("the job does not answer: %s", j.said())
	}
}

func (j *pagesJob) said() string {
	return string(mustRead(j.t, j.run.Stderr)) + j.wrote("err")
}

func (j *pagesJob) printed() string { return j.wrote("out") }

// wrote is what all ranks wrote to a stream; a job without ranks has no number in the names.
func (j *pagesJob) wrote(stream string) string {
	j.t.Helper()
	names, err := filepath.Glob(string(j.files) + "." + stream + ".*")
	if err != nil || len(names) == 0 {
		j.t.Fatalf("no output: %v", err)
	}
	slices.Sort(names)
	all := ""
	for _, name := range names {
		all += string(mustRead(j.t, name))
	}
	return all
}

func (j *pagesJob) ends(p *Process) {
	j.t.Helper()
	exit, err := p.Wait(pagesLimit)
	if err != nil || exit != (Exit{}) {
		j.t.Fatalf("%v, %v: %s", exit, err, j.said())
	}
	if err := noneLeft(j.mark); err != nil {
		j.t.Error(err)
	}
}

func (j *pagesJob) same(want *pagesJob) {
	j.t.Helper()
	if got, want := j.printed(), want.printed(); got != want {
		j.t.Errorf("it printed\n%s\nnatively\n%s", got, want)
	}
}

// natively is the job without ckptrun, at its end.
func (j *pagesJob) natively() *pagesJob {
	j.t.Helper()
	n := newPages(j.t, j.launcher, 1)
	n.goOn()
	n.argv = append(slices.Clone(j.argv[:4]), n.hold)
	n.ends(n.launch(n.argv...))
	return n
}

// onTouchAlone has restarts bring memory when it is touched, and not in the background.
func onTouchAlone(t *testing.T) { t.Setenv("CKPT_FAULT", "lazy.background=error") }

// A job is killed, and continued while its memory is still in the image. The first thing that happens to that memory
// then is that it is given back, moved, read and written by the kernel, copied by fork, or sent to the other rank; then
// threads touch everything at once. The result is that of a native run.
func TestLazyRestart(t *testing.T) {
	for _, launcher := range []string{"alone", "mpich", "openmpi"} {
		want := newPages(t, launcher, 12).natively()
		for first, what := range []string{"given back", "moved", "by the kernel", "forked", "sent"} {
			background := first == 2 // else on touch alone
			if launcher == "openmpi" && first < 3 {
				continue // they have nothing to do with the MPI
			}
			t.Run(launcher+", "+what, func(t *testing.T) {
				j := newPages(t, launcher, 12)
				j.saveAfter(first)
				j.saved(1)
				if !background {
					onTouchAlone(t)
				}
				j.goOn()
				j.ends(j.launch(built.CkptRun(), "--restart", j.run.Checkpoints()))
				j.same(want)
			})
		}
	}
}

// The first thing that happens after a lazy restart is a checkpoint, with nearly all memory still in the image, and
// again after the next: nothing is lost on the way.
func TestLazyCheckpoint(t *testing.T) {
	for _, c := range []struct{ launcher, snapshot string }{{"alone", "cow"}, {"alone", "stop"}, {"mpich", "cow"}, {"openmpi", "cow"}} {
		t.Run(c.launcher+", "+c.snapshot, func(t *testing.T) {
			j := newPages(t, c.launcher, 2)
			want := j.natively()
			j.saved(1)
			for range 2 {
				t.Run("", func(sub *testing.T) {
					onTouchAlone(sub)
					p := j.launch(built.CkptRun(), "--restart", j.run.Checkpoints(), "--snapshot", c.snapshot)
					j.serving(p)
					j.checkpoint("kill")
					if _, err := p.Wait(pagesLimit); err != nil {
						sub.Fatal(err)
					}
				})
			}
			j.goOn()
			j.ends(j.launch(built.CkptRun(), "--restart", j.run.Checkpoints(), "--restart-mode", "eager"))
			j.same(want)
		})
	}
}

// A page near the end of an image is damaged: the program is continued, and the job ends when that page is needed,
// with the file and the place and what to do instead, and without another step. The same restart reads the image first and
// takes the epoch before.
func TestLazyDamaged(t *testing.T) {
	for _, launcher := range []string{"alone", "mpich", "openmpi"} {
		t.Run(launcher, func(t *testing.T) {
			j := newPages(t, launcher, 2)
			want := j.natively()
			j.saved(2)
			name := fmt.Sprintf("rank-%05d.ckpt", j.ranks-1)
			image := filepath.Join(j.run.Checkpoints(), "epoch-000002", name)
			b := mustRead(t, image)
			b[len(b)*9/10] ^= 1
			writeFile(t, image, b)
			j.goOn()
			before := j.printed()
			p := j.launch(built.CkptRun(), "--restart", j.run.Checkpoints(), "--restart-mode", "lazy")
			exit, err := p.Wait(pagesLimit)
			if err != nil || exit == (Exit{}) {
				t.Errorf("%v, %v", exit, err)
			}
			if err := noneLeft(j.mark); err != nil {
				t.Error(err)
			}
			said := j.said()
			if !regexp.MustCompile(regexp.QuoteMeta(name)+`: damaged image: pages 0x[0-9a-f]+-0x[0-9a-f]+ at offset \d+: digest`).MatchString(said) || !strings.Contains(said, "@1") {
				t.Errorf("it said %q", said)
			}
			if after := j.printed(); after != before {
				t.Errorf("it went on: %q", after)
			}
			log := filepath.Join(t.TempDir(), "said")
			j.ends(j.launch(telling(log, built.CkptRun(), "--restart", j.run.Checkpoints())...))
			j.same(want)
			if said := string(mustRead(t, log)); !strings.Contains(said, "epoch 2 is lost: ") || strings.Count(said, "taken instead: epoch 1\n") != 1 {
				t.Errorf("it said %q", said)
			}
		})
	}
}

// telling has a restart say what it says in a file of its own: it cuts back those of the program.
func telling(log string, argv ...string) []string {
	return append([]string{"sh", "-c", `exec "$@" 2>>"$0"`, log}, argv...)
}

// Somebody removes the epoch while its memory is still in it.
func TestLazyRemoved(t *testing.T) {
	j := newPages(t, "alone", 2)
	want := j.natively()
	j.saved(1)
	onTouchAlone(t)
	p := j.launch(built.CkptRun(), "--restart", j.run.Checkpoints())
	j.serving(p)
	if !Poll(pagesLimit, p.Done(), func() bool {
		out, _ := exec.Command(built.CkptCtl(), "status", j.run.Checkpoints()).Output()
		return regexp.MustCompile(`\bloading +.* of .*memory from the image`).Match(out)
	}) {
		t.Error("ckptctl status does not say that memory is still missing")
	}
	if err := os.RemoveAll(filepath.Join(j.run.Checkpoints(), "epoch-000001")); err != nil {
		t.Fatal(err)
	}
	j.goOn()
	j.ends(p)
	j.same(want)
}

// Where the kernel gives no userfaultfd, memory is read first; it is said once, with what to do, and doctor says it.
func TestLazyForbidden(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("hiding /dev/userfaultfd needs root")
	}
	if b, err := os.ReadFile("/proc/sys/vm/unprivileged_userfaultfd"); err != nil || b[0] != '0' {
		t.Skip("this kernel allows everybody")
	}
	const script = `if [ -e /dev/userfaultfd ]; then mount --bind /dev/null /dev/userfaultfd || exit 99; fi
exec setpriv --bounding-set=-sys_ptrace -- "$@" 2>>"$0"`
	log := filepath.Join(t.TempDir(), "said") // a restart cuts the program's own files
	jail := func(argv ...string) []string {
		return append([]string{"unshare", "-m", "sh", "-c", script, log}, argv...)
	}
	out, err := exec.Command("unshare", jail(built.CkptCtl(), "doctor")[1:]...).Output()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() != 1 || err != nil && !ok {
		t.Skipf("no such place can be made here: %v", err)
	}
	if !regexp.MustCompile(`(?m)^no +pages on demand`).Match(out) {
		t.Errorf("doctor says\n%s", out)
	}
	for _, launcher := range []string{"alone", "mpich"} {
		t.Run(launcher, func(t *testing.T) {
			j := newPages(t, launcher, 2)
			want := j.natively()
			j.saved(1)
			j.goOn()
			j.ends(j.launch(jail(built.CkptRun(), "--restart", j.run.Checkpoints())...))
			j.same(want)
			said := string(mustRead(t, log))
			writeFile(t, log, nil)
			if strings.Count(said, "userfaultfd is not allowed") != 1 || !strings.Contains(said, "vm.unprivileged_userfaultfd=1") {
				t.Errorf("it said %q", said)
			}
		})
	}
}
