// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/disturb"
	"github.com/libckpt/libckpt/internal/history"
)

const (
	// silence is after how long without a word a rank is missing, in these jobs.
	campaignSilence = 1500 * time.Millisecond
	// answerLate is what an answer may take beyond its timeout on a loaded machine.
	answerLate   = 90 * time.Second
	campaignKeep = 2
)

// hurtLife is a job under faults, from its start to its end.
type hurtLife struct {
	t        *testing.T
	mpi      string
	ranks    int
	program  string
	random   *rand.Rand
	run      *Run
	mark     Mark
	w        *watcher
	book     *logbook
	now      *incarnation
	stop     string
	requests int
	// calls is how many calls of the library a checkpoint, and a start, make on a rank.
	calls, starts int
	tally         *faultTally
	done          int // faults
}

// broken ends a life that cannot go on: the history says why.
type broken struct{}

func newHurtLife(t *testing.T, mpi, program string, seed uint64, tally *faultTally) *hurtLife {
	t.Helper()
	run, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := &hurtLife{t: t, mpi: mpi, ranks: 3, program: program, random: rand.New(rand.NewPCG(seed, 7)), run: run, mark: NewMark(),
		stop: filepath.Join(run.Dir, "stop"), calls: 200, starts: 300, tally: tally}
	for r := range l.ranks {
		if err := os.Mkdir(filepath.Join(run.Work(), fmt.Sprint("journal.", r)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l.book = newLogbook(l.ranks)
	l.w = newWatcher(l.ranks, run.Work(), run.Checkpoints())
	t.Cleanup(l.w.close)
	t.Cleanup(l.mark.KillAll)
	return l
}

// lead leads the life through so many faults.
func (l *hurtLife) lead(faults int) []history.Violation {
	return l.live(func() {
		for l.done < faults {
			l.round(l.drawn()...)
		}
	})
}

// sweep has some calls of a rank fail, one after the other, from a given one on: those of a checkpoint, or of a restart.
// over: there is none after them.
func (l *hurtLife) sweep(rank int, restart bool, from int) (found []history.Violation, over bool) {
	found = l.live(func() {
		beyond := 0
		for n := from; n < from+sweepLife && beyond < 3; n++ {
			f := &fault{kindOfFault: failedCall, rank: rank, at: n, timeout: time.Minute, then: "continue", begun: make(chan struct{})}
			if restart {
				l.killAll()
				if !l.hurtStart(newestOf(epochsIn(l.run.Checkpoints())), f) && !l.start(newestOf(epochsIn(l.run.Checkpoints())), nil) {
					panic(broken{})
				}
			} else {
				l.round(f)
			}
			if beyond++; f.happened() {
				beyond = 0
			}
		}
		over = beyond == 3
	})
	return found, over
}

// killAll ends the run as a node's failure does.
func (l *hurtLife) killAll() {
	_ = syscall.Kill(l.now.PID(), syscall.SIGKILL)
	for _, p := range l.now.field.Processes() {
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
	}
	l.w.add(history.Event{Kind: history.Hurt, Text: "kill of all", Deadly: true, Rank: -1})
	l.w.add(history.Event{Kind: history.Healed, Text: "kill of all"})
	l.ended(l.now)
}

// live starts the job, has f happen to it, and returns what is wrong with its history.
func (l *hurtLife) live(f func()) []history.Violation {
	func() {
		defer func() {
			if p := recover(); p != nil {
				if _, ok := p.(broken); !ok {
					panic(p)
				}
			}
		}()
		l.start(0, nil)
		l.save()
		before := l.now.field.Rank(0).Calls()
		l.save()
		l.calls = max(20, l.now.field.Rank(0).Calls()-before)
		f()
		l.finish()
	}()
	l.mark.KillAll()
	l.w.look()
	return history.Check(history.Rules{Ranks: l.ranks, Keep: campaignKeep, Want: l.book.step,
		Goes: func(a string) bool { return !leavesOpen(a) },
		Open: leavesOpen}, l.w.events)
}

// leavesOpen tells whether an answer says that there may be an epoch.
func leavesOpen(answer string) bool {
	for _, s := range []string{"ckptctl ls", "ckptctl status", "EOF", "reset by peer", "broken pipe", "not running any more", "ended before"} {
		if strings.Contains(answer, s) {
			return true
		}
	}
	return false
}

// launch starts the job, from an epoch if it is not 0, then under any MPI. each is called with its processes before they begin.
func (l *hurtLife) launch(epoch int, second bool, each func(*disturb.Process)) *incarnation {
	l.t.Helper()
	number := len(l.w.runs) + 1
	name := filepath.Join(l.run.Dir, fmt.Sprint("run-", number))
	known := make(chan struct{}) // which run it is
	field, err := disturb.Listen(string(l.mark)+fmt.Sprint("-", number), func(p *disturb.Process) {
		<-known
		if each != nil {
			each(p)
		}
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(field.Close)
	self, err := os.Executable()
	if err != nil {
		l.t.Fatal(err)
	}
	mpi := l.mpi
	if epoch != 0 && l.random.IntN(3) == 0 {
		mpi = mpis[l.random.IntN(len(mpis))]
	}
	argv := append(append([]string{}, launchers[mpi]...), "-n", strconv.Itoa(l.ranks), self, built.CkptRun())
	if epoch != 0 {
		argv = append(argv, "--restart", fmt.Sprintf("%s@%d", l.run.Checkpoints(), epoch))
	} else {
		argv = append(argv, "--dir", l.run.Checkpoints(), "--keep", fmt.Sprint(campaignKeep), "--", l.program, l.stop, l.run.Work())
	}
	l.w.add(history.Event{Kind: history.Start, Run: number, Epoch: epoch})
	p, err := Start(Command{Argv: argv, Dir: l.run.Work(), Mark: l.mark, Stdout: l.run.Stdout, Stderr: name,
		Env: []string{field.Variable(), "CKPT_DEBUG=silence=" + campaignSilence.String(), "TMPDIR=" + l.run.Work(),
			"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}})
	if err != nil {
		l.t.Fatal(err)
	}
	in := &incarnation{number: number, Process: p, field: field, stderr: name}
	l.w.mu.Lock()
	l.w.runs = append(l.w.runs, in)
	l.w.mu.Unlock()
	if !second {
		l.now = in
	}
	close(known)
	return in
}

// start starts the job and waits until it can be asked, or has ended.
func (l *hurtLife) start(epoch int, each func(*disturb.Process)) bool {
	l.launch(epoch, false, each)
	if !Poll(patience, l.now.Done(), func() bool { l.w.look(); return l.isOpen(l.now) && l.w.steps(l.now) }) && !l.now.Ended() {
		l.stands("it does not begin")
	}
	if l.now.Ended() {
		l.ended(l.now)
		return false
	}
	return true
}

func (l *hurtLife) isOpen(in *incarnation) bool {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return in.opened
}

// steps tells whether all ranks have made a step since the run is open.
func (w *watcher) steps(in *incarnation) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	made := map[int]bool{}
	for i := len(w.events) - 1; i >= 0; i-- {
		switch e := w.events[i]; {
		case e.Kind == history.Step:
			made[e.Rank] = true
		case e.Kind == history.Start && e.Run == in.number:
			return len(made) == w.ranks
		}
	}
	return false
}

// stands notes that nothing happens any more, and ends the life.
func (l *hurtLife) stands(what string) {
	l.w.add(history.Event{Kind: history.Stands, Run: l.now.number, Text: what + "\n" + Dump(l.mark.Processes()) + gdb(l.mark.Ranks())})
	panic(broken{})
}

// ended notes the end of a run.
func (l *hurtLife) ended(in *incarnation) {
	exit, err := in.Wait(patience)
	if err != nil {
		l.stands(err.Error())
	}
	if err := noneLeftOf(in, l.mark); err != nil {
		l.stands(err.Error())
	}
	text, _ := os.ReadFile(in.stderr)
	code := exit.Code
	if exit.Signal != 0 {
		code = 128 + int(exit.Signal)
	}
	l.w.add(history.Event{Kind: history.End, Run: in.number, Code: code, Text: tailOf(string(text))})
	in.field.Close()
}

func noneLeftOf(in *incarnation, mark Mark) error {
	if Poll(patience, nil, func() bool { return len(in.field.Processes()) == 0 }) {
		return nil
	}
	return fmt.Errorf("left behind:\n%s", Dump(mark.Processes()))
}

func tailOf(s string) string { return s[max(0, len(s)-1500):] }

// goesOn waits until all ranks have made a step.
func (l *hurtLife) goesOn() bool {
	from := l.w.look()
	ok := Poll(patience, l.now.Done(), func() bool {
		for r, s := range l.w.look() {
			if s < from[r]+2 {
				return false
			}
		}
		return true
	})
	if !ok && !l.now.Ended() {
		l.stands("no further step")
	}
	return ok
}

// reply is what became of a request.
type reply struct {
	number, epoch int
	text          string
	then          string
}

// ask makes a request; the channel gets the reply when it is noted.
func (l *hurtLife) ask(then string, timeout time.Duration) <-chan reply {
	l.requests++
	n := l.requests
	out := filepath.Join(l.run.Dir, fmt.Sprint("request-", n))
	run := l.now.number
	l.w.add(history.Event{Kind: history.Request, Run: run, Request: n, Then: then, Text: timeout.String()})
	p, err := Start(Command{Argv: []string{built.CkptCtl(), "checkpoint", l.run.Checkpoints(), "--json", "--then", then, "--timeout", timeout.String()},
		Dir: l.run.Dir, Mark: l.mark, Stdout: out + ".out", Stderr: out + ".err"})
	if err != nil {
		l.t.Fatal(err)
	}
	done := make(chan reply, 1)
	go func() {
		select {
		case <-p.Done():
		case <-time.After(timeout + answerLate):
			l.w.add(history.Event{Kind: history.Silent, Run: run, Request: n, Text: Dump(l.mark.Processes())})
			_ = syscall.Kill(p.PID(), syscall.SIGKILL)
			<-p.Done()
		}
		exit, _ := p.Wait(time.Minute)
		said, _ := os.ReadFile(out + ".err")
		r := reply{number: n, text: string(said), then: then}
		if exit == (Exit{}) {
			var result struct{ Epoch int }
			text, _ := os.ReadFile(out + ".out")
			if err := json.Unmarshal(text, &result); err != nil {
				r.text += "unreadable answer: " + string(text)
			}
			r.epoch = result.Epoch
		}
		l.w.add(history.Event{Kind: history.Answer, Run: run, Request: n, Epoch: r.epoch, Then: then, Text: r.text})
		done <- r
	}()
	return done
}

// save makes a checkpoint that nothing disturbs: it must succeed.
func (l *hurtLife) save() {
	r := <-l.ask("continue", checkpointLimit)
	if r.epoch == 0 {
		l.w.add(history.Event{Kind: history.Stands, Run: l.now.number, Text: "nothing disturbs it, and no checkpoint can be made: " + r.text})
		panic(broken{})
	}
	l.verify(r.epoch)
}

func (l *hurtLife) verify(epoch int) {
	if !epochsIn(l.run.Checkpoints())[epoch] {
		return // newer ones have taken its place
	}
	r, err := NewRun(filepath.Join(l.run.Dir, fmt.Sprintf("verify-%d-%d", epoch, l.requests)))
	if err != nil {
		l.t.Fatal(err)
	}
	if err := r.Once(patience, built.CkptCtl(), "verify", fmt.Sprintf("%s@%d", l.run.Checkpoints(), epoch)); err != nil {
		l.t.Fatal(err)
	}
	said, _ := os.ReadFile(r.Stderr)
	l.w.add(history.Event{Kind: history.Verified, Epoch: epoch, Fine: r.Exit == Exit{}, Text: string(said)})
}

// finish lets the program come to its end, hurt or not, and looks at its result.
func (l *hurtLife) finish() {
	l.goesOn()
	var faults []*fault
	if f := l.draw(false); !f.deadly && f.name != "second job" {
		f.at = min(f.at, 1+l.random.IntN(50))
		f.then = "end"
		faults = append(faults, f)
	}
	l.fall(faults, func() []reply {
		l.w.add(history.Event{Kind: history.Stop, Run: l.now.number})
		if err := os.WriteFile(l.stop, nil, 0o644); err != nil {
			l.t.Fatal(err)
		}
		if !Poll(patience, l.now.Done(), l.now.Ended) {
			l.stands("it does not come to its end")
		}
		return nil
	})
	for _, f := range faults {
		l.tally.add(l.mpi, f, reply{then: "end", epoch: 1})
	}
	l.ended(l.now)
	l.w.add(history.Event{Kind: history.Result, Run: l.now.number, Fine: l.result() == "", Text: l.result()})
}

// result says what is wrong with the logs, which have each step once.
func (l *hurtLife) result() string {
	for r, last := range l.w.look() {
		text, err := os.ReadFile(filepath.Join(l.run.Work(), fmt.Sprint("log.", r)))
		if err != nil {
			return err.Error()
		}
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		if len(lines) != last+1 {
			return fmt.Sprintf("the log of rank %d has %d steps, it did %d", r, len(lines), last+1)
		}
		for s, line := range lines {
			if want := fmt.Sprint(s, " ", l.book.step(r, s)); line != want {
				return fmt.Sprintf("the log of rank %d has %q, undisturbed %q", r, line, want)
			}
		}
	}
	return ""
}

// story is the history for people, steps left out.
func (l *hurtLife) story() string {
	var b strings.Builder
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	for i, e := range l.w.events {
		if e.Kind != history.Step {
			fmt.Fprintf(&b, "%5d %v\n", i, e)
		}
	}
	return b.String()
}
