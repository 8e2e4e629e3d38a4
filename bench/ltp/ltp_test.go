// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/libckpt/libckpt/bench/known"
)

// suite installs programs of a few lines and a list of them.
func suite(t *testing.T, list string, programs map[string]string) *runner {
	t.Helper()
	r := &runner{root: t.TempDir(), work: t.TempDir(), limit: 10 * time.Second}
	for _, dir := range []string{"runtest", "testcases/bin"} {
		if err := os.MkdirAll(filepath.Join(r.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.root, "runtest/some"), []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(r.root, "testcases/bin", name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// TestOutcomes: programs that end alike, otherwise, and not at all, below something that changes what one of them sees.
func TestOutcomes(t *testing.T) {
	r := suite(t, "#DESCRIPTION:some\nalike\talike -x\n\nother other\nsleeps sleeps\nshell  alike && echo done | cat\nabsent absent\n", map[string]string{
		"alike":  "echo 'passed   2'; echo 'failed   0'; [ \"$1\" = -x ] || [ $# = 0 ]",
		"other":  "[ -z \"$OURS\" ] && exit 0; echo 'other.c:5: TFAIL: at 0x5 | no'; echo 'other.c:6: TINFO: none'; exit 1",
		"sleeps": "sleep 1000",
	})
	r.ckptrun = filepath.Join(r.root, "testcases/bin/ours")
	if err := os.WriteFile(r.ckptrun, []byte("#!/bin/sh\nshift 3\nOURS=1 exec \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	programs, err := list(r.root, "some")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]result{}
	unbuilt := []string{}
	for _, p := range programs {
		if p.name == "sleeps" {
			r.limit = 100 * time.Millisecond
		} else {
			r.limit = 10 * time.Second
		}
		res, built, err := r.run(p)
		if err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		if !built {
			unbuilt = append(unbuilt, p.name)
			continue
		}
		res.List = "some"
		all[p.name] = res
	}
	want := map[string]result{
		"alike":  {List: "some", Native: "exit status 0, 2 passed, 0 failed", Ours: "exit status 0, 2 passed, 0 failed"},
		"other":  {List: "some", Native: "exit status 0", Ours: "exit status 1", Said: "other.c:5: TFAIL: at 0x5 | no"},
		"sleeps": {List: "some", Native: "hangs"},
		"shell":  {List: "some", Native: "exit status 0, 2 passed, 0 failed", Ours: "exit status 0, 2 passed, 0 failed"},
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"absent"}, unbuilt); diff != "" {
		t.Error(diff)
	}
	file := filepath.Join(t.TempDir(), "reasons")
	if err := os.WriteFile(file, []byte("oth*: the moon\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	reasons, err := known.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	text := table(all, reasons, "Head.")
	for _, line := range []string{
		"| ends natively and under ckptrun alike | 2 | 2 |",
		"| takes too long natively | 1 | 1 |",
		"| other | exit status 0 | exit status 1 | the moon | other.c:5: TFAIL: at 0x5 \\| no |",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the table has no line %q:\n%s", line, text)
		}
	}
}

// TestSaved: what is saved while it runs and ends alike, what is refused, what ends before, and what a restart changes.
func TestSaved(t *testing.T) {
	r := suite(t, "", map[string]string{"waits": "sleep 0.5; exit 3", "quick": "exit 3"})
	r.ckptrun, r.ckptctl = filepath.Join(r.root, "testcases/bin/ours"), filepath.Join(r.root, "testcases/bin/ctl")
	for path, script := range map[string]string{
		r.ckptrun: `if [ "$1" = --restart ]; then exit $(cat "$2/restarted"); fi
mkdir "$2"; echo $$ >"$2/pid"; if [ -n "$STATUS" ]; then : >"$2/job.json"; fi; echo $STATUS >"$2/restarted"; shift 3; exec "$@"`,
		r.ckptctl: `if [ -n "$REFUSE" ]; then echo "refused:
  - child process 17 is not finished
  - more" >&2; exit 1; fi
if [ "$4" = kill ]; then kill -9 $(cat "$2/pid"); fi`,
	} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, program, status, refuse string
		want                          saved
		otherwise                     bool
	}{
		{name: "alike", program: "waits", status: "3", want: saved{Continued: "exit status 3", Restarted: "exit status 3"}},
		{name: "otherwise", program: "waits", status: "4", want: saved{Continued: "exit status 3", Restarted: "exit status 4"}, otherwise: true},
		{name: "refused", program: "waits", status: "3", refuse: "1", want: saved{Continued: "refused: child process N is not finished", Restarted: "refused: child process N is not finished"}},
		{name: "early", program: "quick", want: saved{Continued: early, Restarted: early}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("STATUS", c.status)
			t.Setenv("REFUSE", c.refuse)
			got, err := r.saved([]string{filepath.Join(r.root, "testcases/bin", c.program)}, "exit status 3", 100*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if got.otherwise("exit status 3") != c.otherwise {
				t.Errorf("otherwise: %v", !c.otherwise)
			}
		})
	}
}
