// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"regexp"
	"testing"
)

// Ranks of which one is on an adapter and another goes over TCP are refused, both named, before any of them runs.
func TestMixedRanks(t *testing.T) {
	need(t)
	const iterations = 60000
	p := pingpongs[0]
	w := newPingpong(t, p, iterations)
	l := life{t: t, w: w}
	must(t, w.Start("shell"))
	if !l.begun() || !l.save("kill") {
		t.Fatalf("it ended too early: %s", w.Said())
	}
	_, err := w.Wait(jobLimit)
	must(t, err)
	before := w.RankEnv
	w.RankEnv = map[int][]string{1: {"CKPT_VERBS=tcp"}}
	must(t, w.Restart("shell"))
	exits, err := w.Wait(jobLimit)
	must(t, err)
	want := regexp.MustCompile(`rank 0 \(host .*\) is on an InfiniBand adapter, and rank 1 \(host .*\) goes over TCP`)
	if said := w.Said(); !want.MatchString(said) {
		t.Errorf("%v: it says %q", exits, said)
	}
	for r, exit := range exits {
		if exit.Code == 0 {
			t.Errorf("rank %d has not failed: %v", r, exit)
		}
	}
	w.RankEnv = before
	must(t, w.Restart("shell"))
	must(t, w.MustEnd(jobLimit))
	p.same(t, w, iterations)
}
