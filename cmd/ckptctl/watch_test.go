// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/ckpt/control"
)

// writing is a job of which rank 0 is done, rank 1 writes slowly and rank 2 fast, and rank 3 has not begun.
func writing(done uint64) control.Status {
	return control.Status{State: control.Checkpointing, Phase: "write", Ranks: []control.RankStatus{
		{Rank: 0, Phase: "commit"},
		{Rank: 1, Phase: "write", Done: done, Total: 100 << 20, Rate: 1 << 20},
		{Rank: 2, Phase: "write", Done: done, Total: 100 << 20, Rate: 9 << 20},
		{Rank: 3, Phase: "write", Total: 100 << 20},
	}}
}

// The rate is that of all ranks, the end that of the slowest.
func TestWritingText(t *testing.T) {
	now := time.Date(2020, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		s    control.Status
		want string
	}{
		{writing(10 << 20), "writes 20.0 MiB of 300.0 MiB, 10.0 MiB/s, done in 1m30s, at 12:01:30"},
		{writing(200 << 20), "writes 400.0 MiB of 300.0 MiB, 10.0 MiB/s"}, // what a rank says is not believed too far
		{control.Status{Ranks: []control.RankStatus{{Phase: "write", Total: 5}}}, ""},
		{control.Status{Ranks: []control.RankStatus{{Phase: "drain", Done: 1, Total: 5, Rate: 1}}}, ""},
		{control.Status{}, ""},
	} {
		if got := writingText(c.s, now); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// With --json the sum is in the status, as the job makes it.
func TestWritingJSON(t *testing.T) {
	now := time.Date(2020, 1, 1, 12, 0, 0, 0, time.UTC)
	s := writing(10 << 20)
	s.Writing = control.WritingOf(s.Ranks, now)
	var out bytes.Buffer
	if err := newView(&out, true).show(s); err != nil {
		t.Fatal(err)
	}
	want := `"writing":{"done":20971520,"total":314572800,"rate":10485760,"end":"2020-01-01T12:01:30Z"}`
	if !strings.Contains(out.String(), want) {
		t.Errorf("%s\nlacks %s", out.String(), want)
	}
	if w := control.WritingOf([]control.RankStatus{{Phase: "write", Done: 1, Total: 1 << 63, Rate: 1e-300}}, now); w.End.Before(now) {
		t.Errorf("the end of what hardly moves is %v", w.End)
	}
}

// On what is no terminal a long write is told every two seconds, and a short one not at all.
func TestWatchTellsLongWrites(t *testing.T) {
	now := time.Date(2020, 1, 1, 12, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	v := &lineView{w: &out, now: func() time.Time { return now }}
	if err := v.show(control.Status{State: control.Running}); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		now = now.Add(time.Second)
		if err := v.show(writing(uint64(i) << 20)); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(out.String(), "writes "); n != 5 {
		t.Errorf("%d times:\n%s", n, out.String())
	}
	out.Reset()
	v = &lineView{w: &out, now: func() time.Time { return now }}
	for _, s := range []control.Status{{State: control.Running}, writing(1 << 20), {State: control.Running}} {
		if err := v.show(s); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
	}
	if strings.Contains(out.String(), "writes ") {
		t.Errorf("a short one:\n%s", out.String())
	}
}
