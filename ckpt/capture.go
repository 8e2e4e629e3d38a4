// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/snapshot"
	"github.com/libckpt/libckpt/drain"
)

// capture is the state of a stopped process, except for the pages of its private memory.
type capture struct {
	meta     Meta
	sections []image.Section
	regions  []image.Region
	named    []files.Named // files that must be durable before the epoch is committed
}

// captureStopped describes the stopped program. Obstacles are why it cannot be saved now.
func (j *Job) captureStopped() (*capture, []string, error) {
	var obstacles []string
	j.mu.Lock()
	known := make(map[int]bool, len(j.frozen))
	for pid := range j.frozen {
		known[pid] = true
	}
	j.mu.Unlock()
	children, err := snapshot.Children(known)
	if err != nil {
		return nil, nil, err
	}
	for _, pid := range children {
		obstacles = append(obstacles, fmt.Sprintf("child process %d (%s) is not finished, or not waited for", pid, comm(pid)))
	}
	fds := j.host.Descriptors()
	inherited := [3]int{j.host.Original(0), j.host.Original(1), j.host.Original(2)}
	table, open, err := files.Capture(fds, inherited, j.options.IgnoreFD...)
	if err != nil {
		return nil, nil, fmt.Errorf("open files: %w", err)
	}
	for _, o := range open {
		obstacles = append(obstacles, o.String())
	}
	if len(obstacles) > 0 {
		return nil, obstacles, nil
	}
	c := &capture{meta: j.meta}
	var messages []byte
	if j.tables != nil {
		if messages, err = j.runtime.Save(); err != nil {
			return nil, nil, err
		}
		if _, err := drain.Decode(messages); err != nil {
			return nil, nil, fmt.Errorf("what the runtime says of its %w", err)
		}
		var own []files.Named
		if c.named, own, err = j.runtime.Files(); err != nil {
			return nil, nil, err
		}
		if obstacles, err = table.AddNamed(own); err != nil || len(obstacles) > 0 {
			return nil, obstacles, err
		}
	}
	if c.meta.Dir, err = os.Readlink("/proc/self/cwd"); err != nil {
		return nil, nil, err
	}
	c.meta.Umask = unix.Umask(0)
	unix.Umask(c.meta.Umask)
	threads, err := j.host.State()
	if err != nil {
		return nil, nil, err
	}
	filesSection, err := table.Encode()
	if err != nil {
		return nil, nil, fmt.Errorf("open files: %w", err)
	}
	c.sections = []image.Section{{Name: sectionThreads, Data: threads}, {Name: sectionFiles, Data: filesSection}}
	if j.tables != nil {
		c.sections = append(c.sections, image.Section{Name: sectionMessages, Data: messages})
		c.sections = append(c.sections,
			image.Section{Name: sectionObjects, Data: j.tables.Save()},
			image.Section{Name: sectionRuntime, Data: append([]byte(nil), j.state...)})
	}
	if c.regions, err = snapshot.Regions(); err != nil {
		return nil, nil, err
	}
	if err := snapshot.CopyShared(c.regions); err != nil {
		return nil, nil, err
	}
	return c, nil, nil
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
