// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/internal/tap"
)

func TestTopOf(t *testing.T) {
	ranks := []watchedRank{{rank: 0, pid: 10}, {rank: 1, pid: 11, below: true}}
	first := []tap.Sum{{PID: 10, Name: "MPI_Send", Calls: 10, Nanoseconds: 1e9}, {PID: 10, Name: "read", System: true, Calls: 4, Nanoseconds: 5e8},
		{PID: 10, Name: "MPI_Recv", Calls: 1, Nanoseconds: 2e9}, {PID: 10, Thread: 12, Name: "MPI_Recv", Calls: 2, Nanoseconds: 1e9}, {PID: 99, Name: "MPI_Send", Calls: 5}}
	r := topOf(first, ranks, 4*time.Second)
	if a := r.Ranks[0]; a.MPICalls != 13 || a.MPISeconds != 4 || a.SystemCalls != 4 || len(a.Calls) != 3 || a.Calls[0].Name != "MPI_Recv" || len(r.Ranks[1].Calls) != 0 {
		t.Errorf("%+v", r)
	}
	second := []tap.Sum{{PID: 10, Name: "MPI_Send", Calls: 2, Nanoseconds: 2e9}, {PID: 11, Name: "MPI_Send", Calls: 4, Nanoseconds: 1e9}}
	r = topOf(second, ranks, 4*time.Second)
	if a, b := r.Ranks[0], r.Ranks[1]; a.MPICalls != 2 || a.MPISeconds != 2 || a.SystemCalls != 0 || len(a.Calls) != 1 || b.MPICalls != 4 {
		t.Errorf("%+v", r)
	}
	var out bytes.Buffer
	if err := r.print(&out, 5); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"MPI_Send 50.0%", "MPI below", "MPI_Send  MPI   2        37.5%  500ms"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestOwnThreads: those with fewer filters than the first thread, which is the program's. Where the kernel does not say how
// many there are, and where all have as many, none is libckpt's own.
func TestOwnThreads(t *testing.T) {
	proc := t.TempDir()
	for name, filters := range map[string]string{
		"10/task/10": "2", "10/task/11": "1", "10/task/12": "2", "10/task/13": "0", "10/task/14": "",
		"20/task/20": "0", "20/task/21": "0", "30/task/30": "", "30/task/31": "0",
	} {
		dir := filepath.Join(proc, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		text := "Name:\tx\nSeccomp:\t2\n"
		if filters != "" {
			text += "Seccomp_filters:\t" + filters + "\nSpeculation_Store_Bypass:\tvulnerable\n"
		}
		if err := os.WriteFile(filepath.Join(dir, "status"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(ownThreads(proc, []watchedRank{{pid: 10}, {pid: 20}, {pid: 30}, {pid: 40}})); got != "[11 13]" {
		t.Errorf("%s", got)
	}
}

func TestBackName(t *testing.T) {
	for symbol, want := range map[string]string{"back_Send": "MPI_Send", "back_File_open": "MPI_File_open", "back_wait_send": "", "back_Send.cold": "", "MPI_Send": "", "back_": ""} {
		if got := backName(symbol); got != want {
			t.Errorf("%s is %q", symbol, got)
		}
	}
}

func TestSortRanks(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	here, elsewhere, err := sortRanks(control.Status{Ranks: []control.RankStatus{{Rank: 0, Host: host, PID: 5}, {Rank: 1, Host: host, PID: 5}, {Rank: 2, Host: "other", PID: 5}, {Rank: 3, Host: host}}})
	if err != nil || len(here) != 1 || len(elsewhere) != 2 {
		t.Errorf("%v, %v, %v", here, elsewhere, err)
	}
	if _, _, err := sortRanks(control.Status{Ranks: []control.RankStatus{{Rank: 0, Host: "other", PID: 5}}}); err == nil || !strings.Contains(err.Error(), "this host") {
		t.Errorf("nobody is here: %v", err)
	}
}

func TestTopRefused(t *testing.T) {
	s := testStore(t)
	for _, c := range []struct {
		args []string
		exit int
		want string
	}{
		{[]string{"--period", "1ms"}, exitUsage, "10ms"},
		{[]string{"--count", "-1"}, exitUsage, "negative"},
		{nil, exitFailed, ""}, // no job runs, or nobody may look
	} {
		status, _, said := ctl(t, append([]string{"top", s.Dir()}, c.args...)...)
		if status != c.exit || !strings.Contains(said, c.want) || said == "" {
			t.Errorf("%v: %d: %s", c.args, status, said)
		}
	}
}

func TestBriefText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 7: "7ns", 1670: "1.67µs", 22274: "22.3µs", 4869982: "4.87ms", 196732592: "197ms", 1234 * time.Millisecond: "1.23s", 12345 * time.Millisecond: "12.3s",
	} {
		if got := briefText(d); got != want {
			t.Errorf("%d ns: %s, want %s", d, got, want)
		}
	}
}
