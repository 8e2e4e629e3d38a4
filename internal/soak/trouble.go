// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/e2e"
)

// breaks is the environment in which connections between ranks break, each when one of the frames that
// are drawn here arrives.
func breaks(r *rand.Rand) []string {
	var faults []string
	for at := 5 + r.IntN(20); len(faults) < 60; at += 1 + r.IntN(30) {
		faults = append(faults, fmt.Sprintf("signaling.read=error:%d", at))
	}
	return []string{"CKPT_FAULT=" + strings.Join(faults, ",")}
}

// verify checks every byte of the newest epoch, if there is one. No rank may be running.
func (l *Life) verify() error {
	if !l.saved() {
		return nil
	}
	said, err := exec.Command("timeout", "120", l.tree.Tool("ckptctl"), "verify", l.checkpoints()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ckptctl verify: %w: %s", err, said)
	}
	return nil
}

// refused checks that a request failed, and that one of these words is in what was said. It is false when
// the program has ended meanwhile.
func (l *Life) refused(a answer, words ...string) (bool, error) {
	said := func(word string) bool { return strings.Contains(a.stderr, word) }
	if a.exit == (e2e.Exit{Code: 1}) && slices.ContainsFunc(words, said) {
		l.tell("refused: %s", strings.TrimSpace(a.stderr))
		return true, nil
	}
	if e2e.Poll(30*time.Second, l.now.process.Done(), l.now.process.Ended) {
		l.tell("too late: %s", strings.TrimSpace(a.stderr))
		return false, nil
	}
	return false, fmt.Errorf("ckptctl: %v: %q, expected one of %q\n%s\nstderr of the job: %s", a.exit, a.stdout+a.stderr, words, l.where(), tail(l.now.stderr))
}

// pauseRank stops a rank for longer than a request waits: this request is given up, and the next one is not.
func (l *Life) pauseRank() error {
	pids := l.mark.Ranks()
	if len(pids) == 0 {
		return nil
	}
	pid := pids[l.random.IntN(len(pids))]
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	// Connected to a rank 0 that is stopped, ckptctl has to notice by itself.
	a, err := l.request(0, "continue", time.Duration(500+l.random.IntN(1000))*time.Millisecond)
	stopped := isStopped(pid)
	_ = syscall.Kill(pid, syscall.SIGCONT)
	if err != nil {
		return err
	}
	if stopped {
		if ok, err := l.refused(a, slices.Concat(tooLate, []string{"is stopped"})...); err != nil || !ok {
			return err
		}
	}
	return l.save("continue")
}

func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	return strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " T")
}

// owner is the process of rank 0 that job.json tells of, 0 if there is none.
func (l *Life) owner() int {
	var record struct {
		PID int `json:"pid"`
	}
	text, err := os.ReadFile(filepath.Join(l.checkpoints(), "job.json"))
	if err != nil || json.Unmarshal(text, &record) != nil {
		return 0
	}
	return record.PID
}

// second starts the program once more in the directory of the living job. This start must be refused. Rank 0
// of the job is stopped meanwhile, so that the job cannot end and leave the directory to the second.
func (l *Life) second() error {
	pid := l.owner()
	if pid == 0 || !slices.Contains(l.mark.Ranks(), pid) {
		return nil
	}
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	if !e2e.Poll(time.Second, nil, func() bool { return isStopped(pid) }) || l.owner() != pid {
		return nil // it has ended
	}
	argv := l.first()
	if l.saved() && l.random.IntN(2) == 0 {
		argv = l.again()
	}
	mark := e2e.NewMark()
	defer mark.KillAll()
	name := fmt.Sprintf("second-%02d", l.Cycles)
	own := e2e.RankFiles(filepath.Join(l.Dir, name))
	in, err := l.launch(start{l.someMPI(l.Program.MPIs), name, l.work(), own, mark, nil, argv})
	if err != nil {
		return err
	}
	exit, err := l.await(in.process, readyLimit, "a second job beside the first does not end")
	if err != nil {
		return err
	}
	said, err := own.Printed("err", l.Ranks)
	if err != nil {
		return err
	}
	said += read(in.stderr)
	if exit == (e2e.Exit{}) || !strings.Contains(said, "belongs to a job that") || !strings.Contains(said, "nothing was touched") {
		return fmt.Errorf("a second job beside the first: %v: %s", exit, said)
	}
	return nil
}

// killCopy kills the frozen copy of a rank, from which the image is written. The checkpoint fails, unless the
// kill came too late. The job goes on, and the next checkpoint is made.
func (l *Life) killCopy() error {
	p, name, err := l.ask(0, "--timeout", requestLimit.String())
	if err != nil {
		return err
	}
	killed, ranks := false, l.mark.Ranks()
	for end := time.Now().Add(requestLimit); !killed && !p.Ended() && !l.now.process.Ended() && time.Now().Before(end); {
		if copies := copiesOf(ranks); len(copies) > 0 {
			killed = syscall.Kill(copies[l.random.IntN(len(copies))], syscall.SIGKILL) == nil
		}
		time.Sleep(time.Millisecond) // they live for some
	}
	exit, err := l.awaitAnswer(p, requestLimit)
	if err != nil {
		return err
	}
	a := answer{exit, read(name + ".out"), read(name + ".err"), "continue"}
	if exit == (e2e.Exit{}) || !killed {
		_, err := l.judge(a)
		return err
	}
	if ok, err := l.refused(a, "the frozen copy of the program"); err != nil || !ok {
		return err
	}
	l.count("... which ended the checkpoint")
	return l.save("continue")
}

// copiesOf are the frozen copies of ranks: their children that run ckptrun.
func copiesOf(ranks []int) []int {
	var pids []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		var pid, parent int
		var state string
		stat := read(path)
		if _, err := fmt.Sscan(stat[strings.LastIndexByte(stat, ')')+1:], &state, &parent); err != nil || !slices.Contains(ranks, parent) {
			continue // most have another parent; some have ended
		}
		if exe, err := os.Readlink(filepath.Dir(path) + "/exe"); err != nil || filepath.Base(exe) != "ckptrun" {
			continue
		}
		if _, err := fmt.Sscan(stat, &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// deleteRecord removes the record that says where the job listens. The job writes the record again.
func (l *Life) deleteRecord() error {
	pid := l.owner()
	record := filepath.Join(l.checkpoints(), "job.json")
	if err := os.Remove(record); err != nil && !os.IsNotExist(err) {
		return err
	}
	if l.random.IntN(2) == 0 {
		return l.save("continue") // which waits for it
	}
	if !e2e.Poll(readyLimit, l.now.process.Done(), func() bool { return l.owner() == pid }) && !l.now.process.Ended() {
		return l.hang("job.json is not written again")
	}
	return l.save("continue")
}

// fillDisk makes a checkpoint find no room. The checkpoint fails with that reason, and the job goes on,
// whatever was to follow.
func (l *Life) fillDisk() error {
	if err := l.disk.fill(); err != nil {
		return err
	}
	a, err := l.request(0, []string{"continue", "exit", "kill"}[l.random.IntN(3)], requestLimit)
	if err := errors.Join(err, l.disk.empty()); err != nil {
		return err
	}
	if ok, err := l.refused(a, "no space left"); err != nil || !ok {
		return err
	}
	return l.save("continue")
}

// disk is a small file system.
type disk struct{ dir string }

// mayMount tells whether this process may have one.
func mayMount() bool { return os.Geteuid() == 0 }

func mountDisk(dir string) (*disk, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, diskSize); err != nil {
		return nil, fmt.Errorf("mount a file system at %s: %w", dir, err)
	}
	return &disk{dir}, nil
}

const diskSize = "mode=0700,size=4g"

// fill takes away what is free: the file system becomes as small as what is in it.
func (d *disk) fill() error {
	var s unix.Statfs_t
	if err := unix.Statfs(d.dir, &s); err != nil {
		return err
	}
	// Some pages may be written in the moment before.
	used := (s.Blocks - s.Bfree + 4) * uint64(s.Bsize)
	if err := unix.Mount("tmpfs", d.dir, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d", used)); err != nil {
		return fmt.Errorf("make %s smaller: %w", d.dir, err)
	}
	return nil
}

func (d *disk) empty() error {
	if err := unix.Mount("tmpfs", d.dir, "tmpfs", unix.MS_REMOUNT, diskSize); err != nil {
		return fmt.Errorf("make %s larger: %w", d.dir, err)
	}
	return nil
}

func (d *disk) unmount() { _ = unix.Unmount(d.dir, unix.MNT_DETACH) }
