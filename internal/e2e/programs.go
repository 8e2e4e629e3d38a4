// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Program is one of the programs that are run.
type Program struct {
	Name string
	// Argv is the command. $BIN is the folder of built programs, $SRC that of the sources, $DIR a fresh
	// folder of the run, $N the amount of work, $DATA a big deterministic file.
	Argv []string
	// Long takes 2 to 6 seconds on a small machine, Short well below one; what is in between suits another machine (work).
	Long, Short int
	// Cycles weighs how many cycles the program gets; 0: as many as any other.
	Cycles int
}

// Programs is the set.
var Programs = []Program{
	{Name: "pipes", Argv: []string{"/bin/bash", "$SRC/pipes.sh", "$N"}, Long: 20, Short: 3},
	{Name: "jobs", Argv: []string{"/bin/bash", "$SRC/jobs.sh", "$N"}, Long: 30, Short: 4},
	{Name: "python", Argv: []string{"/usr/bin/python3", "$SRC/threads.py", "$N"}, Long: 160, Short: 10},
	{Name: "exceptions", Argv: []string{"$BIN/exceptions", "$N"}, Long: 1500, Short: 200},
	{Name: "cancel", Argv: []string{"$BIN/cancel", "$N"}, Long: 300, Short: 30},
	{Name: "jump", Argv: []string{"$BIN/jump", "$N"}, Long: 80000, Short: 4000},
	{Name: "spawn", Argv: []string{"$BIN/spawn", "$N"}, Long: 16, Short: 3},
	{Name: "nonpie", Argv: []string{"$BIN/nonpie", "$N"}, Long: 8000, Short: 800},
	{Name: "gzip", Argv: []string{"gzip", "-c", "-4", "$DATA"}, Long: 100 << 20, Short: 10 << 20},
	{Name: "sort", Argv: []string{"sort", "--parallel=2", "-S", "24M", "-T", "$DIR", "$DATA"}, Long: 100 << 20, Short: 10 << 20},
	{Name: "sync", Argv: []string{"$BIN/sync", "$N"}, Long: 5000, Short: 400},
	{Name: "signals", Argv: []string{"$BIN/signals", "$N"}, Long: 800, Short: 50},
	{Name: "memory", Argv: []string{"$BIN/memory", "$N"}, Long: 3000, Short: 300},
	{Name: "recursion", Argv: []string{"$BIN/recursion", "$N"}, Long: 900, Short: 20},
	{Name: "openfiles", Argv: []string{"$BIN/openfiles", "$N", "$DIR"}, Long: 2000, Short: 150},
	{Name: "identity", Argv: []string{"$BIN/identity", "$N"}, Long: 3000, Short: 300},
	{Name: "robust", Argv: []string{"$BIN/robust", "$N"}, Long: 400, Short: 20},
	{Name: "inherit", Argv: []string{"$BIN/inherit", "$N"}, Long: 3000, Short: 200},
	{Name: "settings", Argv: []string{"$BIN/settings", "$N"}, Long: 300, Short: 20},
	{Name: "limited", Argv: []string{"$BIN/limited", "$N"}, Long: 800, Short: 80},
	{Name: "sparse", Argv: []string{"$BIN/sparse", "$N", "$DIR"}, Long: 2500, Short: 200},
	{Name: "table", Argv: []string{"$BIN/table", "$N", "$DIR"}, Long: 1500, Short: 150},
	{Name: "diary", Argv: []string{"$BIN/diary", "$N", "$DIR"}, Long: 800, Short: 80},
	{Name: "rewriter", Argv: []string{"$BIN/rewriter", "$N", "$DIR"}, Long: 4000, Short: 400},
	{Name: "habits", Argv: []string{"/usr/bin/python3", "$SRC/habits.py", "$N", "$DIR"}, Long: 250, Short: 25},
	{Name: "maker", Argv: []string{"$BIN/maker", "$N", "$DIR"}, Long: 600, Short: 60},
	{Name: "broken", Argv: []string{"$BIN/broken", "$N"}, Long: 250, Short: 20},
	{Name: "realtime", Argv: []string{"$BIN/realtime", "$N"}, Long: 6000, Short: 500, Cycles: 2},
	{Name: "threadlocal", Argv: []string{"$BIN/threadlocal", "$N"}, Long: 50, Short: 5},
	{Name: "timers", Argv: []string{"$BIN/timers", "$N"}, Long: 200, Short: 30},
	{Name: "clocks", Argv: []string{"$BIN/clocks", "$N"}, Long: 300, Short: 30},
	{Name: "spent", Argv: []string{"$BIN/spent", "$N"}, Long: 100, Short: 16},
	{Name: "exit-3", Argv: []string{"$BIN/ending", "$N", "3"}, Long: 200, Short: 10, Cycles: 1},
	{Name: "exit-now", Argv: []string{"$BIN/ending", "$N", "now"}, Long: 200, Short: 10, Cycles: 1},
	{Name: "exit-in-thread", Argv: []string{"$BIN/ending", "$N", "thread"}, Long: 200, Short: 10, Cycles: 1},
	{Name: "exit-main-gone", Argv: []string{"$BIN/ending", "$N", "main-gone"}, Long: 200, Short: 10, Cycles: 1},
	{Name: "abort", Argv: []string{"$BIN/ending", "$N", "abort"}, Long: 200, Short: 10, Cycles: 1},
	{Name: "sigterm", Argv: []string{"$BIN/ending", "$N", "term"}, Long: 200, Short: 10, Cycles: 1},
	{Name: "sigkill", Argv: []string{"$BIN/ending", "$N", "kill"}, Long: 200, Short: 10, Cycles: 1},
	{Name: "sigsegv", Argv: []string{"$BIN/ending", "$N", "segv"}, Long: 200, Short: 10, Cycles: 1},
	{Name: "sigfpe", Argv: []string{"$BIN/ending", "$N", "fpe"}, Long: 200, Short: 10, Cycles: 1},
	{Name: "sigpipe", Argv: []string{"$BIN/ending", "$N", "pipe"}, Long: 200, Short: 10, Cycles: 1},
	{Name: "sigalrm", Argv: []string{"$BIN/ending", "$N", "alarm"}, Long: 100, Short: 10, Cycles: 1},
}

// Built is where the programs are.
type Built struct {
	Bin, Src, Root string // built programs, their sources, top of the repository
	Data           map[int]string
}

// CkptRun and CkptCtl are the commands under test.
func (b *Built) CkptRun() string {
	if os.Getenv("CKPT_FAULT") != "" || os.Getenv("CKPT_DEBUG") != "" { // only a tree for tests heeds them
		return filepath.Join(b.Root, "build/obj/faults/bin/ckptrun")
	}
	return filepath.Join(b.Root, "build/bin/ckptrun")
}

// CkptCtl is the operator's command.
func (b *Built) CkptCtl() string { return filepath.Join(b.Root, "build/bin/ckptctl") }

// Command fills in the program's command. work is the amount of it.
func (b *Built) Command(p Program, work int, dir string) ([]string, error) {
	data := ""
	for _, a := range p.Argv {
		if a == "$DATA" {
			var err error
			if data, err = b.data(work); err != nil {
				return nil, err
			}
		}
	}
	fill := strings.NewReplacer("$BIN", b.Bin, "$SRC", b.Src, "$DIR", dir, "$DATA", data, "$N", strconv.Itoa(work))
	argv := make([]string, len(p.Argv))
	for i, a := range p.Argv {
		argv[i] = fill.Replace(a)
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, err
	}
	argv[0] = path
	return argv, nil
}

// data makes a file of about the given size: lines of words and numbers, the same every time.
func (b *Built) data(bytes int) (string, error) {
	if path, ok := b.Data[bytes]; ok {
		return path, nil
	}
	path := filepath.Join(b.Bin, fmt.Sprintf("data-%d", bytes))
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	random := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("ring lattice epoch quiet marble harbour kernel vector copper meadow signal lantern")
	for written := 0; written < bytes; {
		n, err := fmt.Fprintf(w, "%08x %s %s %d\n", random.Uint32(), words[random.IntN(len(words))],
			words[random.IntN(len(words))], random.IntN(1e6))
		if err != nil {
			return "", err
		}
		written += n
	}
	if err := w.Flush(); err != nil {
		return "", err
	}
	b.Data[bytes] = path
	return path, nil
}

// here says where everything is when the programs are in dir.
func here(dir string) (*Built, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return nil, fmt.Errorf("where this package lies is not known")
	}
	own := filepath.Dir(file)
	return &Built{Bin: dir, Src: filepath.Join(own, "programs"), Root: filepath.Dir(filepath.Dir(own)), Data: map[int]string{}}, nil
}

// Build compiles the programs into dir.
func Build(ctx context.Context, dir string) (*Built, error) {
	b, err := here(dir)
	if err != nil {
		return nil, err
	}
	c := []string{"gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"}
	join := func(parts ...[]string) []string {
		var all []string
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	var commands [][]string
	for _, name := range strings.Fields("sync rewriter signals memory recursion jump cancel spawn openfiles threadlocal ending clocks spent timers interrupted timeouts flood ledger nowait robust inherit settings badaddress realtime streams visitors hidden segments mailboxes calendar naps limited broken sparse table maker huge diary") {
		commands = append(commands, join(c, []string{"-o", name, b.Src + "/" + name + ".c", "-lm"}))
	}
	commands = append(commands,
		join(c, []string{"-no-pie", "-o", "nonpie", b.Src + "/nonpie.c"}),
		join(c, []string{"-static", "-o", "static", b.Src + "/ending.c"}),
		join(c, []string{"-fPIC", "-shared", "-DSTEP=origin_step", "-o", "liborigin.so", b.Src + "/identity_lib.c"}),
		join(c, []string{"-fPIC", "-shared", "-DSTEP=loaded_step", "-o", "libloaded.so", b.Src + "/identity_lib.c"}),
		join(c, []string{"-o", "identity", b.Src + "/identity.c", "-L.", "-lorigin", "-Wl,-rpath,$ORIGIN", "-ldl"}),
		[]string{"g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", "exceptions", b.Src + "/exceptions.cc"},
	)
	for _, argv := range commands {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
		}
	}
	return b, nil
}
