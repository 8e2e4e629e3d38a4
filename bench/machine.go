// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine is what figures depend on and a reader cannot know.
type machine struct {
	Processor  string  `json:"processor"`
	Processors int     `json:"processors"`
	MemoryGiB  float64 `json:"memoryGiB"`
	System     string  `json:"system"`
	Kernel     string  `json:"kernel"`
	MPICH      string  `json:"mpich"`
	OpenMPI    string  `json:"openmpi"`
	FileSystem string  `json:"fileSystem"` // of the images
	// Busy is the share of the processors that others used, in the second before the first run.
	Busy float64 `json:"busy"`
}

func describe(ctx context.Context, dir string) (machine, error) {
	m := machine{Processors: runtime.NumCPU(), FileSystem: fileSystem(dir)}
	m.Processor = field("/proc/cpuinfo", "model name", ":")
	m.System = strings.Trim(field("/etc/os-release", "PRETTY_NAME", "="), `"`)
	kib, _, _ := strings.Cut(field("/proc/meminfo", "MemTotal", ":"), " ")
	if n, err := strconv.ParseFloat(kib, 64); err == nil {
		m.MemoryGiB = n / (1 << 20)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	m.MPICH = version(ctx, "mpiexec.mpich")
	m.OpenMPI = version(ctx, "mpiexec.openmpi")
	var err error
	m.Busy, err = busy(ctx, time.Second)
	return m, err
}

func (m *machine) summary() string {
	s := fmt.Sprintf("%d processors (%s), %.0f GiB, %s, Linux %s, MPICH %s, Open MPI %s, images on %s; "+
		"others used %.0f %% of the processors before the first run",
		m.Processors, m.Processor, m.MemoryGiB, m.System, m.Kernel, m.MPICH, m.OpenMPI, m.FileSystem,
		100*m.Busy)
	if m.Busy > 0.05 {
		s += ": the machine was not quiet, take the figures with care"
	}
	return s
}

// field returns the value of the first line of a file that begins with key, or "unknown".
func field(path, key, separator string) string {
	f, err := os.Open(path)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		k, v, found := strings.Cut(lines.Text(), separator)
		if found && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

var versionNumber = regexp.MustCompile(`\b\d+\.\d+(\.\d+)?\w*`)

func version(ctx context.Context, command string) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, command, "--version").Output()
	if found := versionNumber.Find(out); err == nil && found != nil {
		return string(found)
	}
	return "unknown"
}

func fileSystem(dir string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return "unknown"
	}
	names := map[int64]string{unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs",
		unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
		unix.NFS_SUPER_MAGIC: "nfs"}
	if name := names[s.Type]; name != "" {
		return name
	}
	return fmt.Sprintf("a file system of type %#x", s.Type)
}

// busy returns the share of processor time that was not idle over the time d.
func busy(ctx context.Context, d time.Duration) (float64, error) {
	read := func() (idle, all float64, err error) {
		for i, word := range strings.Fields(field("/proc/stat", "cpu", "  ")) {
			n, err := strconv.ParseFloat(word, 64)
			if err != nil {
				return 0, 0, fmt.Errorf("/proc/stat: %w", err)
			}
			if i == 3 || i == 4 { // idle, waiting for a disk
				idle += n
			}
			if i < 8 { // later ones are in the first two already
				all += n
			}
		}
		return idle, all, nil
	}
	idle0, all0, err := read()
	if err != nil {
		return 0, err
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	idle1, all1, err := read()
	if err != nil || all1 <= all0 {
		return 0, err
	}
	return 1 - (idle1-idle0)/(all1-all0), nil
}
