// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/disturb"
)

// Users that own nothing and have no name on this machine.
const (
	somebody     = 48123
	somebodyElse = 48124
)

// place is a folder with an installed tree and a job of awaits.c, for a user and with something before each command.
type place struct {
	t    *testing.T
	dir  string
	job  *awaits
	user int      // 0: who runs the test
	by   []string // before each command
}

// anyPlace installs the tree where everybody may read it, and gives the rest to the user.
func anyPlace(t *testing.T, mpi string, user int, by ...string) *place {
	t.Helper()
	needCommands(t)
	if os.Geteuid() != 0 && user != 0 {
		t.Skip("only root can become another user")
	}
	dir, err := os.MkdirTemp("", "ckpt-any-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	p := &place{t: t, dir: dir, user: user, by: by, job: &awaits{nodesJob: &nodesJob{heat: &heat{mark: NewMark()}, t: t, mpi: mpi}}}
	t.Cleanup(p.job.mark.KillAll)
	if out, err := exec.Command(filepath.Join(built.Root, "scripts/install.sh"), filepath.Join(built.Root, "build"), filepath.Join(dir, "tree")).CombinedOutput(); err != nil {
		t.Fatalf("install.sh: %v: %s", err, out)
	}
	p.job.run, err = NewRun(filepath.Join(dir, "job"))
	must(t, err)
	p.job.program = filepath.Join(dir, "awaits")
	must(t, os.Link(awaitsProgram(t, mpi), p.job.program))
	must(t, os.Mkdir(filepath.Join(dir, "job/home"), 0o755))
	p.job.in(p.job.run.Work())
	if user != 0 {
		must(t, filepath.WalkDir(p.job.run.Dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Chown(path, user, user)
		}))
	}
	return p
}

func (p *place) tool(name string) string { return filepath.Join(p.dir, "tree/bin", name) }

// as has a user run a command; what is before commands is there for him, too.
func (p *place) as(user int, argv ...string) []string {
	words := []string{"env", "HOME=" + filepath.Join(p.job.run.Dir, "home"), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
	if user != 0 {
		id := strconv.Itoa(user)
		words = append(words, "setpriv", "--reuid="+id, "--regid="+id, "--clear-groups", "--inh-caps=-all", "--no-new-privs")
	}
	return append(append(words, p.by...), argv...)
}

func (p *place) start(argv ...string) *Process {
	p.t.Helper()
	launch := append(append(slices.Clone(launchers[p.job.mpi]), "-n", "2", p.tool("ckptrun")), options()...)
	process, err := p.job.run.Start(p.job.mark, p.as(p.user, append(launch, argv...)...)...)
	must(p.t, err)
	return process
}

// ask runs ckptctl for a user.
func (p *place) ask(user int, argv ...string) (Exit, string) {
	p.t.Helper()
	run, err := NewRun(p.t.TempDir())
	must(p.t, err)
	process, err := Start(Command{Argv: p.as(user, append([]string{p.tool("ckptctl")}, argv...)...), Dir: "/", Mark: p.job.mark, Stdout: run.Stdout, Stderr: run.Stderr})
	must(p.t, err)
	exit, err := process.Wait(checkpointLimit)
	if err != nil {
		p.t.Fatalf("%v\n%s", err, mustRead(p.t, p.job.run.Stderr))
	}
	return exit, string(mustRead(p.t, run.Stdout)) + string(mustRead(p.t, run.Stderr))
}

// cycle runs the job, saves and kills it, and continues it to its end and the right result.
func (p *place) cycle(atRestart ...string) {
	p.t.Helper()
	process := p.start(append([]string{"--dir", p.job.run.Checkpoints(), "--"}, p.job.argv...)...)
	p.job.stands(process)
	if exit, said := p.ask(p.user, "checkpoint", p.job.run.Checkpoints(), "--then", "kill", "--timeout", "60s"); exit != (Exit{}) {
		p.t.Fatalf("ckptctl checkpoint: %v: %s\n%s", exit, said, mustRead(p.t, p.job.run.Stderr))
	}
	if _, err := process.Wait(mpiLimit); err != nil {
		p.t.Fatal(err)
	}
	must(p.t, noneLeft(p.job.mark))
	p.job.letGo()
	p.job.ends(p.start(append(atRestart, "--restart", p.job.run.Checkpoints())...), 2)
}

// A user without rights, without a name and with an empty home directory builds nothing: he runs, saves and continues
// jobs with what another one has installed. Nobody else can use his job.
func TestAnyUser(t *testing.T) {
	for _, mpi := range mpis {
		t.Run(mpi, func(t *testing.T) {
			p := anyPlace(t, mpi, somebody)
			process := p.start(append([]string{"--dir", p.job.run.Checkpoints(), "--"}, p.job.argv...)...)
			p.job.stands(process)
			exit, said := p.ask(somebodyElse, "checkpoint", p.job.run.Checkpoints(), "--timeout", "5s")
			if exit.Code != 1 || !strings.Contains(said, "permission denied") || strings.Contains(said, "goroutine") {
				t.Errorf("another user: %v: %s", exit, said)
			}
			p.job.mark.KillAll()
			if _, err := process.Wait(mpiLimit); err != nil {
				t.Fatal(err)
			}
			must(t, os.RemoveAll(p.job.run.Checkpoints()))
			must(t, os.Remove(p.job.file("stands")))
			p.cycle()
			must(t, filepath.WalkDir(p.job.run.Checkpoints(), func(path string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := d.Info()
				if err == nil && info.Mode().Perm()&0o077 != 0 {
					t.Errorf("%s: %v: others may read it", path, info.Mode())
				}
				return err
			}))
		})
	}
}

// confinement compiles confine.c.
func confinement(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ckpt-confine-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	program := filepath.Join(dir, "confine")
	if out, err := exec.Command("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-o", program, filepath.Join(built.Src, "confine.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// dockerCaps are the rights of root in a container.
const dockerCaps = "-all,+chown,+dac_override,+fsetid,+fowner,+mknod,+net_raw,+setgid,+setuid,+setfcap,+setpcap,+net_bind_service,+sys_chroot,+kill,+audit_write"

// In a container: its seccomp profile (confine.c), as a user and as its root, under either way to catch system calls.
// Without userfaultfd a lazy restart reads all memory first, and says so.
func TestConfined(t *testing.T) {
	needCommands(t)
	confine := confinement(t)
	for i, c := range []struct {
		profile string
		user    int
		trap    string
	}{
		{"docker", somebody, "seccomp"},
		{"docker", 0, "seccomp"},
		{"podman", somebody, "sud"},
		{"podman", 0, "seccomp"},
	} {
		mpi := mpis[i%len(mpis)]
		t.Run(fmt.Sprint(c.profile, " ", c.user, " ", c.trap, " ", mpi), func(t *testing.T) {
			if os.Geteuid() != 0 {
				c.user = 0
			}
			by := []string{confine, c.profile}
			if c.user == 0 && os.Geteuid() == 0 {
				by = append([]string{"setpriv", "--bounding-set=" + dockerCaps, "--inh-caps=-all", "--"}, by...)
			}
			p := anyPlace(t, mpi, c.user, by...)
			t.Setenv("CKPT_TRAP", c.trap)
			p.cycle("--restart-mode", "lazy", "--log", "info")
			// Root opens the device, which a container would not have.
			if said := string(mustRead(t, p.job.run.Stderr)); c.user != 0 && !strings.Contains(said, "userfaultfd") {
				t.Errorf("it is not said that there is no userfaultfd: %s", said)
			}
			_, said := p.ask(c.user, "doctor")
			for _, row := range []string{"no   userfaultfd", "no   kcmp", "yes  reading memory through /proc", "yes  seccomp filter"} {
				if !strings.Contains(said, row) {
					t.Errorf("ckptctl doctor does not say %q: %s", row, said)
				}
			}
		})
	}
}

// Where a process may not even copy its own memory by the kernel nothing runs, and each command says so.
func TestConfinedTooMuch(t *testing.T) {
	needCommands(t)
	confine := confinement(t)
	for _, c := range []struct {
		argv []string
		exit int
	}{
		{[]string{built.CkptRun(), "--dir", filepath.Join(t.TempDir(), "ckpt"), "--", "true"}, 1},
		{[]string{built.CkptCtl(), "doctor"}, 1},
	} {
		cmd := exec.Command(confine, append([]string{"strict"}, c.argv...)...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != c.exit || !strings.Contains(string(out), "process_vm_readv") ||
			!strings.Contains(string(out), "seccomp profile must allow") {
			t.Errorf("%q: %v: %s", c.argv, err, out)
		}
	}
}

// An MPI job with a limit of its address space: what ckptrun needs beside the program is in docs/limits.md.
func TestLimitedJob(t *testing.T) {
	for _, mpi := range mpis {
		t.Run(mpi, func(t *testing.T) {
			anyPlace(t, mpi, 0, "bash", "-c", `ulimit -v 6291456; exec "$@"`, "limited").cycle()
		})
	}
}

// With vm.overcommit_memory=2 the kernel counts all memory that could be written, and refuses what it could not give. That is a
// setting of the whole machine, so it is changed only when LIBCKPT_SYSCTL=1 says so, for the time of this test, and with a limit
// that no other program reaches. What the kernel counts for a rank, of whose addresses most are only reserved, is little.
func TestStrictMemory(t *testing.T) {
	if os.Getenv("LIBCKPT_SYSCTL") != "1" {
		t.Skip("it changes settings of this machine for others, too: LIBCKPT_SYSCTL=1 allows it")
	}
	needRoot(t)
	set := func(name, value string) {
		t.Helper()
		path := filepath.Join("/proc/sys/vm", name)
		was := strings.TrimSpace(string(mustRead(t, path)))
		must(t, os.WriteFile(path, []byte(value), 0o644))
		t.Cleanup(func() { must(t, os.WriteFile(path, []byte(was), 0o644)) })
	}
	set("overcommit_ratio", "1000")
	set("overcommit_memory", "2")
	for _, mpi := range mpis {
		t.Run(mpi, func(t *testing.T) {
			p := anyPlace(t, mpi, somebody)
			p.cycle()
			_, said := p.ask(somebody, "doctor")
			if !strings.Contains(said, "memory overcommit             2: ") {
				t.Errorf("ckptctl doctor: %s", said)
			}
			must(t, os.RemoveAll(p.job.run.Checkpoints()))
			must(t, os.Remove(p.job.file("GO")))
			must(t, os.Remove(p.job.file("stands")))
			process := p.start(append([]string{"--dir", p.job.run.Checkpoints(), "--"}, p.job.argv...)...)
			p.job.stands(process)
			for _, pid := range p.job.mark.Ranks() {
				if got := counted(t, pid); got == 0 || got > 1<<30 {
					t.Errorf("the kernel counts %d MiB for a rank of a program that needs few", got>>20)
				} else {
					t.Logf("the kernel counts %d MiB", got>>20)
				}
			}
			p.job.letGo()
			p.job.ends(process, 2)
		})
	}
}

// counted is how much memory the kernel counts for a process when it gives no more than it has.
func counted(t *testing.T, pid int) (bytes uint64) {
	t.Helper()
	size := uint64(0)
	for line := range strings.Lines(string(mustRead(t, fmt.Sprintf("/proc/%d/smaps", pid)))) {
		f := strings.Fields(line)
		switch {
		case f[0] == "Size:":
			kilobytes, err := strconv.ParseUint(f[1], 10, 64)
			must(t, err)
			size = kilobytes << 10
		case f[0] == "VmFlags:" && slices.Contains(f, "ac"):
			bytes += size
		}
	}
	return bytes
}

// Yama's ptrace_scope 2 and 3 keep a process from the memory of its children, and so from that of the copy that an image is
// written from. The machine that tests this need not have Yama: what opens such memory is told what Yama says.
func TestNoTracing(t *testing.T) {
	needRoot(t)
	needCommands(t)
	run, err := NewRun(t.TempDir())
	must(t, err)
	mark := NewMark()
	defer mark.KillAll()
	var refused atomic.Int32
	field, err := disturb.Listen(string(mark), func(p *disturb.Process) {
		p.Set(&disturb.Trap{Want: func(c *disturb.Call) bool {
			name := c.Text()
			return c.Name == "openat" && strings.Contains(name, "/mem") && strings.Contains(name, "/proc/") && !strings.Contains(name, "/proc/self/")
		}, Act: func(*disturb.Process, *disturb.Call) error { refused.Add(1); return unix.EACCES }})
	})
	must(t, err)
	defer field.Close()
	self, err := os.Executable()
	must(t, err)
	for _, mode := range []string{"cow", "stop"} {
		t.Run(mode, func(t *testing.T) {
			p, err := Start(Command{Argv: []string{self, built.CkptRun(), "--dir", run.Checkpoints(), "--snapshot", mode, "--", "python3", "-c", "import time; much = b'x' * (64 << 20); print('ready', flush=True); time.sleep(10000)"},
				Dir: run.Work(), Env: []string{field.Variable()}, Mark: mark, Stdout: run.Stdout, Stderr: run.Stderr})
			must(t, err)
			if !Poll(patience, p.Done(), func() bool { return strings.Contains(string(mustRead(t, run.Stdout)), "ready") }) {
				t.Fatalf("it does not begin: %s", mustRead(t, run.Stderr))
			}
			must(t, os.Truncate(run.Stdout, 0))
			asked, err := NewRun(t.TempDir())
			must(t, err)
			must(t, asked.Once(checkpointLimit, built.CkptCtl(), "checkpoint", run.Checkpoints(), "--timeout", checkpointLimit.String()))
			said := string(mustRead(t, asked.Stderr))
			switch mode {
			case "cow":
				if asked.Exit.Code != 1 || !strings.Contains(said, "ptrace_scope") || !strings.Contains(said, "--snapshot stop") || refused.Load() == 0 {
					t.Errorf("%v, refused %d times: %s\n%s", asked.Exit, refused.Load(), said, mustRead(t, run.Stderr))
				}
			case "stop":
				if asked.Exit != (Exit{}) {
					t.Errorf("%v: %s", asked.Exit, said)
				}
			}
			if p.Ended() {
				t.Errorf("the program has ended: %s", mustRead(t, run.Stderr))
			}
			p.Kill()
		})
	}
}
