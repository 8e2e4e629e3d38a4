// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Options says how to restore.
type Options struct {
	// Inherited are the new launcher's stdin, stdout and stderr, as descriptors above MaxNumber, or -1.
	Inherited [3]int
	// Keep leaves output files as long as they are.
	Keep bool
	// Snapshot: files that were kept with the epoch are used. Epoch is its folder.
	Snapshot bool
	Epoch    string
	// IgnoreChanged goes on although files are not as they were.
	IgnoreChanged bool
	// Place makes number refer to what from refers to, without closing from; dup3 when nil.
	Place func(number, from int, cloexec bool) error
	// Socket gives the descriptor of a socket that others have made; Restore closes it. Nil: there are none.
	Socket func(index int) (int, error)
	// Unnamed is a file without a name that is there already, as it is mapped, by the numbers that it had; nil when it is
	// not. It stays open. A nil Unnamed has none.
	Unnamed func(dev, ino uint64) *os.File
	// Grown tells of a file that was only read, and had that size, whether the job has appended to it since, which is cut off before
	// Restore. Nil: it has to none.
	Grown func(ino uint64, size int64) bool
	// Warn is told what is different from before but not an error; nil: nobody is told.
	Warn func(message string)
}

// Restore makes every description of the table again and places it at its numbers.
//
// If files are not as they must be, Restore returns a *ChangedError that lists them, and has changed nothing. After
// any other error files may have been cut back to their saved size, which can be done again; the descriptors are
// then incomplete, and the process should end.
func Restore(t Table, o Options) error {
	if err := t.validate(); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	r := newRestorer(&t, o)
	defer r.closeMade()
	// Check. Changes nothing: files are opened without creating or cutting them.
	if err := r.check(); err != nil {
		return err
	}
	// Act. What touches nothing outside this process comes first.
	for _, step := range []func() error{r.makeContents, r.makePipes, r.makeOthers, r.makeScratch, r.cut, r.position, r.place, r.watch} {
		if err := step(); err != nil {
			return fmt.Errorf("restore open files: %w", err)
		}
	}
	// A process loses its locks on a file whenever it closes any descriptor of it, so they come last.
	r.closeMade()
	if err := r.lock(); err != nil {
		return fmt.Errorf("restore open files: %w", err)
	}
	return nil
}

func newRestorer(t *Table, o Options) *restorer {
	if o.Place == nil {
		o.Place = dupTo
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	r := &restorer{table: t, options: o, made: make([]int, len(t.Files))}
	for i := range r.made {
		r.made[i] = -1
	}
	return r
}

func dupTo(number, from int, cloexec bool) error {
	flags := 0
	if cloexec {
		flags = unix.O_CLOEXEC
	}
	return unix.Dup3(from, number, flags)
}

type restorer struct {
	table   *Table
	options Options
	made    []int // our own descriptor of each file, -1 if none (yet)
	before  bool  // PutBack is still to come
	// replaced: the file behind the launcher's descriptor has another content than before.
	replaced [3]bool
	// shared: others write to that file, whose end is where the program goes on.
	shared [3]bool
}

func (r *restorer) closeMade() {
	for i, fd := range r.made {
		if fd >= 0 {
			unix.Close(fd)
			r.made[i] = -1
		}
	}
}

// reopenFlags are the flags that open(2) takes of those that F_GETFL gives.
const reopenFlags = unix.O_ACCMODE | unix.O_APPEND | unix.O_NONBLOCK | unix.O_DIRECT | unix.O_DSYNC |
	unix.O_SYNC | unix.O_NOATIME | unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW

func openPath(path Path, flags int) (int, error) {
	return retry(func() (int, error) {
		return unix.Open(string(path), flags&reopenFlags|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	})
}

// openAgain makes another description of what fd refers to.
func openAgain(fd, flags int) (int, error) {
	return openPath(Path("/proc/self/fd/"+strconv.Itoa(fd)), flags&^(unix.O_DIRECTORY|unix.O_NOFOLLOW))
}

func (f *File) writable() bool {
	mode := f.Flags & unix.O_ACCMODE
	return f.Flags&unix.O_PATH == 0 && (mode == unix.O_WRONLY || mode == unix.O_RDWR)
}

// makeContents makes files without a name and memory files.
func (r *restorer) makeContents() error {
	for i := range r.table.Contents {
		if err := r.makeContent(i); err != nil {
			c := &r.table.Contents[i]
			return fmt.Errorf("make the unnamed file %q (%d bytes) again: %w", c.Name, c.Size, err)
		}
	}
	return nil
}

func (r *restorer) makeContent(index int) error {
	c := &r.table.Contents[index]
	var users []int
	for i := range r.table.Files {
		if p := r.table.Files[i].Content; p != nil && *p == index {
			users = append(users, i)
		}
	}
	if len(users) == 0 || r.table.Files[users[0]].Kind == KindScratch { // makeScratch makes these
		return nil
	}
	memory := r.table.Files[users[0]].Kind == KindMemfd
	fd, err := r.openContent(c, memory)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := c.write(fd); err != nil {
		return err
	}
	first := memory
	for _, i := range users {
		if flags := r.table.Files[i].Flags; first && flags&(unix.O_ACCMODE|unix.O_PATH) == unix.O_RDWR {
			r.made[i], err = keepFirst(fd, flags)
			first = false
		} else {
			r.made[i], err = openAgain(fd, flags)
		}
		if err != nil {
			return err
		}
	}
	if err := r.setAttributes(fd, c); err != nil {
		return err
	}
	if memory && c.Seals != 0 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, c.Seals); err != nil {
			return fmt.Errorf("seal: %w", err)
		}
	}
	return nil
}

// setAttributes gives a file without a name the rest of what fstat tells of it. Another user who continues the program owns it.
func (r *restorer) setAttributes(fd int, c *Content) error {
	if c.Changed == 0 {
		return unix.Fchmod(fd, c.Mode)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Uid != c.UID || st.Gid != c.GID {
		if err := unix.Fchown(fd, int(c.UID), int(c.GID)); errors.Is(err, unix.EPERM) {
			r.options.Warn(fmt.Sprintf("the unnamed file %q is owned by %d:%d now: it was owned by %d:%d", c.Name, st.Uid, st.Gid, c.UID, c.GID))
		} else if err != nil {
			return err
		}
	}
	if err := unix.Fchmod(fd, c.Mode); err != nil {
		return err
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(c.Changed)}
	return unix.UtimesNanoAt(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), times, 0)
}

// keepFirst gives the program the description that memfd_create made. The kernel does not count it among those that
// write: what is in the file can be executed while it is open, and could not while the file is opened again for writing.
func keepFirst(fd, flags int) (int, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags&(unix.O_APPEND|unix.O_NONBLOCK|unix.O_NOATIME)); err != nil {
		return -1, err
	}
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, MaxNumber+1)
}

// openContent opens the file that is to have a content.
func (r *restorer) openContent(c *Content, memory bool) (int, error) {
	if r.options.Unnamed != nil && c.Ino != 0 {
		if f := r.options.Unnamed(c.Dev, c.Ino); f != nil {
			return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, MaxNumber+1)
		}
	}
	if memory {
		return unix.MemfdCreate(string(c.Name), unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	return openUnnamed(string(c.Name))
}

// openUnnamed opens a new file without a name, in the directory of the old one if that is possible,
// and otherwise where temporary files go.
func openUnnamed(name string) (int, error) {
	var first error
	for _, dir := range []string{filepath.Dir(name), tempDir()} {
		fd, err := unix.Open(dir, unix.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
		if err == nil {
			return fd, nil
		}
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) {
			if fd, err = createAndUnlink(dir); err == nil {
				return fd, nil
			}
		}
		if first == nil {
			first = fmt.Errorf("in %s: %w", dir, err)
		}
	}
	return -1, first
}

// makePipes makes the pipes, fills them, and opens each end as often as it was open.
func (r *restorer) makePipes() error {
	for index := range r.table.Pipes {
		if err := r.makePipe(index); err != nil {
			return fmt.Errorf("make a pipe of %d bytes again: %w", r.table.Pipes[index].Capacity, err)
		}
	}
	return nil
}

func (r *restorer) makePipe(index int) error {
	p := &r.table.Pipes[index]
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return err
	}
	spare := [2]int{ends[0], ends[1]} // the ends that no description has taken
	defer func() {
		for _, fd := range spare {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}()
	capacity, err := unix.FcntlInt(uintptr(ends[1]), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		return err
	}
	if capacity != p.Capacity {
		if _, err := unix.FcntlInt(uintptr(ends[1]), unix.F_SETPIPE_SZ, p.Capacity); err != nil {
			return fmt.Errorf("set its size (see /proc/sys/fs/pipe-max-size): %w", err)
		}
	}
	for b := p.data; len(b) > 0; {
		n, err := retry(func() (int, error) { return unix.Write(ends[1], b) })
		if err != nil {
			return fmt.Errorf("fill it: %w", err)
		}
		b = b[n:]
	}
	for i := range r.table.Files {
		f := &r.table.Files[i]
		if f.Kind != KindPipe || *f.Pipe != index {
			continue
		}
		// The first of each end is the one that pipe2 made; others were opened through /proc.
		if mode := f.Flags & unix.O_ACCMODE; mode <= unix.O_WRONLY && spare[mode] >= 0 {
			r.made[i], spare[mode] = spare[mode], -1
			if _, err := unix.FcntlInt(uintptr(r.made[i]), unix.F_SETFL, f.Flags&(unix.O_NONBLOCK|unix.O_DIRECT)); err != nil {
				return err
			}
			continue
		}
		if r.made[i], err = openAgain(ends[0], f.Flags); err != nil {
			return err
		}
	}
	return nil
}

// makeOthers makes what has neither a name nor content.
func (r *restorer) makeOthers() error {
	for i := range r.table.Files {
		f := &r.table.Files[i]
		nonblock := f.Flags & unix.O_NONBLOCK // EFD_, TFD_, SFD_ and IN_NONBLOCK have its value
		var err error
		switch f.Kind {
		case KindEventfd:
			flags := unix.EFD_CLOEXEC | nonblock
			if f.Semaphore {
				flags |= unix.EFD_SEMAPHORE
			}
			r.made[i], err = makeEventfd(f.Counter, flags)
		case KindTimerfd:
			r.made[i], err = makeTimer(f.Timer, unix.TFD_CLOEXEC|nonblock)
		case KindSignalfd:
			r.made[i], err = unix.Signalfd(-1, &unix.Sigset_t{Val: [16]uint64{f.Signals}}, unix.SFD_CLOEXEC|nonblock)
		case KindEpoll:
			// It does not wait in a read, which it has not, but libraries ask whether it is to be waited for: that of
			// a channel of events is an epoll set in capi/verbs/front.
			if r.made[i], err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil && nonblock != 0 {
				_, err = unix.FcntlInt(uintptr(r.made[i]), unix.F_SETFL, nonblock)
			}
		case KindSocket:
			r.made[i], err = r.makeSocket(f)
		case KindInotify:
			r.made[i], err = unix.InotifyInit1(unix.IN_CLOEXEC | nonblock)
		case KindLauncher:
			if f.Reopened {
				r.made[i], err = reopenLauncher(r.options.Inherited[f.Launcher], f.Flags)
			}
		}
		if err != nil {
			return fmt.Errorf("make the %s again: %w", f.Kind, err)
		}
	}
	return nil
}

func (r *restorer) makeSocket(f *File) (int, error) {
	if r.options.Socket == nil {
		return -1, errors.New("nobody has made it")
	}
	fd, err := r.options.Socket(*f.Socket)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, f.Flags&unix.O_NONBLOCK)
	}
	return fd, err
}

// reopenLauncher opens a launcher's pipe or device anew, as the application had done. The new
// launcher may have given a file instead, where a second description would write over the first,
// or a socket, which cannot be opened: these are shared.
func reopenLauncher(fd, flags int) (int, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, err
	}
	if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFIFO || kind == unix.S_IFCHR {
		return openAgain(fd, flags)
	}
	return aside(fd)
}

// cut removes what was appended to output files after the checkpoint. Where others write to the same file nobody can
// tell what is whose, and nothing is removed.
func (r *restorer) cut() error {
	if r.options.Keep {
		return nil
	}
	for i := range r.table.Files {
		f := &r.table.Files[i]
		fd := r.made[i]
		switch {
		case !f.writable() || f.Inode == nil:
			continue
		case f.Kind == KindLauncher && !f.Reopened:
			if fd = r.options.Inherited[f.Launcher]; !r.continuesLauncher(f) {
				continue
			}
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		if st.Size <= f.Inode.Size {
			continue
		}
		if who := alsoWrites(&st); who != "" {
			r.options.Warn(fmt.Sprintf("%s: %s also writes to %s, so the %d bytes that were appended after the checkpoint stay there; what this job wrote of them it writes again",
				f.name(), who, f.Path, st.Size-f.Inode.Size))
			if f.Kind == KindLauncher {
				r.shared[f.Launcher] = true
			}
			continue
		}
		if err := unix.Ftruncate(fd, f.Inode.Size); err != nil {
			return fmt.Errorf("cut %s from %d back to %d bytes: %w", f.Path, st.Size, f.Inode.Size, err)
		}
	}
	return nil
}

// position sets the offsets.
func (r *restorer) position() error {
	for i := range r.table.Files {
		f := &r.table.Files[i]
		fd := r.made[i]
		switch f.Kind {
		case KindLauncher:
			if f.Reopened || f.Inode == nil || !r.continuesLauncher(f) {
				continue
			}
			fd = r.options.Inherited[f.Launcher]
			if r.shared[f.Launcher] {
				if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil {
					return fmt.Errorf("go to the end of %s: %w", f.Path, err)
				}
				continue
			}
		case KindRegular, KindUnlinked, KindMemfd, KindDirectory, KindKernel:
		default:
			continue
		}
		if f.Offset == 0 {
			continue
		}
		if _, err := unix.Seek(fd, f.Offset, unix.SEEK_SET); err != nil {
			return fmt.Errorf("go to offset %d of %s: %w", f.Offset, f.Path, err)
		}
	}
	return nil
}

// continuesLauncher tells whether a regular file that was the launcher's stdin, stdout or stderr is
// so again and still holds what it held. Otherwise the user gave the program something new.
func (r *restorer) continuesLauncher(f *File) bool {
	var st unix.Stat_t
	if f.Inode == nil || r.replaced[f.Launcher] || unix.Fstat(r.options.Inherited[f.Launcher], &st) != nil {
		return false
	}
	return st.Dev == f.Inode.Dev && st.Ino == f.Inode.Ino && st.Size >= f.Inode.Size
}

func (r *restorer) place() error {
	for _, n := range r.table.Numbers {
		f := &r.table.Files[n.File]
		from := r.made[n.File]
		if f.Kind == KindLauncher && !f.Reopened {
			from = r.options.Inherited[f.Launcher]
			if err := r.nonblock(f, from); err != nil {
				return err
			}
		}
		if err := r.options.Place(n.FD, from, n.Cloexec); err != nil {
			return fmt.Errorf("place %s at descriptor %d: %w", f.name(), n.FD, err)
		}
	}
	return nil
}

// nonblock sets O_NONBLOCK on a launcher's description if the application relied on it. Other flags
// stay as the new launcher chose them.
func (r *restorer) nonblock(f *File, fd int) error {
	if f.Flags&unix.O_NONBLOCK == 0 {
		return nil
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_NONBLOCK)
	return err
}

// watch fills the epoll sets, now that all descriptors have their numbers.
func (r *restorer) watch() error {
	for _, n := range r.table.Numbers {
		f := &r.table.Files[n.File]
		if f.Kind != KindEpoll {
			continue
		}
		for _, w := range f.Watches {
			event := unix.EpollEvent{Events: w.Events, Fd: int32(uint32(w.Data)), Pad: int32(uint32(w.Data >> 32))}
			err := unix.EpollCtl(n.FD, unix.EPOLL_CTL_ADD, w.FD, &event)
			if err != nil && !errors.Is(err, unix.EEXIST) { // a second number of the same set
				return fmt.Errorf("epoll set %d, watch descriptor %d: %w", n.FD, w.FD, err)
			}
		}
	}
	return nil
}

func (r *restorer) lock() error {
	for _, n := range r.table.Numbers {
		for _, l := range n.Locks {
			if err := takeLock(n.FD, l); err != nil {
				return fmt.Errorf("take the lock on %s again (another program may hold it now): %w",
					r.table.Files[n.File].name(), err)
			}
		}
	}
	return nil
}

func takeLock(fd int, l Lock) error {
	if l.Kind == "flock" {
		how := unix.LOCK_SH
		if l.Write {
			how = unix.LOCK_EX
		}
		return unix.Flock(fd, how|unix.LOCK_NB)
	}
	command := unix.F_SETLK
	if l.Kind == "ofd" {
		command = unix.F_OFD_SETLK
	}
	lock := unix.Flock_t{Type: unix.F_RDLCK, Start: l.Start, Len: l.Len}
	if l.Write {
		lock.Type = unix.F_WRLCK
	}
	return unix.FcntlFlock(uintptr(fd), command, &lock)
}

// name is how messages call a file.
func (f *File) name() string {
	switch {
	case f.Kind == KindLauncher:
		return [3]string{"stdin", "stdout", "stderr"}[f.Launcher]
	case f.Path != "":
		return string(f.Path)
	}
	return "the " + string(f.Kind)
}
