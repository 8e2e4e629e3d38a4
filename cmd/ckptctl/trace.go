// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt/store"
)

func init() { register(newTraceCmd) }

func newTraceCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "trace DIR[@EPOCH]",
		GroupID: groupSaved,
		Short:   "Write the stages of checkpoints as a trace for Perfetto",
		Long: `Write when each rank was in which stage of each checkpoint, as a trace that https://ui.perfetto.dev and
chrome://tracing open: a track for each rank, below its node, and one for the epochs. Times begin with the first
request. Ranks of several nodes are as far apart from each other as the clocks of the nodes are.

The times are those of the manifests and of history.jsonl, so epochs that are removed are in it too.
` + "`ckptctl checkpoint --trace FILE`" + ` writes the same for the checkpoint that it asks for.`,
		Example: `  ckptctl trace ckpt --out ckpt.json
  ckptctl trace ckpt@3 > epoch3.json`,
		Args: cobra.ExactArgs(1),
	}
	out := cmd.Flags().StringP("out", "o", "", "`file` to write (default: standard output)")
	force := cmd.Flags().Bool("force", false, "replace the file if it is there")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := history(args[0], cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		p, err := encodeTrace(list)
		if err != nil {
			return err
		}
		if *out == "" {
			_, err = cmd.OutOrStdout().Write(p)
			return err
		}
		return orForce(writeOutput(*out, p, *force))
	}
	return cmd
}

// history is what is known of the epochs that spec names; at least one.
func history(spec string, stderr io.Writer) ([]store.History, error) {
	dir, only, err := store.SplitSpec(spec)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(dir)
	if err != nil {
		return nil, err
	}
	all, unread, err := s.History()
	if err != nil {
		return nil, err
	}
	if unread > 0 {
		_, _ = fmt.Fprintf(stderr, "ckptctl: %d lines of %s cannot be read, and are left out\n", unread, filepath.Join(dir, "history.jsonl"))
	}
	list := all[:0]
	for _, h := range all {
		if only == 0 || h.Epoch == only {
			list = append(list, h)
		}
	}
	if len(list) == 0 {
		if only != 0 {
			return nil, fmt.Errorf("%s: %w: nothing is known of epoch %d", dir, store.ErrNone, only)
		}
		return nil, fmt.Errorf("%s: %w", dir, store.ErrNone)
	}
	return list, nil
}

// traceEvent is an event of the Trace Event Format.
type traceEvent struct {
	Name string         `json:"name"`
	Cat  string         `json:"cat,omitempty"`
	Ph   string         `json:"ph"`
	Ts   float64        `json:"ts"`            // microseconds
	Dur  *float64       `json:"dur,omitempty"` // microseconds
	PID  int            `json:"pid"`           // a node; 0: the job
	TID  int            `json:"tid"`           // a rank, counted from 1: 0 is no thread
	Args map[string]any `json:"args,omitempty"`
}

type traceFile struct {
	Events  []traceEvent   `json:"traceEvents"`
	Unit    string         `json:"displayTimeUnit"`
	About   map[string]any `json:"otherData"`
	hosts   map[string]int
	threads map[[2]int]bool
	begun   time.Time
}

func encodeTrace(list []store.History) ([]byte, error) {
	t := &traceFile{Unit: "ms", hosts: map[string]int{}, threads: map[[2]int]bool{}, begun: list[0].Began()}
	for i := range list {
		if b := list[i].Began(); b.Before(t.begun) {
			t.begun = b
		}
	}
	last := list[len(list)-1]
	t.About = map[string]any{"program": last.Program, "libckpt": last.Libckpt, "begun": t.begun}
	t.meta("process_name", 0, 0, "checkpoints of "+filepath.Base(last.Program))
	for i := range list {
		t.epoch(&list[i])
	}
	p, err := json.Marshal(t)
	return append(p, '\n'), err
}

func (t *traceFile) meta(what string, pid, tid int, name string) {
	t.Events = append(t.Events, traceEvent{Name: what, Ph: "M", PID: pid, TID: tid, Args: map[string]any{"name": name}})
}

func (t *traceFile) span(name string, from time.Time, at, seconds float64, pid, tid int, args map[string]any) {
	dur := seconds * 1e6
	t.Events = append(t.Events, traceEvent{Name: name, Cat: "checkpoint", Ph: "X", Ts: from.Sub(t.begun).Seconds()*1e6 + at*1e6,
		Dur: &dur, PID: pid, TID: tid, Args: args})
}

func (t *traceFile) epoch(h *store.History) {
	from := h.Began()
	var bytes int64
	written := 0.0
	for _, im := range h.Images {
		bytes += im.Bytes
		for _, p := range im.Phases {
			written = max(written, p.At+p.Seconds)
		}
	}
	if t.thread(0, 1) {
		t.meta("thread_name", 0, 1, "epochs")
	}
	t.span(fmt.Sprintf("epoch %d", h.Epoch), from, 0, h.TotalSeconds, 0, 1, map[string]any{"bytes": bytes, "stopSeconds": h.StopSeconds, "ranks": h.Ranks})
	if written > 0 && written < h.TotalSeconds {
		t.span("commit", from, written, h.TotalSeconds-written, 0, 1, nil)
	}
	for _, im := range h.Images {
		pid, ok := t.hosts[im.Host]
		if !ok {
			pid = len(t.hosts) + 1
			t.hosts[im.Host] = pid
			t.meta("process_name", pid, 0, "node "+orDash(im.Host))
		}
		if t.thread(pid, im.Rank+1) {
			t.meta("thread_name", pid, im.Rank+1, rankName(&im))
		}
		for _, p := range im.Phases {
			args := map[string]any{"epoch": h.Epoch}
			switch p.Name {
			case "stop":
				args["stoodStillSeconds"] = im.StopSeconds
			case "write":
				args["bytes"], args["memory"] = im.Bytes, im.Payload
			}
			t.span(p.Name, from, p.At, p.Seconds, pid, im.Rank+1, args)
		}
	}
}

// thread tells whether it is the first time.
func (t *traceFile) thread(pid, tid int) bool {
	first := !t.threads[[2]int{pid, tid}]
	t.threads[[2]int{pid, tid}] = true
	return first
}

// rankName is what an image is of.
func rankName(im *store.Image) string {
	if len(im.Tasks) > 0 {
		return fmt.Sprintf("process %d (ranks %s)", im.Rank, ranksText(im.Tasks))
	}
	return fmt.Sprintf("rank %d", im.Rank)
}
