// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/drain"
	"github.com/libckpt/libckpt/internal/probe"
)

// ctl runs the command.
func ctl(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	status = run(t.Context(), args, &out, &errOut)
	return status, out.String(), errOut.String()
}

// ctlJSON runs the command with --json and decodes what it prints.
func ctlJSON(t *testing.T, v any, want int, args ...string) {
	t.Helper()
	status, out, errOut := ctl(t, append(args, "--json")...)
	if status != want {
		t.Fatalf("%v: exit status %d, want %d; stderr: %s", args, status, want, errOut)
	}
	if err := json.Unmarshal([]byte(out), v); err != nil {
		t.Fatalf("%v: %v in %q", args, err, out)
	}
}

const testPages = 8

// makeEpoch commits an epoch of two ranks; changed of its pages differ from one epoch to the next.
func makeEpoch(t *testing.T, s *store.Store, epoch, changed int, cost time.Duration) {
	t.Helper()
	if err := s.Begin(epoch); err != nil {
		t.Fatal(err)
	}
	m := &store.Manifest{Libckpt: "1.2.3", Ranks: 2, Program: "./heat", Args: []string{"heat.txt"},
		MPI: store.MPI{Name: "mpich", Version: "4.0.2", ABI: "mpich"}, Hosts: []string{"node7"},
		TotalSeconds: cost.Seconds(), StopSeconds: cost.Seconds() / 10}
	for rank := range 2 {
		data := bytes.Repeat([]byte{byte(rank + 1)}, testPages*image.PageSize)
		for i := range changed {
			data[i*image.PageSize] = byte(100 + epoch)
		}
		sum, err := image.Write(t.Context(), s.ImagePath(epoch, rank), image.Input{
			Meta:     testMeta(t, ckpt.Meta{Version: 1, Epoch: epoch, Rank: rank, Ranks: 2, MPI: m.MPI, Program: "./heat", Dir: "/"}),
			Sections: testSections(t),
			Regions: []image.Region{{Start: 0x100040000000, End: 0x100040000000 + uint64(len(data)), Prot: 3,
				Flags: image.FlagAnonymous, Name: "[heap]", Copied: image.CopiedAt(0x100040000000, data)}},
		}, image.Options{Compress: image.CompressSnappy, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		m.Images = append(m.Images, store.Image{Rank: rank, File: store.ImageName(rank), Bytes: sum.Bytes,
			Digest: sum.Digest.String(), Payload: sum.PayloadBytes, Host: "node7"})
	}
	if err := s.Commit(epoch, m, nil); err != nil {
		t.Fatal(err)
	}
}

func testMeta(t *testing.T, m ckpt.Meta) []byte {
	t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// testSections are those of a rank without open files and messages.
func testSections(t *testing.T) []image.Section {
	t.Helper()
	open, err := (&files.Table{}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	messages := (&drain.Section{}).Append(nil)
	return []image.Section{{Name: "threads", Data: []byte("one")}, {Name: "files", Data: open},
		{Name: "messages", Data: messages}, {Name: "objects"}, {Name: "runtime"}}
}

// testStore has epochs 1 and 2 committed and 3 incomplete, and what ranks of a killed job left that met there.
func testStore(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Create(filepath.Join(t.TempDir(), "ckpt"))
	if err != nil {
		t.Fatal(err)
	}
	makeEpoch(t, s, 1, 3, 2*time.Second)
	makeEpoch(t, s, 2, 3, 4*time.Second)
	if err := s.Begin(3); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".meet", ".meet.17.tmp"} {
		if err := os.WriteFile(filepath.Join(s.Dir(), name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestLs(t *testing.T) {
	s := testStore(t)
	var list epochList
	ctlJSON(t, &list, exitOK, "ls", s.Dir())
	var states []string
	for _, e := range list.Epochs {
		states = append(states, e.State)
	}
	if !slices.Equal(states, []string{stateCommitted, stateCommitted, stateIncomplete}) {
		t.Errorf("states %v", states)
	}
	if e := list.Epochs[1]; e.Ranks != 2 || e.MPI != "mpich 4.0.2" || e.Payload != 2*testPages*image.PageSize {
		t.Errorf("epoch 2: %+v", e)
	}
	status, out, _ := ctl(t, "ls", s.Dir()+"@2")
	if status != exitOK || !strings.Contains(out, "committed") || strings.Contains(out, "incomplete") {
		t.Errorf("ls of one epoch: %d, %s", status, out)
	}
	if status, out, _ := ctl(t, "ls", s.Dir()+"@3"); status != exitNone || !strings.Contains(out, "incomplete") {
		t.Errorf("ls of an incomplete epoch: %d, %s", status, out)
	}
	var none epochList
	ctlJSON(t, &none, exitNone, "ls", t.TempDir())
	if none.Epochs == nil || len(none.Epochs) != 0 {
		t.Errorf("an empty directory: %+v", none)
	}
}

func TestVerify(t *testing.T) {
	s := testStore(t)
	status, out, _ := ctl(t, "verify", s.Dir())
	if status != exitOK || !strings.Contains(out, "2 images") || !strings.Contains(out, "epoch-000002") {
		t.Errorf("sound: %d, %s", status, out)
	}
	path := s.ImagePath(2, 1)
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := image.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	at := f.Chunks()[0].Offset
	_ = f.Close()
	p[at] ^= 1
	if err := os.WriteFile(path, p, 0o600); err != nil {
		t.Fatal(err)
	}
	var r verifyReport
	ctlJSON(t, &r, exitFailed, "verify", s.Dir())
	if r.Damaged != 1 || !r.Images[0].OK || r.Images[1].OK || !strings.HasPrefix(r.Images[1].Section, "pages 0x1000") ||
		r.Images[1].Offset != at {
		t.Errorf("damaged: %+v", r)
	}
	status, out, errOut := ctl(t, "verify", s.Dir())
	if status != exitFailed || !strings.Contains(out, "DAMAGED: "+path) || !strings.Contains(errOut, "1 of 2") {
		t.Errorf("damaged: %d, %s, %s", status, out, errOut)
	}
	for _, args := range [][]string{{s.Dir(), "--quick"}, {s.Dir() + "@1"}, {s.ImagePath(2, 0)}} {
		if status, _, errOut := ctl(t, append([]string{"verify"}, args...)...); status != exitOK {
			t.Errorf("verify %v: %d, %s", args, status, errOut)
		}
	}
	if status, _, _ := ctl(t, "verify", path); status != exitFailed {
		t.Errorf("verify of the damaged file: %d", status)
	}
}

func TestInspect(t *testing.T) {
	s := testStore(t)
	var r inspectReport
	ctlJSON(t, &r, exitOK, "inspect", s.Dir(), "--all")
	if r.Manifest.Epoch != 2 || len(r.Images) != 2 {
		t.Fatalf("%+v", r)
	}
	im := r.Images[1]
	if im.Payload != testPages*image.PageSize || im.Stored == 0 || im.Stored >= im.Payload || im.Chunks["snappy"] != 1 ||
		len(im.Regions) != 1 || im.Regions[0].Prot != "rw-" || im.Regions[0].Name != "[heap]" {
		t.Errorf("%+v", im)
	}
	status, out, _ := ctl(t, "inspect", s.Dir()+"@1", "--rank", "1")
	for _, want := range []string{"./heat heat.txt", "node7", "mpich 4.0.2", "[heap]", "rw-", `"umask"`, "regions", "rank-00001.ckpt\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
	if status != exitOK {
		t.Errorf("exit status %d", status)
	}
	if status, out, _ := ctl(t, "inspect", s.ImagePath(1, 0)); status != exitOK || !strings.Contains(out, "[heap]") {
		t.Errorf("a file: %d, %s", status, out)
	}
	if status, _, _ := ctl(t, "inspect", s.Dir(), "--rank", "2"); status != exitUsage {
		t.Errorf("rank 2 of 2: %d", status)
	}
}

func TestDiff(t *testing.T) {
	s := testStore(t)
	var r diffReport
	ctlJSON(t, &r, exitOK, "diff", s.Dir())
	if len(r.Ranks) != 2 || r.Ranks[0].Changed != 3*image.PageSize || r.Ranks[0].Same != (testPages-3)*image.PageSize {
		t.Errorf("%+v", r)
	}
	if status, out, _ := ctl(t, "diff", s.Dir()+"@1", s.Dir()+"@2"); status != exitOK || !strings.Contains(out, "37.5%") {
		t.Errorf("%d, %s", status, out)
	}
	if status, _, _ := ctl(t, "diff", s.Dir()+"@1"); status != exitNone {
		t.Errorf("nothing before epoch 1: %d", status)
	}
}

func TestGC(t *testing.T) {
	s := testStore(t)
	var r gcReport
	ctlJSON(t, &r, exitOK, "gc", s.Dir(), "--keep", "1", "--dry-run")
	if !slices.Equal(r.Removed, []int{1}) || !slices.Equal(r.Kept, []int{2, 3}) {
		t.Errorf("dry run: %+v", r)
	}
	for dry, want := range map[string]string{"--dry-run=true": ": would remove 1 epoch and keep 2 epochs\n", "--dry-run=true --keep=9": ": would remove no epoch and keep "} {
		if _, out, _ := ctl(t, append([]string{"gc", s.Dir(), "--keep", "1"}, strings.Fields(dry)...)...); !strings.Contains(out, want) {
			t.Errorf("%s: want %q: %s", dry, want, out)
		}
	}
	if n, err := s.Manifest(1); err != nil {
		t.Errorf("a dry run removed epoch 1: %v, %v", n, err)
	}
	if status, _, _ := ctl(t, "gc", s.Dir()+"@2"); status != exitFailed {
		t.Errorf("the newest epoch: %d", status)
	}
	t.Setenv("CKPT_KEEP", "1")
	ctlJSON(t, &r, exitOK, "gc", s.Dir())
	if !slices.Equal(r.Removed, []int{1}) || !slices.Equal(r.Kept, []int{2, 3}) {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(filepath.Join(s.Dir(), ".meet")); err != nil {
		t.Errorf("gc removes epochs only: %v", err)
	}
	for _, args := range [][]string{{"--keep", "0"}, {"--keep", "x"}} {
		if status, _, _ := ctl(t, append([]string{"gc", s.Dir()}, args...)...); status != exitUsage {
			t.Errorf("gc %v: %d", args, status)
		}
	}
}

func TestPlan(t *testing.T) {
	s := testStore(t)
	var r planReport
	ctlJSON(t, &r, exitOK, "plan", s.Dir(), "--overhead", "5%")
	if r.Cost != 4 || r.Stop != 0.4 || r.Overhead.Period != 80 || r.Interval != "1m20s" {
		t.Errorf("%+v", r)
	}
	r = planReport{}
	ctlJSON(t, &r, exitOK, "plan", "--cost", "5m", "--mtbf", "1d")
	if r.Young.Period != 7500 || r.Daly.Period < 7300 || r.Daly.Period > 7302 || r.Overhead != nil {
		t.Errorf("%+v", r)
	}
	if _, out, _ := ctl(t, "plan", s.Dir(), "--mtbf", "12h"); !strings.Contains(out, "ckptrun --interval") ||
		!strings.Contains(out, "median of 2 epochs") {
		t.Errorf("%s", out)
	}
	for _, c := range []struct {
		want int
		args []string
	}{
		{exitUsage, []string{"plan"}},
		{exitUsage, []string{"plan", "--mtbf", "12h"}},
		{exitUsage, []string{"plan", "--cost", "1s", "--mtbf", "soon"}},
		{exitUsage, []string{"plan", "--cost", "1s", "--mtbf", "-5s"}},
		{exitUsage, []string{"plan", "--cost", "1s", "--overhead", "100%"}},
		{exitUsage, []string{"plan", "--cost", "NaN", "--overhead", "NaN"}},
		{exitNone, []string{"plan", t.TempDir(), "--mtbf", "1h"}},
		{exitFailed, []string{"plan", filepath.Join(t.TempDir(), "gone"), "--mtbf", "1h"}},
	} {
		if status, _, errOut := ctl(t, c.args...); status != c.want {
			t.Errorf("%v: %d, want %d; %s", c.args, status, c.want, errOut)
		}
	}
}

func TestDoctor(t *testing.T) {
	status, out, errOut := ctl(t, "doctor")
	if len(strings.Split(out, "\n")) < len(probe.All()) {
		t.Errorf("%d probes, but it says only:\n%s", len(probe.All()), out)
	}
	var results []probe.Result
	ctlJSON(t, &results, status, "doctor")
	if (judge(results) == nil) != (status == exitOK) {
		t.Errorf("exit status %d, %s", status, errOut)
	}
	names := map[string]bool{}
	for _, p := range probe.All() {
		names[p.Name] = true
	}
	if !names[probeSeccomp] || !names[probeSUD] {
		t.Error("the probes that judge looks for have other names")
	}
}

func TestJudge(t *testing.T) {
	no := func(name string, needed bool) probe.Result {
		return probe.Result{Name: name, Outcome: probe.No, Needed: needed}
	}
	for _, c := range []struct {
		what string
		list []probe.Result
		ok   bool
	}{
		{"nice to have", []probe.Result{no("x", false)}, true},
		{"needed", []probe.Result{no("x", true)}, false},
		{"one trap", []probe.Result{no(probeSeccomp, false)}, true},
		{"no trap", []probe.Result{no(probeSeccomp, false), no(probeSUD, false)}, false},
		{"not found out", []probe.Result{{Name: "x", Outcome: probe.Unknown, Needed: true}}, true},
	} {
		if err := judge(c.list); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func TestUsage(t *testing.T) {
	s := testStore(t)
	for _, c := range []struct {
		want int
		args []string
	}{
		{exitUsage, []string{"nonsense"}},
		{exitUsage, []string{"ls"}},
		{exitUsage, []string{"ls", "a", "b"}},
		{exitUsage, []string{"ls", "--nonsense", s.Dir()}},
		{exitUsage, []string{"ls", s.Dir() + "@x"}},
		{exitUsage, []string{"verify", s.Dir() + "@0"}},
		{exitNone, []string{"verify", s.Dir() + "@3"}},
		{exitNone, []string{"inspect", s.Dir() + "@77"}},
		{exitNone, []string{"diff", t.TempDir()}},
		{exitFailed, []string{"inspect", "/nowhere/at/all"}},
		{exitOK, []string{"--help"}},
		{exitOK, nil},
	} {
		status, _, errOut := ctl(t, c.args...)
		if status != c.want {
			t.Errorf("%v: exit status %d, want %d; %s", c.args, status, c.want, errOut)
		}
		if (status != exitOK) != strings.HasPrefix(errOut, "ckptctl: ") {
			t.Errorf("%v: exit status %d and stderr %q", c.args, status, errOut)
		}
	}
}

// TestHelp: every subcommand teaches with an example, and those that report to programs have --json.
func TestHelp(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Runnable() && !c.Hidden && c.Name() != "help" {
			if c.Short == "" || c.Long == "" || !strings.Contains(c.Example, c.CommandPath()) {
				t.Errorf("%s: wants a short and a long text and an example", c.CommandPath())
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	root := newRoot()
	walk(root)
	for _, name := range []string{"ls", "inspect", "verify", "diff", "gc", "plan", "doctor"} {
		c, _, err := root.Find([]string{name})
		if err != nil || c.Flags().Lookup("json") == nil {
			t.Errorf("%s: has no --json, %v", name, err)
		}
	}
}

// TestTasks: an epoch of processes with several ranks shows both numbers, and which rank is where.
func TestTasks(t *testing.T) {
	m := &store.Manifest{Epoch: 4, Ranks: 5, Processes: 2, Program: "./heat", MPI: store.MPI{Name: "tmpi", ABI: "whole"}, Hosts: []string{"node7"},
		Images: []store.Image{{Rank: 0, Tasks: []int{0, 1, 2}, File: "rank-00000.ckpt"}, {Rank: 1, Tasks: []int{4, 3}, File: "rank-00001.ckpt"}}}
	var out bytes.Buffer
	if err := (&inspectReport{Manifest: m}).print(&out); err != nil {
		t.Fatal(err)
	}
	list := epochList{Epochs: []epochLine{describeEpoch(&store.Epoch{Number: 4, Manifest: m})}}
	if err := list.print(&out); err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(` +`).ReplaceAllString(out.String(), " ")
	for _, want := range []string{"ranks 5 in 2 processes on node7", "PROCESS RANKS FILE", "\n0 0-2 rank-00000.ckpt", "\n1 4 3 rank-00001.ckpt", " 5/2 "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}
