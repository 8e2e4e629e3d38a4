// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/zap"
)

func TestShortVersion(t *testing.T) {
	for text, want := range map[string]string{
		"MPICH Version:\t4.0.2\nMPICH Release date: 7.4.2022":    "4.0.2",
		"Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4": "4.1.4",
		"tmpi": "tmpi",
		"":     "",
	} {
		equal(t, text, want, shortVersion(text))
	}
}

// TestOpen: the order in which objects are bound and ranks join, by what the process is.
func TestOpen(t *testing.T) {
	p := Process{Log: zap.NewNop()}
	bound := 0
	bind := func() error { bound++; return nil }
	if err := p.Open(nil, nil, bind); err != nil || bound != 1 || p.Job != nil {
		t.Errorf("outside of ckptrun: %v, bound %d times, job %v", err, bound, p.Job)
	}
	all := unopened(t, 2)
	order := make([][]string, 2)
	together(all, func(r *rank) {
		p := Process{Host: r.host, Options: r.options, Log: zap.NewNop(), Job: r.Job}
		err := p.Open(r.rt, r.tables, func() error {
			if r.net != nil {
				t.Error("the ranks join before the runtime has bound its objects")
			}
			order[r.rt.rank] = append(order[r.rt.rank], "bind")
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	if !slices.Equal(order[0], []string{"bind"}) || !slices.Equal(order[1], []string{"bind"}) || all[1].net == nil {
		t.Errorf("order %v", order)
	}
	fails := errors.New("it cannot bind")
	other := unopened(t, 1)[0]
	p = Process{Host: other.host, Log: zap.NewNop(), Job: other.Job}
	if err := p.Open(other.rt, other.tables, func() error { return fails }); err != fails || other.net != nil {
		t.Errorf("without objects: %v", err)
	}
}

// TestPlanRestart: what a process is to continue, alone and under a launcher.
func TestPlanRestart(t *testing.T) {
	h := newTestHost(t)
	dir := filepath.Join(t.TempDir(), "ckpt")
	o := testOptions(dir)
	j := start(t, h, o)
	checkpoint(t, j)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	o.Restart = dir
	p := Process{Host: h, Options: o, Log: zap.NewNop()}
	under := func(ranks string) func(string) string {
		return func(name string) string {
			return map[string]string{"PMI_RANK": "0", "PMI_SIZE": ranks}[name]
		}
	}
	if _, err := p.PlanRestart(under("2")); err == nil || p.Restart != nil {
		t.Errorf("two processes continue a program without MPI: %v", err)
	} else {
		names(t, err.Error(), "without MPI, but 2 processes were started")
	}
	back, err := p.PlanRestart(func(string) string { return "" })
	if err != nil || back != "" || p.Restart == nil || p.Restart.MPI() {
		t.Fatalf("alone: %q, %v", back, err)
	}
	p.Restart.Disown()
}
