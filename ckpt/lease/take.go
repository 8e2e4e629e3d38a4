// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/fault"
)

// Claim is a wish to own a directory.
type Claim struct {
	Program string // for people
	Job     string // what the launcher calls the job; equal on all its ranks
	// Age is for how long the launcher has run at most. What is older was left by another job of the same name:
	// Hydra names its jobs after a port. 0: no other job ever has the name.
	Age   time.Duration
	Lease time.Duration
	Brief bool
	// Now: the operator says that an owner of whom nothing can be known has ended.
	Now bool
	// Kin tells whether an owner that lives on this node is of the same job as this process, such as the
	// program that started it. May be nil.
	Kin func(Record) bool
	// Heir: the directory is taken from such a process. Without Heir the error is ErrKin.
	Heir bool
	// Waiting is called when an owner on another node begins to be watched, and for how long. May be nil.
	Waiting func(Record, time.Duration)
	// Answers asks an owner whose beat stood still whether it lives, in another way. May be nil.
	Answers func(Record) bool
	// Stop is asked often; an error of it ends the waiting. May be nil.
	Stop func() error

	node *node // tests: nil is this process
}

// HeldError says that the directory belongs to a job that lives.
type HeldError struct {
	Dir   string
	Owner Record
	Life  Life
}

func (e *HeldError) Error() string {
	how := "runs"
	switch {
	case e.Life == Stopped:
		how = "is stopped, as by SIGSTOP, and lives"
	case e.Life == Dying:
		how = "was killed and does not come to its end"
	case e.Owner.State == Ending:
		how = "has finalized MPI and still runs"
	}
	return fmt.Sprintf("%s belongs to a job that %s: %s; nothing was touched; end that job first (ckptctl checkpoint %s --then exit), or choose another --dir",
		e.Dir, how, &e.Owner, e.Dir)
}

// poll is the time between two looks at an owner that is about to end.
const poll = 20 * time.Millisecond

// noteWithin is how long a process that sees why rank 0 will not get the directory leaves it to rank 0 to say so.
const noteWithin = 3 * time.Second

// patience is how long an owner may take to end if it was killed, or needs the directory for moments only.
const patience = 30 * time.Second

// watch remembers since when a record has not changed.
type watch struct {
	token uint64
	raw   []byte
	since time.Time
	told  bool
}

// idle takes the record that was read between two moments, and returns for how long the record is known to stand
// still. changed: the same owner has a new beat. This process may have been stopped in between for any time, but
// the last reading began when the time was over.
func (w *watch) idle(s *seen, before, after time.Time) (still time.Duration, changed bool) {
	if w.token == s.Token && bytes.Equal(w.raw, s.raw) {
		return before.Sub(w.since), false
	}
	changed = w.token == s.Token
	w.token, w.raw, w.since = s.Token, s.raw, after
	return 0, changed
}

// verdict is the result of a look at a directory.
type verdict int

const (
	vWait verdict = iota
	vFree         // it can be taken
)

// claimant looks at one directory until it can be taken, or cannot.
type claimant struct {
	Claim
	dir, folder string
	watch       watch
	begun       time.Time
	top         *seen
	supposed    bool   // its owner was not known to be dead
	lived       uint64 // token of the owner that was seen to live in the last look
	heir        bool   // its owner lives, and is of the same job
}

// Take makes this process the owner of dir, and makes dir when it is not there. It returns a *HeldError if the
// directory belongs to an owner that lives. It watches an owner on another node of whom nothing is known, see
// Claim. After an error the owner is the one of before, and Take may be tried again.
func Take(dir string, c Claim) (*Lease, error) {
	k, err := newClaimant(dir, c)
	if err != nil {
		return nil, err
	}
	if err := strangers(k.folder); err != nil {
		return nil, err
	}
	for {
		v, pause, err := k.look()
		if err != nil {
			return nil, err
		}
		if v == vFree {
			l, err := k.create()
			if l != nil || err != nil {
				return l, err
			}
			continue // somebody was faster
		}
		if err := k.wait(pause); err != nil {
			return nil, err
		}
	}
}

// Await is for the other processes of a job whose rank 0 takes dirs in their order. It returns when the last of
// dirs belongs to the job that c names, or with the reason why it will not: a *ToldError if rank 0 has told that.
// If this process finds something wrong, rank 0 will soon say the same, so Await waits for that. When limit is
// over, and nobody is being watched who may live, the error is ErrNotTaken.
func Await(dirs []string, c Claim, limit time.Duration) error {
	c.Waiting, c.Answers, c.Kin = nil, nil, nil // who takes them sees to that
	all := make([]*claimant, len(dirs))
	for i, dir := range dirs {
		k, err := newClaimant(dir, c)
		if err != nil {
			return err
		}
		all[i] = k
	}
	last := all[len(all)-1]
	var since time.Time // when this process began to see what is wrong
	for {
		wait := limit
		var wrong error
		for _, k := range all {
			if s, err := newest(k.folder); err == nil && s != nil && s.Job == c.Job && k.ours(nameOf(s.Token)) { // it may have given it back already
				if k == last {
					return nil
				}
				continue
			}
			if why := k.refused(); why != "" {
				return &ToldError{why}
			}
			_, _, err := k.look()
			var held *HeldError
			if errors.As(err, &held) && held.Owner.Job == c.Job {
				continue // taken between the two looks
			}
			if err != nil {
				wrong = err
				break
			}
			if k.top != nil {
				wait += k.top.Lease()
			}
		}
		switch {
		case wrong == nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > noteWithin:
			return wrong
		}
		if wrong == nil && time.Since(last.begun) > wait {
			return fmt.Errorf("%s: %w", last.dir, ErrNotTaken)
		}
		if err := last.wait(poll); err != nil {
			return err
		}
	}
}

// Told is for the other processes of a job whose rank 0 may not come to take dir, for a reason that they see too. It waits
// until rank 0 has told the user (Refuse), and is false when it has taken dir, can tell nobody here or is not heard of.
func Told(dir string, c Claim) bool {
	if c.Job == "" || unix.Access(dir, unix.W_OK|unix.X_OK) != nil {
		return false
	}
	k, err := newClaimant(dir, c)
	if err != nil {
		return false
	}
	for time.Since(k.begun) < patience {
		if k.refused() != "" {
			return true
		}
		if s, err := newest(k.folder); err == nil && s != nil && s.Job == c.Job && k.ours(nameOf(s.Token)) {
			return false
		}
		if k.wait(poll) != nil {
			return false
		}
	}
	return false
}

// ErrKin says that the directory belongs to another process of this job.
var ErrKin = errors.New("the directory belongs to another process of this job")

// ToldError is the reason why the process that should take the directory does not get it, in the words in which
// that process has told the user.
type ToldError struct{ Why string }

func (e *ToldError) Error() string { return e.Why }

// ErrNotTaken says that the process which should take the directory did not.
var ErrNotTaken = errors.New("rank 0 has not taken it")

// Refuse tells processes of the same job that are in Await or Told that the job does not get the directory, and that the
// user knows. They may look when the reason is gone; not all launchers end them when rank 0 ends. Refuse does
// nothing where nothing can be written.
func Refuse(dir string, c Claim, why error) {
	if c.Job == "" {
		return
	}
	if _, err := os.Stat(dir); err == nil { // nobody may have taken it yet
		_ = os.Mkdir(filepath.Join(dir, folderName), 0o700)
	}
	_ = os.WriteFile(notePath(dir, c.Job), []byte(why.Error()), 0o600)
}

// notePath is the file of Refuse. The next owner removes it.
func notePath(dir, job string) string {
	return filepath.Join(dir, folderName, fmt.Sprintf("refused-%08x", crc32.ChecksumIEEE([]byte(job))))
}

func (k *claimant) refused() string {
	b, err := readRaw(notePath(k.dir, k.Job))
	if err != nil || !k.ours(filepath.Base(notePath(k.dir, k.Job))) {
		return ""
	}
	return string(b)
}

// ours tells whether a file of the folder that names our job was written since our launcher began. Both times are
// of the file system's clock. Where that clock cannot be read, nothing can be written either, and the file counts.
func (k *claimant) ours(name string) bool {
	if k.Age == 0 {
		return true
	}
	st, err := os.Stat(filepath.Join(k.folder, name))
	if err != nil {
		return false
	}
	f, err := os.CreateTemp(k.folder, "now.*.tmp")
	if err != nil {
		return true
	}
	defer os.Remove(f.Name())
	now, err := f.Stat()
	if err = errors.Join(err, f.Close()); err != nil {
		return true
	}
	return now.ModTime().Sub(st.ModTime()) <= k.Age+time.Since(k.begun)
}

func newClaimant(dir string, c Claim) (*claimant, error) {
	if c.node == nil {
		n, err := here()
		if err != nil {
			return nil, err
		}
		c.node = n
	}
	if c.Lease == 0 {
		c.Lease = Default
	}
	if c.Lease < Least || c.Lease > Most {
		return nil, fmt.Errorf("a lease of %v: from %v to %v", c.Lease, Least, Most)
	}
	return &claimant{Claim: c, dir: dir, folder: filepath.Join(dir, folderName), begun: time.Now()}, nil
}

func (k *claimant) wait(pause time.Duration) error {
	if k.Stop != nil {
		if err := k.Stop(); err != nil {
			return fmt.Errorf("%s: %w", k.dir, err)
		}
	}
	time.Sleep(pause)
	return nil
}

// look reads the newest record and judges it.
func (k *claimant) look() (v verdict, pause time.Duration, err error) {
	before := time.Now()
	k.top, err = newest(k.folder)
	if err != nil {
		return vWait, 0, fmt.Errorf("who owns %s: %w", k.dir, err)
	}
	k.supposed, k.heir = false, false
	if k.top == nil || k.top.State == Released {
		return vFree, 0, nil
	}
	s := k.top
	life := k.node.knows(&s.Record, filepath.Join(k.folder, nameOf(s.Token)))
	held := &HeldError{k.dir, s.Record, life}
	switch {
	case life == Dead, life == Self:
		return vFree, 0, nil
	case life.Lives() && k.Kin != nil && k.Kin(s.Record):
		if !k.Heir {
			return vWait, 0, ErrKin
		}
		k.heir = true
		return vFree, 0, nil
	case life == Dying, s.Brief && life.Lives():
		if time.Since(k.begun) > patience {
			return vWait, 0, held
		}
		return vWait, poll, nil
	case life.Lives() && k.lived != s.Token:
		// Two looks are needed: a process that is being killed does not show that at every moment.
		k.lived = s.Token
		return vWait, poll, nil
	case life.Lives():
		return vWait, 0, held
	}
	// Nothing is known but the beat.
	k.supposed = true
	still, changed := k.watch.idle(s, before, time.Now())
	switch {
	case changed && s.Brief:
	case changed:
		return vWait, 0, held
	case k.Now:
		return vFree, 0, nil
	case still >= s.Lease():
		if k.Answers != nil && k.Answers(s.Record) {
			return vWait, 0, held
		}
		return vFree, 0, nil
	}
	if !k.watch.told && k.Waiting != nil {
		k.watch.told = true
		k.Waiting(s.Record, s.Lease())
	}
	return vWait, min(s.Lease()/20, 500*time.Millisecond), nil
}

// create makes this process the owner after the one that was judged. It returns nil, nil when another
// process was faster.
func (k *claimant) create() (*Lease, error) {
	fail := func(err error) error { return fmt.Errorf("take %s: %w", k.dir, err) }
	token := uint64(1)
	if k.top != nil {
		token = k.top.Token + 1
	}
	l := &Lease{dir: k.dir, folder: k.folder, node: k.node, supposed: k.supposed, done: make(chan struct{})}
	if k.top != nil {
		l.before = k.top.Record
		if !k.heir {
			l.lastBeat = k.top.at
		}
	}
	l.record = Record{Format: format, State: Starting, Brief: k.Brief, Heir: k.heir, Seconds: k.Lease.Seconds(),
		Program: k.Program, Job: k.Job, Host: k.node.host, PID: k.node.pid, Boot: k.node.boot,
		Space: k.node.space, Start: k.node.start, Since: time.Now().UTC()}
	for try := 0; ; try++ {
		err := l.make(token, k.top)
		switch {
		case err == nil:
			l.tidy()
			return l, nil
		case errors.Is(err, os.ErrExist):
			return nil, nil
		case errors.Is(err, os.ErrNotExist) && try < 100:
			continue // the last owner has just removed the folder
		}
		return nil, fail(err)
	}
}

// makeFolder makes a folder with all above it; each is on stable storage in the one above.
func makeFolder(folder string) error {
	if st, err := os.Stat(folder); err == nil && st.IsDir() {
		return nil
	}
	above := filepath.Dir(folder)
	if above != folder {
		if err := makeFolder(above); err != nil {
			return err
		}
	}
	if err := fault.Point("lease.mkdir"); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(above)
}

func syncDir(dir string) error {
	if err := fault.Point("lease.syncdir"); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// make writes the record under a name of its own and then gives it the name of the token; only one process succeeds
// in that. The error is os.ErrExist if another process did, or if the newest record is not the judged one any more.
//
// The folder may be replaced by a new one, in which tokens begin anew, at any moment (Vanish). So all is
// done in one folder, whatever its name is: what was judged must be the newest in it after it was opened,
// and it must still have its name when the record is in it.
func (l *Lease) make(token uint64, judged *seen) (err error) {
	if err := makeFolder(l.folder); err != nil {
		return err
	}
	root, err := os.OpenRoot(l.folder)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := l.stillNewest(root, judged); err != nil {
		return err
	}
	name := nameOf(token)
	var unique [8]byte
	_, _ = rand.Read(unique[:]) // never fails
	temp := fmt.Sprintf("%s.%x.tmp", name, unique)
	if err := fault.Point("lease.create"); err != nil {
		return err
	}
	f, err := root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		_ = root.Remove(temp)
		if err != nil {
			_ = f.Close()
		}
	}()
	// A file system without locks does without.
	l.record.Locked = l.node.lock(f, unix.LOCK_EX|unix.LOCK_NB) == nil
	l.record.Token = token
	l.file = f
	if err := l.writeRecord(); err != nil {
		return err
	}
	if err := fault.Point("lease.sync"); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	l.path = filepath.Join(l.folder, name)
	if err := fault.Point("lease.link"); err != nil {
		return err
	}
	if err := l.name(root, temp, name); err != nil {
		return err
	}
	withdraw := func(err error) error {
		_ = root.Remove(name) // if it stays, this process, which lives, is found not to renew it
		return err
	}
	if err := syncDir(l.folder); err != nil {
		return withdraw(err)
	}
	list, err := tokensIn(root)
	if err != nil {
		return withdraw(err)
	}
	if len(list) == 0 || list[0] != token || !same(root, l.folder) {
		return withdraw(os.ErrExist)
	}
	return nil
}

// stillNewest returns os.ErrExist if the newest record is not the judged one any more.
func (l *Lease) stillNewest(root *os.Root, judged *seen) error {
	list, err := tokensIn(root)
	if err != nil {
		return err
	}
	if len(list) == 0 || judged == nil {
		if len(list) == 0 && judged == nil {
			return nil
		}
		return os.ErrExist
	}
	if list[0] != judged.Token {
		return os.ErrExist
	}
	raw, err := root.ReadFile(nameOf(list[0]))
	if err != nil {
		return err
	}
	if bytes.Equal(raw, judged.raw) {
		return nil
	}
	// Only the beat of a process of the same job may go on.
	r, err := decode(raw)
	if l.record.Heir && err == nil && r.State != Released && r.sameProcess(&judged.Record) {
		return nil
	}
	return os.ErrExist
}

// same tells whether the folder still has its name.
func same(root *os.Root, folder string) bool {
	in, err := root.Stat(".")
	if err != nil {
		return false
	}
	at, err := os.Stat(folder)
	return err == nil && os.SameFile(in, at)
}

// name gives the file that temp names the name of its token.
func (l *Lease) name(root *os.Root, temp, name string) error {
	err := root.Link(temp, name)
	var st unix.Stat_t
	switch {
	case err == nil:
		return nil
	case unix.Fstat(int(l.file.Fd()), &st) == nil && st.Nlink == 2:
		return nil // the answer of the server was lost, and the question was sent again
	case errors.Is(err, os.ErrExist), errors.Is(err, os.ErrNotExist):
		return err
	case !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EMLINK):
		return err
	}
	// A file system without links: others may see the file before its record is in it, and watch it.
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_ = l.file.Close()
	l.file = f
	l.record.Locked = l.node.lock(f, unix.LOCK_EX|unix.LOCK_NB) == nil
	if err := l.writeRecord(); err != nil {
		_ = root.Remove(name)
		return err
	}
	return f.Sync()
}

// tidy removes what owners before this one left.
func (l *Lease) tidy() {
	list, other, err := tokens(l.folder)
	if err != nil {
		return
	}
	for _, t := range list {
		if t < l.record.Token {
			other = append(other, nameOf(t))
		}
	}
	for _, name := range other {
		if written(name) {
			_ = os.Remove(filepath.Join(l.folder, name)) // it counts for nothing
		}
	}
	left, _ := os.ReadDir(l.dir) // what cannot be read can stay
	for _, e := range left {
		if name := e.Name(); strings.HasPrefix(name, folderName+".") && strings.HasSuffix(name, goneSuffix) {
			removeGone(filepath.Join(l.dir, name))
		}
	}
}
