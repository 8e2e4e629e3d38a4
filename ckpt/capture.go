// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/posixshm"
	"github.com/libckpt/libckpt/ckpt/shm"
	"github.com/libckpt/libckpt/ckpt/snapshot"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/ckpt/sysv"
	"github.com/libckpt/libckpt/drain"
)

// captureReport is what a rank says of the state in which it was stopped.
type captureReport struct {
	Obstacles []string `json:"obstacles,omitempty"` // why the rank cannot be saved now
	Lasting   []string `json:"lasting,omitempty"`   // those of them that stay for as long as the program leaves them
	Failure   string   `json:"failure,omitempty"`   // what did not work
	Epoch     int      `json:"epoch,omitempty"`     // rank 0: directory made
	Files     []string `json:"files,omitempty"`     // files.Table.Shared
	Tasks     []int    `json:"tasks,omitempty"`     // in regions mode: ranks that are here
	Level     int      `json:"level,omitempty"`     // that the program wants
	Named     int      `json:"named,omitempty"`     // pieces of its state
	Node      string   `json:"node,omitempty"`      // whose ranks write the same pages once; "": this one writes all
	Uncopied  bool     `json:"uncopied,omitempty"`  // memory that others may write to is written as it is then
}

func (r *captureReport) good() bool { return r.Failure == "" && len(r.Obstacles) == 0 }

// capture is the state of a stopped process, except for the pages of its private memory.
type capture struct {
	meta     Meta
	sections []image.Section // but for that of the files
	regions  []image.Region
	table    files.Table
	held     *files.Held // files that must be durable before the epoch is committed; nil once done
	failed   error       // why the files could not be kept
	mapped   [][]byte    // by room
	lasting  []string    // obstacles that only the program can remove
	writes   noted
	read     map[string]string // files that are mapped to be read: by path, files.Key while all ranks stood
	uncopied string            // why shared memory is not copied: the program stands until it is written; "": it is copied
	hidden   snapshot.Hidden
	memory   image.Memory // nil: that of the process, or of its frozen copy
}

// spare is what room leaves of a limit of addresses.
const spare = 256 << 20

// room is memory for what the network held, or memory that processes share, which may be much. If there is not enough, that is an
// error here; running out of Go's heap would end the process.
func (c *capture) room(bytes int) ([]byte, error) {
	if bytes == 0 {
		return nil, nil
	}
	// Where addresses are limited, some stay for others: Go ends the process that has none for a thread.
	var b []byte
	err := snapshot.Addresses(uint64(bytes) + spare)
	if err == nil {
		b, err = unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	}
	if err != nil {
		return nil, fmt.Errorf("memory for a copy of %d bytes: %w", bytes, err)
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // the program stands still meanwhile; a kernel without them uses small ones
	c.mapped = append(c.mapped, b)
	return b, nil
}

// done gives up what the capture keeps of the process: nobody may look at its sections after that. It may be
// called on nil, and again.
func (c *capture) done() {
	if c == nil {
		return
	}
	c.held.Done()
	c.held = nil
	c.unmap(0)
	c.sections, c.regions = nil, nil
}

// unmap gives back what room gave, from the first-th time on.
func (c *capture) unmap(first int) {
	for _, b := range c.mapped[first:] {
		_ = unix.Munmap(b) // it is what Mmap returned
	}
	c.mapped = c.mapped[:first]
}

// captureHere describes this rank's program.
func (a *attempt) captureHere() {
	if a.j.regional != nil {
		a.captureTasks()
		return
	}
	mine := &a.state
	err := a.onProgram(func() {
		var err error
		a.capture, mine.Obstacles, mine.Lasting, err = a.j.captureStopped(shares{a.segments, a.posix, a.sharedHere(), a.stands()}, a.plugs)
		if err != nil {
			mine.Failure = err.Error()
		} else if a.capture != nil {
			if a.verbs {
				a.capture.sections = append(a.capture.sections, image.Section{Name: sectionVerbs, Data: a.j.verbsSection()})
			}
			mine.Files, mine.Uncopied = a.capture.table.Shared(), a.capture.uncopied != ""
		}
	})
	if err != nil {
		mine.Failure = err.Error()
	}
}

// shares is what processes share of their memory.
type shares struct {
	segments [][]string         // of ckpt_shm_map, by process
	posix    []*posixshm.Report // by process
	sysv     *sysv.Here         // of this process
	stands   bool               // the program, until its image is written
}

// captureStopped describes the stopped program. Obstacles say why the program cannot be saved now; lasting are those
// of them that only the program can remove. p are this process's sockets.
func (j *Job) captureStopped(s shares, p *plugs) (c *capture, obstacles, lasting []string, err error) {
	c = &capture{meta: j.meta}
	obstacles, err = c.describe(j, s, p)
	if err != nil || len(obstacles) > 0 {
		c.done()
		return nil, obstacles, c.lasting, err
	}
	return c, nil, nil, nil
}

// inode tells open files apart: of sockets and pipes, too, no two that are open have the same one.
type inode struct{ dev, ino uint64 }

func inodeOf(fd int) (inode, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return inode{}, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	return inode{st.Dev, st.Ino}, nil
}

// IgnoreFD leaves a descriptor out of images, or no more: it is neither saved nor in the way. That ends when the
// descriptor is closed: its number may be that of a file of the program's next.
func (j *Job) IgnoreFD(fd int, on bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !on {
		delete(j.ignored, fd)
		return nil
	}
	file, err := inodeOf(fd)
	if err != nil {
		return err
	}
	if j.ignored == nil {
		j.ignored = map[int]inode{}
	}
	j.ignored[fd] = file
	return nil
}

func (j *Job) ignoredFDs() []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := slices.Clone(j.options.IgnoreFD)
	for fd, marked := range j.ignored {
		if now, err := inodeOf(fd); err == nil && now == marked {
			list = append(list, fd)
		}
	}
	if d := j.device(); d != nil { // in the program's epoll sets
		list = append(list, d.Descriptors()...)
	}
	return list
}

func (c *capture) describe(j *Job, s shares, p *plugs) (obstacles []string, err error) {
	j.mu.Lock()
	known := make(map[int]bool, len(j.frozen))
	for pid := range j.frozen {
		known[pid] = true
	}
	j.mu.Unlock()
	children, err := snapshot.Children(known)
	if err != nil {
		return nil, err
	}
	for _, pid := range children {
		obstacles = append(obstacles, fmt.Sprintf("child process %d (%s) is not finished, or not waited for", pid, comm(pid)))
	}
	fds := j.host.Descriptors()
	inherited := [3]int{j.host.Original(0), j.host.Original(1), j.host.Original(2)}
	table, open, err := files.CaptureWith(p.keep, fds, inherited, j.ignoredFDs()...)
	if err != nil {
		return nil, fmt.Errorf("open files: %w", err)
	}
	for _, o := range open {
		obstacles = append(obstacles, o.String())
		if !o.Passing {
			c.lasting = append(c.lasting, o.String())
		}
	}
	if len(obstacles) > 0 {
		return obstacles, nil
	}
	var messages []byte
	var named []files.Named
	if j.tables != nil && j.embedded == nil { // an embedded runtime is in the memory
		if messages, err = j.runtime.Save(c.room); err != nil {
			return nil, err
		}
		if _, err := drain.Decode(messages); err != nil {
			return nil, fmt.Errorf("what the runtime says of its %w", err)
		}
		var own []files.Named
		if named, own, err = j.runtime.Files(); err != nil {
			return nil, err
		}
		if obstacles, err = table.AddNamed(own); err != nil || len(obstacles) > 0 {
			return obstacles, err
		}
	}
	if c.meta.Dir, err = os.Readlink("/proc/self/cwd"); err != nil {
		return nil, err
	}
	c.meta.Umask = unix.Umask(0)
	unix.Umask(c.meta.Umask)
	threads, err := j.host.State()
	if err != nil {
		return nil, err
	}
	c.sections = []image.Section{{Name: sectionThreads, Data: threads}}
	if p != nil {
		b, err := p.table.Encode()
		if err != nil {
			return nil, err
		}
		c.sections = append(c.sections, image.Section{Name: sectionSockets, Data: b})
	}
	if j.tables != nil {
		j.clock.Hear() // the program stands still: what it has said until now is all
		c.sections = append(c.sections, image.Section{Name: sectionObjects, Data: j.tables.Save()})
	}
	if j.tables != nil && j.embedded == nil {
		c.sections = append(c.sections, image.Section{Name: sectionMessages, Data: messages},
			image.Section{Name: sectionRuntime, Data: append([]byte(nil), j.state...)})
	}
	if c.regions, err = snapshot.Regions(); err != nil {
		return nil, err
	}
	if j.tables != nil && j.embedded == nil {
		snapshot.Own(c.regions, j.runtime.Memory())
	}
	if own := s.sysv; own != nil {
		if err := own.Mark(c.regions); err != nil {
			return nil, err
		}
		list, err := own.Sections(c.room)
		if err != nil {
			return nil, err
		}
		c.sections = append(c.sections, list...)
	}
	given, lasting, err := c.asks(j)
	if err != nil {
		return nil, err
	}
	if given != "" {
		obstacles = append(obstacles, given)
		if lasting {
			c.lasting = append(c.lasting, given)
		}
	}
	shared, held := j.signals.Segments().Save(c.regions, s.segments)
	obstacles = append(obstacles, held...)
	for i := range c.regions {
		if r := &c.regions[i]; j.host.Foreign(r.Start, r.End) {
			obstacles = append(obstacles, fmt.Sprintf("memory %s lies among the program's and is not its own: "+
				"a library of the MPI below, or of LD_PRELOAD, has taken it", r))
			c.lasting = append(c.lasting, obstacles[len(obstacles)-1])
		}
	}
	if start, end, is := j.host.Outside(); is {
		obstacles = append(obstacles, fmt.Sprintf("the program has mapped memory %#x-%#x by address (MAP_FIXED), which is above 2 GiB and outside "+
			"the program's part of memory: it cannot be put there again", start, end))
	}
	if len(obstacles) > 0 {
		return obstacles, nil
	}
	if len(shared) > 0 {
		b, err := shm.Encode(shared)
		if err != nil {
			return nil, err
		}
		c.sections = append(c.sections, image.Section{Name: shm.Section, Data: b})
	}
	if obstacles, err := c.markPosix(&table, j.group.rank(), s.posix); err != nil || len(obstacles) > 0 {
		return obstacles, err
	}
	large, err := c.refer(&table)
	if err != nil {
		return nil, err
	}
	if obstacles, err = table.AddNamed(append(mappedFiles(c.regions), large...)); err != nil || len(obstacles) > 0 {
		return obstacles, err
	}
	if err := c.shared(j, s.stands, fds); err != nil {
		return nil, err
	}
	c.table = table
	if c.held, err = files.Hold(&c.table, named, fds); err != nil {
		return nil, err
	}
	c.held.Remember(j.host.Closed())
	if err := c.held.Sample(&c.table); err != nil {
		return nil, fmt.Errorf("open files: %w", err)
	}
	c.meta.Made = j.noteMade(j.store)
	return nil, nil
}

// shared copies memory that is not of this process alone. A program that stands until its image is written needs no copy, and where
// there is no room for one it has to.
func (c *capture) shared(j *Job, stands bool, fds []int) error {
	var bytes uint64
	var err error
	if e := files.Apart(fds, func() { bytes, err = snapshot.FindShared(c.regions) }); e != nil || err != nil {
		return errors.Join(e, err)
	}
	if bytes == 0 {
		return snapshot.CopyShared(c.regions, c.room)
	}
	if c.uncopied = j.sharedTooLarge(bytes); stands {
		c.uncopied = "the program stands anyway"
	}
	if c.uncopied != "" {
		return nil
	}
	before := len(c.mapped)
	if err = snapshot.CopyShared(c.regions, c.room); errors.Is(err, unix.ENOMEM) {
		c.uncopied, err = err.Error(), nil
		snapshot.DropShared(c.regions)
		c.unmap(before)
	}
	return err
}

// markPosix has files in memory, and those without a name, made again by a restart: what is mapped of them is shared by their
// numbers from here on.
func (c *capture) markPosix(table *files.Table, rank int, reports []*posixshm.Report) (obstacles []string, err error) {
	section, obstacles, err := posixshm.Mark(c.regions, rank, reports, table.Sealed)
	if err != nil || section == nil {
		return obstacles, err
	}
	for path, whole := range section.Names() {
		table.NoteMapped(path, whole)
	}
	b, err := section.Encode()
	if err != nil {
		return nil, err
	}
	c.sections = append(c.sections, image.Section{Name: posixshm.SectionName, Data: b})
	return nil, nil
}

// mappedFiles lists the files that the program writes to through its memory. It may have closed them.
func mappedFiles(regions []image.Region) []files.Named {
	var list []files.Named
	for i := range regions {
		r := &regions[i]
		if r.Flags&image.FlagFile != 0 && r.Flags&image.FlagShared != 0 && r.Prot&unix.PROT_WRITE != 0 {
			list = append(list, files.Named{Path: r.Path, Write: true, Mapped: true})
		}
	}
	return list
}

func comm(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || len(b) == 0 {
		return "?"
	}
	return string(b[:len(b)-1])
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// refer leaves out what is mapped to be read of files that this process writes to in another way, and of large files. That the latter
// are what they were is for a restart to see.
func (c *capture) refer(table *files.Table) (large []files.Named, err error) {
	writes := func(r *image.Region) bool { return table.Writes(r.Path) }
	readers := snapshot.Readers(c.regions)
	c.read = map[string]string{}
	for _, r := range readers {
		c.read[r.Path] = files.Key(r.Path)
	}
	list := slices.DeleteFunc(readers, func(r *image.Region) bool { return r.Bytes() < snapshot.LargeFile && !writes(r) })
	list, err = snapshot.Refer(list)
	for _, r := range list {
		if !writes(r) {
			large = append(large, files.Named{Path: r.Path})
		}
	}
	return large, err
}

// referToWritten leaves out what is mapped to be read of files that other processes write to.
func (c *capture) referToWritten(written func(key string) bool) error {
	list := snapshot.Readers(c.regions)
	_, err := snapshot.Refer(slices.DeleteFunc(list, func(r *image.Region) bool { return !written(c.read[r.Path]) }))
	return err
}

// keepFiles keeps with the epoch those files being written that this rank has to keep. All ranks that write to a
// file are stopped until the file is kept. An error is reported with the image.
func (a *attempt) keepFiles(all []captureReport) {
	j, c := a.j, a.capture
	if j.regional != nil {
		return
	}
	lists := make([][]string, len(all))
	for r, one := range all {
		lists[r] = one.Files
	}
	shared, written := c.table.Elect(j.group.rank(), lists)
	c.failed = c.referToWritten(written)
	if !j.options.KeepsFiles() {
		return
	}
	kept := make(chan struct{})
	_, err := patiently(a.ctx, &j.slow, "keeping files that are being written", func() (struct{}, error) {
		defer close(kept)
		return struct{}{}, c.held.Keep(&c.table, files.KeepOptions{Dir: j.store.EpochDir(a.epoch),
			Prefix: store.ImagePrefix(j.group.rank()), Copy: j.options.FilesCopy})
	}, func(struct{}, error) { c.done() })
	c.failed = errors.Join(c.failed, err)
	select {
	case <-kept:
	default: // they are in use until the disk answers
		a.capture = nil
	}
	if shared { // a lost network is found by the exchange that follows
		_, _ = gather(a, stepKept, struct{}{})
	}
}

// lastingError is a refusal for a reason that stays until the program itself removes it, or the disk answers.
type lastingError struct {
	*control.RefusedError
	reasons []string // those that stay
	disk    bool     // the disk does not answer
}

func (e *lastingError) Unwrap() error { return e.RefusedError }

func capturedEverywhere(all []captureReport) error {
	var refused, lasting, failed []string
	for r, one := range all {
		prefix := ""
		if len(all) > 1 {
			prefix = fmt.Sprintf("rank %d: ", r)
		}
		for _, o := range one.Obstacles {
			refused = append(refused, prefix+o)
		}
		for _, o := range one.Lasting {
			lasting = append(lasting, prefix+o)
		}
		if one.Failure != "" {
			failed = append(failed, prefix+one.Failure)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("checkpoint failed: %s", failed[0])
	}
	if len(lasting) > 0 {
		return &lastingError{RefusedError: &control.RefusedError{Reasons: refused}, reasons: lasting}
	}
	if len(refused) > 0 {
		return &control.RefusedError{Reasons: refused}
	}
	return nil
}
