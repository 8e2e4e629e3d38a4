// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// chosen is what status and ls say of the period.
type chosen struct {
	PeriodSeconds float64
	Levels, Why   string
	Next          time.Time
}

// whenStatus is what ckptctl status says.
type whenStatus struct {
	Epoch   int
	Raising string
	Chosen  *chosen
}

// await asks for the status until it is as it should be.
func (j *leveledJob) await(t *testing.T, p *Process, what string, good func(whenStatus) bool) (s whenStatus) {
	t.Helper()
	if !Poll(patience, p.Done(), func() bool {
		s = whenStatus{}
		exit, out, _ := again(t, built.CkptCtl(), "status", j.run.Checkpoints(), "--json") // it may not run yet
		return exit == (Exit{}) && json.Unmarshal([]byte(out), &s) == nil && good(s)
	}) {
		t.Fatalf("%s: %+v, %+v\n%s", what, s, s.Chosen, mustRead(t, j.run.Stderr))
	}
	return s
}

// TestWhen: with --mtbf the job asks for checkpoints and raises them as it finds best, from what they cost, and says so; a
// restart knows that from the beginning.
func TestWhen(t *testing.T) {
	j := newLeveled(t, "mpich")
	options := []string{built.CkptRun(), "--local", j.nodes.local(), "--mtbf", "40s,L1:40%,L2:30%,L3:20%,L4:10%", "--overhead", "50%", "--log", "info"}
	p := j.launch(t, append(options, "--dir", j.run.Checkpoints(), "--", buildMPI(t, "mpich", "ring"), j.stop)...)
	s := j.await(t, p, "nothing was measured yet", func(s whenStatus) bool { return s.Chosen != nil })
	if s.Epoch == 0 && (s.Chosen.PeriodSeconds != 0 || !strings.Contains(s.Chosen.Why, "not known yet")) {
		t.Errorf("%+v", s.Chosen)
	}
	s = j.await(t, p, "nobody asked for the third epoch", func(s whenStatus) bool { return s.Epoch >= 3 })
	c := s.Chosen
	// The machine may be busy: what an epoch costs is what it is. The failures alone bound the period.
	if c.PeriodSeconds < 1 || c.PeriodSeconds > 60 || !strings.HasPrefix(c.Levels, "L1:every,") || !strings.Contains(c.Levels, "L4:") ||
		!strings.Contains(c.Why, "stops the program for") || !strings.Contains(c.Why, "L4 takes") || c.Next.Before(time.Now().Add(-patience)) {
		t.Errorf("%+v", c)
	}
	h := &heat{}
	if text, _ := h.ctl(t, "status", j.run.Checkpoints()); !strings.Contains(text, "a checkpoint every") || !strings.Contains(text, "levels L1:every") {
		t.Errorf("status: %s", text)
	}
	j.kill(t, p)

	var list struct {
		Epochs []struct {
			Epoch  int
			Levels []int
			Chosen *chosen
		}
	}
	out, _ := h.ctl(t, "ls", j.run.Checkpoints(), "--json")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Epochs) == 0 {
		t.Fatalf("%v: %s", err, out)
	}
	highest := 0
	for _, e := range list.Epochs {
		if len(e.Levels) > 0 {
			highest = max(highest, e.Levels[len(e.Levels)-1])
		}
		if (e.Epoch > 1) != (e.Chosen != nil) {
			t.Errorf("epoch %d: %+v", e.Epoch, e.Chosen)
		}
	}
	if highest != 4 {
		t.Errorf("no epoch is at level 4: %s", out)
	}
	if out, _ := h.ctl(t, "ls", j.run.Checkpoints()); !strings.Contains(out, "chosen when epoch") {
		t.Errorf("ls: %s", out)
	}
	if said := string(mustRead(t, j.run.Stderr)); !strings.Contains(said, "period chosen") {
		t.Errorf("the log does not say what was chosen: %s", said)
	}

	p = j.launch(t, append(options, "--restart", j.run.Checkpoints())...)
	s = j.await(t, p, "the restart does not know costs", func(s whenStatus) bool { return s.Chosen != nil && s.Chosen.PeriodSeconds > 0 })
	if s.Chosen.PeriodSeconds > 60 {
		t.Errorf("after the restart: %+v", s.Chosen)
	}
	if err := os.WriteFile(j.stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(patience); err != nil || exit != (Exit{}) {
		t.Fatalf("%v, %v\n%s", exit, err, mustRead(t, j.run.Stderr))
	}
}
