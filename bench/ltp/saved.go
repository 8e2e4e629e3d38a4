// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
)

// saved is how a program ended that was saved while it ran. An outcome is as without: or why there was no checkpoint, in
// which case it ended as natively, too.
type saved struct {
	Continued string `json:"continued"` // saved again and again, until it ended
	Restarted string `json:"restarted"` // saved and killed in the middle, and continued from that
	Said      string `json:"said,omitempty"`
}

const (
	early   = "ends before it is saved"
	refused = "refused: "
)

// checkpoint asks for one; what it says otherwise is why there is none.
func (t *trial) checkpoint(then string) (refusal string) {
	open := func() bool {
		_, err := os.Stat(filepath.Join(t.dir, "ckpt/job.json"))
		return err == nil
	}
	if !e2e.Poll(t.r.limit, t.process.Done(), open) {
		return early
	}
	// With --timeout it would wait for a job, too.
	ctx, done := context.WithTimeout(context.Background(), 3*t.r.limit)
	defer done()
	said, err := exec.CommandContext(ctx, t.r.ckptctl, "checkpoint", filepath.Join(t.dir, "ckpt"), "--then", then).CombinedOutput()
	if err == nil {
		return ""
	}
	_, reasons, ok := strings.Cut(string(said), "\n  - ")
	if !ok { // the job did not answer, most likely since it ends
		if e2e.Poll(time.Second, nil, t.process.Ended) {
			return early
		}
		reasons = string(said)
	}
	reason, _, _ := strings.Cut(strings.TrimSpace(reasons), "\n")
	return refused + varying.ReplaceAllString(reason, "N")
}

// saved runs a program that ends alike twice more.
func (r *runner) saved(argv []string, native string, took time.Duration) (s saved, err error) {
	ours := append([]string{r.ckptrun, "--dir", "$DIR/ckpt", "--"}, argv...)
	if s.Continued, s.Said, err = r.continued(ours, native); err != nil {
		return s, err
	}
	var said string
	if s.Restarted, said, err = r.restarted(ours, native, took/2+startup); s.Said == "" {
		s.Said = said
	}
	return s, err
}

// startup is about what ckptrun takes to start a program.
const startup = 60 * time.Millisecond

// continued saves a program as often as it can.
func (r *runner) continued(ours []string, native string) (outcome, said string, err error) {
	t, err := r.begin(ours)
	if err != nil {
		return "", "", err
	}
	defer t.end()
	made, why := 0, early
	for until := time.Now().Add(3 * r.limit); !t.process.Ended() && time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		switch refusal := t.checkpoint("continue"); {
		case refusal == "":
			made++
		case refusal != early:
			why = refusal
		}
	}
	if outcome, said, err = t.outcome(r.limit); err == nil && outcome == native {
		said = ""
		if made == 0 {
			outcome = why
		}
	}
	return outcome, tail(said), err
}

// restarted saves and kills a program after a while, and continues it.
func (r *runner) restarted(ours []string, native string, after time.Duration) (outcome, said string, err error) {
	t, err := r.begin(ours)
	if err != nil {
		return "", "", err
	}
	defer t.end()
	select {
	case <-t.process.Done():
	case <-time.After(after):
	}
	refusal := t.checkpoint("kill")
	outcome, said, err = t.outcome(3 * r.limit)
	if refusal != "" {
		if err == nil && outcome == native {
			outcome, said = refusal, ""
		}
		return outcome, tail(said), err
	}
	if err != nil || outcome != "signal 9 (killed)" {
		return fmt.Sprintf("%s, and not killed after its checkpoint", outcome), tail(said), err
	}
	if err := t.start([]string{r.ckptrun, "--restart", "$DIR/ckpt"}); err != nil {
		return "", "", err
	}
	if outcome, said, err = t.outcome(3 * r.limit); outcome == native {
		said = ""
	}
	return outcome, tail(said), err
}

// tail is the end of what a program said, in a line.
func tail(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	text := strings.ToValidUTF8(strings.Join(lines[max(0, len(lines)-3):], " / "), "?")
	if len(text) > 300 {
		text = "..." + strings.ToValidUTF8(text[len(text)-300:], "")
	}
	return text
}

// otherwise tells whether one of the ways ended neither alike nor refused.
func (s saved) otherwise(native string) bool {
	as := func(outcome string) bool {
		return outcome == native || outcome == early || strings.HasPrefix(outcome, refused)
	}
	return s != (saved{}) && !(as(s.Continued) && as(s.Restarted))
}
