// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/disturb"
	"github.com/libckpt/libckpt/internal/history"
)

// kindOfFault is one way to hurt a job.
type kindOfFault struct {
	name   string
	weight int
	// deadly: the job may end of it. restart: it may come while the job is started again.
	deadly, restart bool
	network         bool // it cuts connections: two such would heal each other
	// begin hurts a job at the time of a call of the process, and returns how to end that. It must not wait.
	begin func(l *hurtLife, f *fault) (heal func())
	// fails is the result of the call itself.
	fails func(c *disturb.Call) error
}

// fault is one of them, as drawn.
type fault struct {
	*kindOfFault
	rank, other int
	at          int // which call of the library, since the request or the start; 0: before the request
	lasts       time.Duration
	timeout     time.Duration
	then        string
	named       bool // it lasts until it is said who is away

	once  sync.Once
	mu    sync.Mutex
	where string // the call at which it came
	undo  func()
	begun chan struct{}
}

var failedCall = &kindOfFault{name: "failed call", weight: 20, restart: true, fails: someError}

var faultKinds = []*kindOfFault{
	{name: "reset", weight: 4, restart: true, begin: func(l *hurtLife, f *fault) func() {
		l.check(l.now.field.Reset(f.rank, f.other))
		return nil
	}},
	{name: "cut one way", weight: 4, network: true, begin: func(l *hurtLife, f *fault) func() {
		l.check(l.now.field.Cut(f.rank, f.other))
		return func() { l.check(l.now.field.Heal(f.rank, f.other)) }
	}},
	{name: "cut both ways", weight: 4, network: true, begin: func(l *hurtLife, f *fault) func() {
		l.check(errors.Join(l.now.field.Cut(f.rank, f.other), l.now.field.Cut(f.other, f.rank)))
		return func() { l.check(errors.Join(l.now.field.Heal(f.rank, f.other), l.now.field.Heal(f.other, f.rank))) }
	}},
	{name: "cut off", weight: 4, network: true, begin: func(l *hurtLife, f *fault) func() {
		l.isolate(f.rank, true)
		return func() { l.isolate(f.rank, false) }
	}},
	{name: "delays", weight: 4, network: true, begin: func(l *hurtLife, f *fault) func() {
		end, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for {
				for _, cut := range []bool{true, false} {
					l.isolate(f.rank, cut)
					select {
					case <-end:
						l.isolate(f.rank, false)
						return
					case <-time.After(60 * time.Millisecond):
					}
				}
			}
		}()
		return func() { close(end); <-ended }
	}},
	{name: "pause", weight: 8, restart: true, begin: func(l *hurtLife, f *fault) func() {
		p := l.now.field.Rank(f.rank)
		if p == nil {
			return nil
		}
		_ = syscall.Kill(p.PID, syscall.SIGSTOP) // it may have ended
		return func() { _ = syscall.Kill(p.PID, syscall.SIGCONT) }
	}},
	{name: "pause of the copy", weight: 2, begin: func(l *hurtLife, f *fault) func() {
		copies := l.copies(f.rank)
		for _, pid := range copies {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
		}
		return func() {
			for _, pid := range copies {
				_ = syscall.Kill(pid, syscall.SIGCONT)
			}
		}
	}},
	{name: "kill of the copy", weight: 4, begin: func(l *hurtLife, f *fault) func() {
		for _, pid := range l.copies(f.rank) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return nil
	}},
	{name: "slow disk", weight: 3, restart: true, begin: func(l *hurtLife, f *fault) func() {
		return l.trap(f, onDisk, func(*disturb.Process, *disturb.Call) error { time.Sleep(40 * time.Millisecond); return nil })
	}},
	{name: "hung disk", weight: 6, restart: true, begin: func(l *hurtLife, f *fault) func() {
		answers := make(chan struct{})
		remove := l.trap(f, onDisk, func(p *disturb.Process, _ *disturb.Call) error {
			select {
			case <-answers:
			case <-p.Done():
			}
			return nil
		})
		return func() { remove(); close(answers) }
	}},
	{name: "full disk", weight: 4, restart: true, begin: func(l *hurtLife, f *fault) func() {
		return l.trap(f, takesSpace, func(*disturb.Process, *disturb.Call) error { return unix.ENOSPC })
	}},
	{name: "dead disk", weight: 4, restart: true, begin: func(l *hurtLife, f *fault) func() {
		return l.trap(f, onDisk, func(*disturb.Process, *disturb.Call) error { return unix.EIO })
	}},
	failedCall,
	{name: "no copy", weight: 2, begin: func(l *hurtLife, f *fault) func() {
		return l.trap(f, func(c *disturb.Call) bool { return c.Site == disturb.Fork }, func(*disturb.Process, *disturb.Call) error { return unix.EAGAIN })
	}},
	{name: "kill of a rank", weight: 6, restart: true, deadly: true, begin: func(l *hurtLife, f *fault) func() {
		if p := l.now.field.Rank(f.rank); p != nil {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
		return nil
	}},
	{name: "kill of all", weight: 4, restart: true, deadly: true, begin: func(l *hurtLife, f *fault) func() {
		for _, p := range l.now.field.Processes() {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
		return nil
	}},
	{name: "second job", weight: 2},
}

// someError is one that the call may have.
func someError(c *disturb.Call) error {
	switch c.Number {
	case unix.SYS_CONNECT:
		return unix.ETIMEDOUT
	case unix.SYS_ACCEPT4:
		return unix.ECONNABORTED
	case unix.SYS_SOCKET, unix.SYS_OPENAT, unix.SYS_PIPE2, unix.SYS_MEMFD_CREATE:
		return unix.EMFILE
	case unix.SYS_MMAP, unix.SYS_CLONE, unix.SYS_UNSHARE, unix.SYS_EPOLL_CTL:
		return unix.ENOMEM
	case unix.SYS_MUNMAP, unix.SYS_MPROTECT:
		return unix.ENOMEM
	case unix.SYS_SETSOCKOPT, unix.SYS_GETSOCKOPT, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_BIND, unix.SYS_LISTEN:
		return unix.ENOBUFS
	case unix.SYS_WRITE, unix.SYS_READ:
		if link, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.PID, int32(c.Args[0]))); strings.HasPrefix(link, "socket:") {
			return unix.ECONNRESET
		}
		if c.Number == unix.SYS_READ {
			return unix.EIO
		}
		return unix.ENOSPC
	case unix.SYS_PROCESS_VM_READV:
		return unix.EFAULT
	case unix.SYS_PWRITE64, unix.SYS_MKDIRAT, unix.SYS_FALLOCATE, unix.SYS_FTRUNCATE:
		return unix.ENOSPC
	}
	return unix.EIO
}

// onDisk tells whether a call waits for the disk of the checkpoints.
func onDisk(c *disturb.Call) bool {
	if c.Site != disturb.Library {
		return false
	}
	switch c.Number {
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_PWRITE64, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_GETDENTS64, unix.SYS_COPY_FILE_RANGE,
		unix.SYS_MKDIRAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_UNLINKAT:
		return true
	case unix.SYS_OPENAT, unix.SYS_WRITE:
		text := c.Text()
		return strings.Contains(text, "epoch-") || strings.Contains(text, "ckpt/") || strings.Contains(text, "lease/")
	}
	return false
}

// takesSpace tells whether a call may find a disk full.
func takesSpace(c *disturb.Call) bool {
	switch c.Number {
	case unix.SYS_PWRITE64, unix.SYS_FALLOCATE, unix.SYS_MKDIRAT, unix.SYS_LINKAT, unix.SYS_COPY_FILE_RANGE:
		return c.Site == disturb.Library
	case unix.SYS_OPENAT:
		return c.Args[2]&unix.O_CREAT != 0 && onDisk(c)
	case unix.SYS_WRITE:
		return onDisk(c)
	}
	return false
}

func (l *hurtLife) check(err error) {
	if err != nil {
		l.t.Errorf("the test cannot do what it wants: %v", err)
	}
}

func (l *hurtLife) isolate(rank int, cut bool) {
	for other := range l.ranks {
		for _, pair := range [][2]int{{rank, other}, {other, rank}} {
			switch {
			case other == rank:
			case cut:
				l.check(l.now.field.Cut(pair[0], pair[1]))
			default:
				l.check(l.now.field.Heal(pair[0], pair[1]))
			}
		}
	}
}

// copies are the frozen copies of a rank.
func (l *hurtLife) copies(rank int) []int {
	p := l.now.field.Rank(rank)
	if p == nil {
		return nil
	}
	var all []int
	for _, pid := range l.mark.Processes() {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", p.PID)) {
			all = append(all, pid)
		}
	}
	return all
}

// trap sets a trap on the rank of the fault, or on all if that is -1.
func (l *hurtLife) trap(f *fault, want func(*disturb.Call) bool, act func(*disturb.Process, *disturb.Call) error) (remove func()) {
	var all []func()
	for _, p := range l.now.field.Processes() {
		if f.rank < 0 || p.Rank == f.rank {
			all = append(all, p.Set(&disturb.Trap{Want: want, Act: act}))
		}
	}
	return func() {
		for _, f := range all {
			f()
		}
	}
}

// draw makes a fault.
func (l *hurtLife) draw(restart bool) *fault {
	kinds := faultKinds
	if restart {
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(k *kindOfFault) bool { return !k.restart })
	}
	if only := os.Getenv("LIBCKPT_CAMPAIGN_ONLY"); only != "" {
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(k *kindOfFault) bool { return k.name != only })
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	f := &fault{begun: make(chan struct{})}
	at := l.random.IntN(total)
	for _, k := range kinds {
		if at -= k.weight; at < 0 {
			f.kindOfFault = k
			break
		}
	}
	f.rank = l.random.IntN(l.ranks)
	f.other = (f.rank + 1 + l.random.IntN(l.ranks-1)) % l.ranks
	f.lasts = time.Duration(50+l.random.IntN(1500)) * time.Millisecond
	if l.random.IntN(3) == 0 {
		f.lasts += 3 * time.Second
	}
	f.timeout = time.Duration(1000+l.random.IntN(7000)) * time.Millisecond
	if l.random.IntN(4) == 0 {
		f.timeout = time.Duration(100+l.random.IntN(500)) * time.Millisecond
	}
	f.then = []string{"continue", "continue", "continue", "continue", "continue", "exit", "kill"}[l.random.IntN(7)]
	switch {
	case restart:
		f.at = 1 + l.random.IntN(l.starts*9/10)
	case f.fails != nil || l.random.IntN(5) > 0:
		f.at = 1 + l.random.IntN(l.calls*9/10)
	}
	return f
}

// strike begins the fault, once. c is nil when it comes before the request.
func (f *fault) strike(l *hurtLife, c *disturb.Call) (err error) {
	f.once.Do(func() {
		where := "before the request"
		if c != nil {
			where = fmt.Sprintf("call %d: %s", f.at, c.Text())
			if f.fails != nil {
				err = f.fails(c)
				where += fmt.Sprintf(" fails: %v", err)
			}
		}
		l.w.add(history.Event{Kind: history.Hurt, Text: f.name, Deadly: f.deadly, Rank: f.rank, Then: where})
		var undo func()
		if f.begin != nil {
			undo = f.begin(l, f)
		}
		f.mu.Lock()
		f.where, f.undo = where, undo
		f.mu.Unlock()
		close(f.begun)
	})
	return err
}

// drawn draws one fault, or two that may come at the same time.
func (l *hurtLife) drawn() []*fault {
	f := l.draw(false)
	if f.name == "second job" || l.random.IntN(4) > 0 {
		f.named = (f.name == "pause" || f.name == "cut off") && l.random.IntN(3) == 0
		return []*fault{f}
	}
	for {
		g := l.draw(false)
		if g.name != "second job" && g.name != f.name && (!g.network || !f.network) {
			return []*fault{f, g}
		}
	}
}

// heal waits for the fault, and ends it when its time is over.
func (f *fault) heal(l *hurtLife) {
	<-f.begun
	f.mu.Lock()
	undo := f.undo
	f.mu.Unlock()
	if !f.happened() {
		return
	}
	if undo != nil {
		select {
		case <-time.After(f.lasts):
		case <-l.now.Done():
		}
		if f.named && !Poll(patience, l.now.Done(), func() bool { return l.w.missing(l.now, f.rank) }) && !l.now.Ended() {
			l.w.add(history.Event{Kind: history.Unnamed, Run: l.now.number, Rank: f.rank})
		}
		undo()
	}
	l.w.add(history.Event{Kind: history.Healed, Text: f.name})
}

// missing tells whether the log of a run says that a rank is away.
func (w *watcher) missing(in *incarnation, rank int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookLocked()
	away := false
	for _, e := range w.events {
		if e.Kind == history.Log && e.Run == in.number && strings.Contains(e.Text, fmt.Sprintf(`"rank": %d`, rank)) {
			away = away && !strings.Contains(e.Text, "can be reached again") || strings.Contains(e.Text, "a rank cannot be reached")
		}
	}
	return away
}

// happened tells whether the fault has begun.
func (f *fault) happened() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.where != ""
}

// over says that the fault does not come any more if it has not.
func (f *fault) over() { f.once.Do(func() { close(f.begun) }) }

// set has the fault come at its call of a process.
func (f *fault) set(l *hurtLife, p *disturb.Process) (remove func()) {
	return p.Set(&disturb.Trap{At: f.at, Act: func(_ *disturb.Process, c *disturb.Call) error { return f.strike(l, c) }})
}

// fall has faults come while the job is asked, and waits for the answers and for the faults' ends.
func (l *hurtLife) fall(faults []*fault, asked func() []reply) []reply {
	var healed sync.WaitGroup
	var remove []func()
	for _, f := range faults {
		healed.Go(func() { f.heal(l) })
		if f.at == 0 {
			_ = f.strike(l, nil)
		} else if p := l.now.field.Rank(f.rank); p != nil {
			remove = append(remove, f.set(l, p))
		}
	}
	replies := asked()
	for _, f := range remove {
		f()
	}
	for _, f := range faults {
		f.over()
	}
	healed.Wait()
	return replies
}

// round hurts the job, and has it go on.
func (l *hurtLife) round(faults ...*fault) {
	if faults[0].name == "second job" {
		l.second()
		l.done++
		return
	}
	f := faults[0]
	replies := l.fall(faults, func() []reply {
		all := []<-chan reply{l.ask(f.then, f.timeout)}
		if l.random.IntN(8) == 0 { // two at once
			time.Sleep(time.Duration(l.random.IntN(60)) * time.Millisecond)
			all = append(all, l.ask([]string{"continue", "exit"}[l.random.IntN(2)], f.timeout))
		}
		var replies []reply
		for _, r := range all {
			replies = append(replies, <-r)
		}
		return replies
	})
	deadly, done, ends := false, false, false
	for _, f := range faults {
		l.tally.add(l.mpi, f, replies[0])
		l.done++
		deadly = deadly || f.deadly && f.happened()
	}
	perhaps := false
	for _, r := range replies {
		done = done || r.epoch != 0
		ends = ends || r.epoch != 0 && r.then != "continue"
		perhaps = perhaps || r.epoch == 0 && r.then != "continue" && leavesOpen(r.text)
	}
	if perhaps {
		Poll(20*time.Second, l.now.Done(), l.now.Ended)
	}
	if deadly || ends {
		if !Poll(patience, l.now.Done(), l.now.Ended) {
			l.stands("it does not end")
		}
	}
	if l.now.Ended() || !l.goesOn() {
		l.ended(l.now)
		l.again()
		return
	}
	if !done || l.random.IntN(4) == 0 {
		l.save()
	}
}

// again starts the job again from its newest epoch: hurt, until it lives, and unhurt at last.
func (l *hurtLife) again() {
	for try := 0; ; try++ {
		epoch := newestOf(epochsIn(l.run.Checkpoints()))
		if epoch == 0 {
			l.w.add(history.Event{Kind: history.Stands, Run: l.now.number, Text: "there is no epoch"})
			panic(broken{})
		}
		l.verify(epoch)
		if try > 2 || l.random.IntN(2) == 0 {
			if l.start(epoch, nil) {
				l.starts = max(20, l.now.field.Rank(l.random.IntN(l.ranks)).Calls())
				l.goesOn()
				return
			}
			panic(broken{}) // the history says so
		}
		f := l.draw(true)
		if l.hurtStart(epoch, f) {
			return
		}
	}
}

// hurtStart starts the job and hurts it; it tells whether it lives.
func (l *hurtLife) hurtStart(epoch int, f *fault) bool {
	f.then = "restart"
	var healed sync.WaitGroup
	healed.Go(func() { f.heal(l) })
	lives := l.start(epoch, func(p *disturb.Process) {
		if p.Rank == f.rank {
			f.set(l, p)
		}
	})
	l.done++
	f.over()
	healed.Wait()
	outcome := reply{then: "restart", epoch: epoch}
	if !lives {
		outcome.epoch = 0
		text, _ := os.ReadFile(l.now.stderr)
		outcome.text = tailOf(string(text))
	}
	l.tally.add(l.mpi, f, outcome)
	if !lives {
		return false
	}
	if f.deadly && f.happened() {
		if !Poll(patience, l.now.Done(), l.now.Ended) {
			l.stands("it does not end")
		}
	}
	if l.now.Ended() || !l.goesOn() {
		l.ended(l.now)
		return false
	}
	l.save()
	return true
}

// second starts the job a second time beside itself: it is refused, and the first sees nothing of it.
func (l *hurtLife) second() {
	epoch := newestOf(epochsIn(l.run.Checkpoints()))
	in := l.launch(epoch, true, nil)
	if !Poll(patience, in.Done(), in.Ended) {
		l.stands("the second job does not end")
	}
	l.ended(in)
	l.tally.add(l.mpi, &fault{kindOfFault: &kindOfFault{name: "second job"}, where: "beside the first"}, reply{epoch: 0, text: "refused", then: "restart"})
	l.goesOn()
}

// gdb tells where the threads of processes are.
func gdb(pids []int) string {
	tool, err := exec.LookPath("gdb")
	if err != nil {
		return ""
	}
	var b strings.Builder
	for _, pid := range pids {
		out, _ := exec.Command("timeout", "60", tool, "-batch", "-p", fmt.Sprint(pid), "-ex", "thread apply all bt 16").CombinedOutput()
		fmt.Fprintf(&b, "stacks of process %d:\n%s", pid, out)
	}
	return b.String()
}
