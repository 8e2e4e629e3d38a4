// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ctl runs ckptctl in the place of a job and wants it to succeed.
func (h *heat) ctl(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	exit, out, said := again(t, append([]string{built.CkptCtl()}, args...)...)
	if exit != (Exit{}) {
		t.Fatalf("ckptctl %q: %v: %s", args, exit, said)
	}
	return out, said
}

// allowed tells whether a command that watches by eBPF did so. Where it may not, it must say what it takes.
func allowed(t *testing.T, what string, exit Exit, said string) bool {
	t.Helper()
	if exit == (Exit{}) {
		return true
	}
	if exit.Code == 1 && (strings.Contains(said, "CAP_BPF") || strings.Contains(said, "this kernel cannot") || strings.Contains(said, "PID namespace")) {
		t.Logf("%s is not allowed here, and says so: %s", what, said)
		return false
	}
	t.Fatalf("%s: %v: %s", what, exit, said)
	return false
}

// TestCtl: a job of which ckptctl counts the calls, and which is saved meanwhile under the eyes of a witness and killed;
// a report, a trace and figures of its epochs; its memory as files; and the job goes on from a copy elsewhere.
func TestCtl(t *testing.T) {
	h := newHeat(t, 1500, 0)
	want := h.natively(t)
	dir := h.run.Checkpoints()
	// Messages go through sockets, for the witness to see.
	p := h.mpiexec(t, append([]string{"-genv", "UCX_TLS", "tcp,self", built.CkptRun(), "--dir", dir, "--"}, h.argv...)...)
	h.ctl(t, "checkpoint", dir, "--timeout", "100s")

	var counted struct {
		Ranks []struct {
			MPICalls, SystemCalls int
			Below                 bool
			Calls                 []struct{ Name string }
		}
	}
	exit, out, said := again(t, built.CkptCtl(), "top", dir, "--count", "1", "--period", "500ms", "--json")
	if allowed(t, "top", exit, said) {
		if err := json.Unmarshal([]byte(out), &counted); err != nil || len(counted.Ranks) != ranks {
			t.Fatalf("%v: %s", err, out)
		}
		waited := false // by some: one that is kept from the processor may be in its first all the time
		for rank, c := range counted.Ranks {
			waited = waited || strings.Contains(fmt.Sprint(c.Calls), "MPI_Waitall")
			// Go's runtime waits by epoll_pwait: its threads are libckpt's own.
			if c.MPICalls < 1 || c.SystemCalls < 1 || c.Below || strings.Contains(fmt.Sprint(c.Calls), "epoll_pwait") {
				t.Errorf("rank %d: %+v", rank, c)
			}
		}
		if !waited {
			t.Errorf("no rank has ended MPI_Waitall: %+v", counted.Ranks)
		}
	}
	// What is in the image while the calls are being counted is the program alone.
	watcher, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	counter, err := watcher.Start(h.mark, built.CkptCtl(), "top", dir, "--period", "100ms", "--json")
	if err != nil {
		t.Fatal(err)
	}
	Poll(10*time.Second, counter.Done(), func() bool { return len(mustRead(t, watcher.Stdout)) > 0 })
	exit, out, said = again(t, built.CkptCtl(), "checkpoint", dir, "--witness", "--json")
	if allowed(t, "--witness", exit, said) {
		var r struct {
			Epoch   int
			Witness struct {
				Proven bool
				Ranks  []struct {
					Sockets, Own         int
					Before, Moved, After int
				}
			}
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil || r.Epoch != 2 || !r.Witness.Proven || len(r.Witness.Ranks) != ranks {
			t.Fatalf("%v: %s", err, out)
		}
		for rank, w := range r.Witness.Ranks {
			if w.Moved != 0 || w.Sockets < 1 || w.Own < 1 || w.Before+w.After == 0 { // it does see what moves
				t.Errorf("rank %d: %+v", rank, w)
			}
		}
	} else { // an epoch without a witness
		h.ctl(t, "checkpoint", dir, "--timeout", "100s")
	}
	trace := filepath.Join(t.TempDir(), "trace.json")
	h.ctl(t, "checkpoint", dir, "--then", "kill", "--trace", trace)
	if h.wait(t, p) == (Exit{}) {
		t.Error("mpiexec did not notice that its ranks were killed")
	}
	if !bytes.Contains(mustRead(t, trace), []byte(`"name":"snapshot"`)) || bytes.Contains(mustRead(t, trace), []byte(`"epoch 2"`)) {
		t.Errorf("the trace is %.300s", mustRead(t, trace))
	}
	h.looked(t, dir)

	// The job goes on from the copy alone.
	there := filepath.Join(t.TempDir(), "elsewhere")
	h.ctl(t, "copy", dir, there)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if p = h.restart(t, there); h.wait(t, p) != (Exit{}) {
		t.Fatalf("after the restart: %s", mustRead(t, h.run.Stderr))
	}
	h.mustEqual(t, want)
}

// looked has all commands that look at a directory do so.
func (h *heat) looked(t *testing.T, dir string) {
	t.Helper()
	work := t.TempDir()
	page := filepath.Join(work, "report.html")
	h.ctl(t, "report", dir, "--out", page)
	text := string(mustRead(t, page))
	for _, want := range []string{"Checkpoints of heat.mpich", "snapshot", "<td>3</td>", "<td>1</td>", "removed"} { // --keep 2: epoch 1 is gone
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the report", want)
		}
	}
	if out, _ := h.ctl(t, "trace", dir); !json.Valid([]byte(out)) || strings.Count(out, `"name":"write"`) != 3*ranks {
		t.Errorf("the trace has %d writes", strings.Count(out, `"name":"write"`))
	}
	if out, _ := h.ctl(t, "metrics", dir); strings.Count(out, `phase="drain"`) != ranks || !strings.Contains(out, "libckpt_job_up{dir=") {
		t.Errorf("metrics: %s", out)
	}
	var use struct {
		Epochs []struct{ Memory, Freed int }
		Freed  int
	}
	out, _ := h.ctl(t, "du", dir, "--keep", "1", "--json")
	if err := json.Unmarshal([]byte(out), &use); err != nil || len(use.Epochs) != 2 || use.Freed == 0 || use.Freed != use.Epochs[0].Freed || use.Epochs[1].Memory == 0 {
		t.Errorf("%v: %s", err, out)
	}
	if out, _ := h.ctl(t, "diff", dir, "--regions"); !strings.Contains(out, "REGION") {
		t.Errorf("diff: %s", out)
	}
	var tree struct {
		Images []struct {
			Root struct {
				Children []treeNode
			}
		}
	}
	out, _ = h.ctl(t, "inspect", "--tree", dir, "--json", "--rank", "1")
	if err := json.Unmarshal([]byte(out), &tree); err != nil || len(tree.Images) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	kinds := map[string]treeNode{}
	for _, k := range tree.Images[0].Root.Children {
		kinds[k.Name] = k
	}
	if len(kinds["program"].Children) != 1 || len(kinds["libraries"].Children) < 3 || kinds["heap"].Data == 0 || kinds["stacks"].Data == 0 {
		t.Fatalf("%s", out)
	}
	// By addresses, and by name: the command line is on the stack.
	for n, m := range kinds["heap"].Children[0].Children {
		if m.Data == 0 {
			continue
		}
		to := filepath.Join(work, fmt.Sprintf("memory-%d", n))
		h.ctl(t, "export", dir, "--rank", "1", "--range", m.Start+"-"+m.End, "--out", to)
		if b := mustRead(t, filepath.Join(to, "rank-00001-000.raw")); len(b) != m.Mapped {
			t.Errorf("%s-%s: %d bytes", m.Start, m.End, len(b))
		}
	}
	stack := filepath.Join(work, "stack")
	h.ctl(t, "export", dir, "--rank", "1", "--mapping", "[stack]", "--out", stack)
	if b := mustRead(t, filepath.Join(stack, "rank-00001-000.raw")); !bytes.Contains(b, []byte("\x00steps=1500\x00")) {
		t.Error("the exported stack does not have the program's arguments")
	}
}

// treeNode is a line of `inspect --tree`.
type treeNode struct {
	Name         string
	Mapped, Data int
	Start, End   string
	Children     []treeNode
}

// TestCtlIncrements: an epoch that has what changed is copied with those that it needs, and continued from the copy; what
// is said of its memory is said of all of it.
func TestCtlIncrements(t *testing.T) {
	d := newDrift(t, "mpich")
	d.killed("--keep", "3", "--full", "every", "4")
	dir := d.dir()
	h := &heat{}
	var tree struct {
		Images []struct {
			Root struct{ Data, Stored, Shared int }
		}
	}
	out, _ := h.ctl(t, "inspect", "--tree", dir, "--json")
	if err := json.Unmarshal([]byte(out), &tree); err != nil || len(tree.Images) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	if r := tree.Images[0].Root; r.Shared < 8<<20 || r.Data < r.Shared || r.Stored > r.Data-r.Shared {
		t.Errorf("%+v", r)
	}
	var use struct {
		Epochs []struct {
			Epoch, Memory, Meta int
			Ranks               []struct{ Bytes, Memory, Meta int }
		}
	}
	out, _ = h.ctl(t, "du", dir, "--json")
	if err := json.Unmarshal([]byte(out), &use); err != nil {
		t.Fatal(err)
	}
	for _, e := range use.Epochs {
		for rank, r := range e.Ranks {
			if r.Memory < 0 || r.Meta < 0 || r.Memory+r.Meta != r.Bytes {
				t.Errorf("epoch %d, rank %d: %+v", e.Epoch, rank, r)
			}
		}
	}
	there := filepath.Join(t.TempDir(), "elsewhere")
	var copied struct{ Epochs []struct{ Epoch int } }
	out, _ = h.ctl(t, "copy", dir, there, "--json")
	if err := json.Unmarshal([]byte(out), &copied); err != nil || len(copied.Epochs) < 2 || copied.Epochs[len(copied.Epochs)-1].Epoch != driftKill {
		t.Errorf("%v: %s", err, out)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	d.restart(there)
}
