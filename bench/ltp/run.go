// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
)

// program is a line of a list: its name, and what a shell would run.
type program struct{ name, command string }

// list reads runtest/NAME of an installed suite.
func list(root, name string) ([]program, error) {
	f, err := os.Open(filepath.Join(root, "runtest", name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []program
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, command, ok := strings.Cut(strings.ReplaceAll(line, "\t", " "), " ")
		if !ok {
			return nil, fmt.Errorf("%s: %q has no command", f.Name(), line)
		}
		all = append(all, program{name, strings.TrimSpace(command)})
	}
	return all, lines.Err()
}

// result is how a program ended in both ways.
type result struct {
	List   string `json:"list"`
	Native string `json:"native"` // status and what it counted
	Ours   string `json:"ours,omitempty"`
	Said   string `json:"said,omitempty"` // of what differs: the lines that only one of the runs has
	Saved  saved  `json:"saved,omitzero"` // with -saved
}

type runner struct {
	root    string // of the installed suite
	ckptrun string
	ckptctl string
	work    string
	limit   time.Duration
	save    bool // what ends alike is run again, and saved meanwhile
}

// argv is a program's command, without a shell where none is needed; nil if it is not built.
func (r *runner) argv(p program) []string {
	if strings.ContainsAny(p.command, "|&;<>()$`\\\"'*?[#~=%") {
		return []string{"/bin/sh", "-c", p.command}
	}
	argv := strings.Fields(p.command)
	path := filepath.Join(r.root, "testcases/bin", argv[0])
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath(argv[0]); err != nil {
			return nil
		}
	}
	argv[0] = path
	return argv
}

// trial is a program that runs in a folder of its own.
type trial struct {
	r       *runner
	dir     string
	mark    e2e.Mark
	process *e2e.Process
}

// begin starts a process in a new folder, which end removes.
func (r *runner) begin(argv []string) (*trial, error) {
	dir, err := os.MkdirTemp(r.work, "run-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o777); err != nil { // some give up their rights
		return nil, err
	}
	t := &trial{r: r, dir: dir, mark: e2e.NewMark()}
	if err := t.start(argv); err != nil {
		t.end()
		return nil, err
	}
	return t, nil
}

func (t *trial) end() {
	t.mark.KillAll()
	os.RemoveAll(t.dir)
}

// start starts a process whose words may name the folder, as $DIR.
func (t *trial) start(argv []string) error {
	argv = slices.Clone(argv)
	for i, word := range argv {
		argv[i] = strings.ReplaceAll(word, "$DIR", t.dir)
	}
	out := filepath.Join(t.dir, "said")
	var err error
	t.process, err = e2e.Start(e2e.Command{Argv: argv, Dir: t.dir, Mark: t.mark, Stdout: out, Stderr: out, Env: []string{
		"TMPDIR=" + t.dir, "LTPROOT=" + t.r.root, "PATH=" + filepath.Join(t.r.root, "testcases/bin") + ":" + os.Getenv("PATH"), "LTP_COLORIZE_OUTPUT=n"}})
	return err
}

// outcome waits for the end; what was printed is in the order in which it was.
func (t *trial) outcome(limit time.Duration) (outcome, said string, err error) {
	exit, err := t.process.Wait(limit)
	text, readErr := os.ReadFile(filepath.Join(t.dir, "said"))
	if readErr != nil {
		return "", "", readErr
	}
	if hang := (*e2e.HangError)(nil); errors.As(err, &hang) {
		return "hangs", string(text), nil
	}
	if err != nil {
		return "", "", err
	}
	outcome = fmt.Sprint(exit)
	if n := counted.FindAllStringSubmatch(string(text), -1); len(n) > 0 {
		for _, m := range n[max(0, len(n)-5):] {
			outcome += ", " + m[2] + " " + m[1]
		}
	}
	return outcome, string(text), nil
}

// once runs it from its start to its end.
func (r *runner) once(argv []string, limit time.Duration) (outcome, said string, err error) {
	t, err := r.begin(argv)
	if err != nil {
		return "", "", err
	}
	defer t.end()
	return t.outcome(limit)
}

// counted is the end of what a program prints.
var counted = regexp.MustCompile(`(?m)^(passed|failed|broken|skipped|warnings) +(\d+)$`)

// run runs a program in both ways, twice if they differ: some end by chance.
func (r *runner) run(p program) (res result, built bool, err error) {
	argv := r.argv(p)
	if argv == nil {
		return res, false, nil
	}
	for range 2 {
		var native, ours string
		begun := time.Now()
		if res.Native, native, err = r.once(argv, r.limit); err != nil {
			return res, true, err
		}
		if res.Native == "hangs" {
			return res, true, nil
		}
		took := time.Since(begun)
		if res.Ours, ours, err = r.once(append([]string{r.ckptrun, "--dir", "$DIR/ckpt", "--"}, argv...), 3*r.limit); err != nil {
			return res, true, err
		}
		if res.Ours == res.Native {
			res.Said = ""
			if r.save {
				res.Saved, err = r.saved(argv, res.Native, took)
			}
			return res, true, err
		}
		res.Said = differing(native, ours)
	}
	return res, true, nil
}

// varying is what lines of two runs may have of their own.
var varying = regexp.MustCompile(`0x[0-9a-f]+|/\S*/run-\d+|/tmp/\S+|\d+`)

// differing is the end of what ours says that native does not.
func differing(native, ours string) string {
	blank := func(line string) string { return varying.ReplaceAllString(strings.TrimSpace(line), "N") }
	seen := map[string]bool{}
	for line := range strings.Lines(native) {
		seen[blank(line)] = true
	}
	var lines []string
	for line := range strings.Lines(ours) {
		if b := blank(line); b != "" && !seen[b] && !counted.MatchString(strings.TrimSpace(line)) && !strings.Contains(line, "TINFO") {
			seen[b] = true
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	text := strings.ToValidUTF8(strings.Join(lines[:min(3, len(lines))], " / "), "?")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "..."
	}
	return text
}
