// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Problem is a file that is not as a restart needs it.
type Problem struct {
	Path string `json:"path"`
	What string `json:"what"` // "is missing"
	Do   string `json:"do"`   // what can be done about it
	// Changed: the file is there, but with other content; Options.IgnoreChanged lets it pass.
	Changed bool `json:"changed,omitempty"`
}

// ChangedError lists the files because of which a restart is refused.
type ChangedError struct{ Problems []Problem }

func (e *ChangedError) Error() string {
	var b strings.Builder
	if len(e.Problems) == 1 {
		b.WriteString("an open file is not as it was when the checkpoint was taken:")
	} else {
		fmt.Fprintf(&b, "%d open files are not as they were when the checkpoint was taken:", len(e.Problems))
	}
	for _, p := range e.Problems {
		fmt.Fprintf(&b, "\n  %s %s: %s", p.Path, p.What, p.Do)
	}
	return b.String()
}

const (
	doIgnore = "put the old file back, or use --files ignore to go on with it as it is"
	// doOutput is for files that the program was writing: it may have done that itself.
	doOutput = "was it written over after the checkpoint, or lost in a crash? Put the old file back, restart from another epoch, " +
		"or use --files ignore to go on with it as it is, which is right for a program that writes there again before it reads"
)

// enough looks whether this process may have descriptors as high as the program's.
func (r *restorer) enough() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Max >= Plenty {
		return nil
	}
	for _, n := range r.table.Numbers {
		if n.FD >= fewNumbers {
			return fmt.Errorf("the program has descriptor %d, and where at most %d may be open (ulimit -Hn) a program has %d: raise this hard limit to %d, in /etc/security/limits.conf or in the batch system",
				n.FD, limit.Max, fewNumbers, Plenty)
		}
	}
	return nil
}

// check opens every file that has a name and compares it with what was recorded.
func (r *restorer) check() error {
	if err := r.enough(); err != nil {
		return err
	}
	var problems []Problem
	for i := range r.table.Files {
		p := r.checkFile(i)
		switch {
		case p == nil:
		case p.Changed && r.options.IgnoreChanged:
			r.options.Warn(fmt.Sprintf("%s %s; going on as asked for", p.Path, p.What))
		default:
			problems = append(problems, *p)
		}
	}
	if len(problems) > 0 {
		return &ChangedError{Problems: problems}
	}
	return nil
}

func (r *restorer) checkFile(i int) *Problem {
	f := &r.table.Files[i]
	if r.before && r.options.Snapshot {
		switch {
		case f.KeptBy != nil:
			return nil
		case f.Kept != nil && r.table.Kept[*f.Kept].How != KeepNot:
			return r.checkKept(f)
		}
	}
	switch f.Kind {
	case KindLauncher:
		return r.checkLauncher(f)
	case KindRegular, KindDirectory, KindKernel, KindDevice, KindPath, KindTerminal:
		fd, err := openPath(f.Path, f.Flags)
		if err != nil {
			return openProblem(f, err)
		}
		r.made[i] = fd
		if f.Kind == KindRegular {
			return r.checkRegular(f, fd)
		}
	}
	return nil
}

func openProblem(f *File, err error) *Problem {
	p := Problem{Path: f.name()}
	switch {
	case f.Kind == KindTerminal:
		p.What = fmt.Sprintf("cannot be opened (%v)", err)
		p.Do = "the program used its terminal: restart it in a terminal"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		p.What = "is missing"
		p.Do = "the program had it open: put it back under this name"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		p.What = fmt.Sprintf("cannot be opened (%v)", err)
		p.Do = "give this user the right to open it as before"
	default:
		p.What = fmt.Sprintf("cannot be opened (%v)", err)
		p.Do = "make it available again under this name"
	}
	return &p
}

func (r *restorer) checkRegular(f *File, fd int) *Problem {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return openProblem(f, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return &Problem{Path: f.name(), What: "is no regular file any more", Do: "put the old file back"}
	}
	return r.compare(f, fd, &st)
}

// compare looks for changes. A file that the application was writing may have grown since: the application will
// write that again. The old content must still be there. Options.Keep accepts the file as it is.
func (r *restorer) compare(f *File, fd int, st *unix.Stat_t) *Problem {
	if f.Inode.Whole { // who maps it sees to its content and size
		return nil
	}
	changed := func(format string, args ...any) *Problem {
		return &Problem{Path: f.name(), What: fmt.Sprintf(format, args...), Do: doIgnore, Changed: true}
	}
	if f.writable() || f.Written || f.Inode.Mapped || r.writes(f.Inode) {
		if st.Size < f.Inode.Size {
			return changed("has %d bytes, fewer than the %d it had", st.Size, f.Inode.Size)
		}
		if r.options.Keep {
			return nil
		}
		if what := compareBlocks(f.Inode, fd); what != "" {
			p := changed("%s", what)
			p.Do = doOutput
			return p
		}
		return nil
	}
	if r.before && st.Size > f.Inode.Size && r.options.Grown != nil && r.options.Grown(f.Inode.Ino, f.Inode.Size) {
		return nil // Restore looks again, when all ranks have cut what they cut
	}
	if st.Size != f.Inode.Size {
		return changed("has %d bytes, it had %d", st.Size, f.Inode.Size)
	}
	if f.Inode.Tail != "" {
		tail, err := tailOf(fd, st.Size)
		if err != nil {
			return changed("cannot be compared with what it was (%v)", err)
		}
		if tail != f.Inode.Tail {
			return changed("ends in other bytes than it did")
		}
	}
	if what := compareBlocks(f.Inode, fd); what != "" {
		return changed("%s", what)
	}
	if st.Mtim.Nano() != f.Inode.Mtime {
		return changed("was written at %s, after the checkpoint saw it as of %s",
			stamp(st.Mtim.Nano()), stamp(f.Inode.Mtime))
	}
	return nil
}

// compareBlocks says in which way the content is not what it was, "" when it is.
func compareBlocks(inode *Inode, fd int) string {
	if inode.Mapped || len(inode.Blocks) == 0 {
		return ""
	}
	again, err := openAgain(fd, unix.O_RDONLY)
	if err != nil {
		return fmt.Sprintf("cannot be compared with what it was (%v)", err)
	}
	defer unix.Close(again)
	what, err := differs(again, inode.Blocks)
	if err != nil {
		return fmt.Sprintf("cannot be compared with what it was (%v)", err)
	}
	return what
}

func stamp(ns int64) string {
	return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05.000000000 UTC")
}

// tailOf is tailDigest for any descriptor; one that was opened for O_DIRECT cannot read unaligned.
func tailOf(fd int, size int64) (string, error) {
	again, err := openAgain(fd, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer unix.Close(again)
	return tailDigest(again, size)
}

// writes tells whether the application had the file open for writing too.
func (r *restorer) writes(inode *Inode) bool {
	for i := range r.table.Files {
		f := &r.table.Files[i]
		if f.Inode != nil && f.Inode.Dev == inode.Dev && f.Inode.Ino == inode.Ino && f.writable() {
			return true
		}
	}
	return false
}

func (r *restorer) checkLauncher(f *File) *Problem {
	fd := r.options.Inherited[f.Launcher]
	var st unix.Stat_t
	if fd < 0 || unix.Fstat(fd, &st) != nil {
		return &Problem{Path: f.name(), What: "is closed", Do: "restart with it open, at least to /dev/null"}
	}
	if f.Inode == nil || f.Reopened {
		return nil
	}
	if st.Dev != f.Inode.Dev || st.Ino != f.Inode.Ino {
		if !f.writable() {
			r.options.Warn(fmt.Sprintf("stdin was the file %s at offset %d; the program goes on reading the new stdin", f.Path, f.Offset))
		}
		return nil
	}
	if f.writable() {
		if st.Size < f.Inode.Size {
			r.options.Warn(fmt.Sprintf("%s: %s was emptied, so only new output goes there", f.name(), f.Path))
		} else if what := compareBlocks(f.Inode, fd); what != "" && !r.options.Keep {
			r.options.Warn(fmt.Sprintf("%s: %s %s, so only new output goes there", f.name(), f.Path, what))
			r.replaced[f.Launcher] = true
		}
		return nil
	}
	return r.compare(f, fd, &st)
}
