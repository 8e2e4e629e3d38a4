// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/store"
)

// deafJob leaves the record of a job that does not listen any more; its process, which lives on, is
// called ckptrun as that of a real one.
func deafJob(t *testing.T) (dir string, s *store.Store, end func()) {
	t.Helper()
	dir, s, server, _ := play(t)
	server.Close()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ckptrun")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	rank := exec.Command(path, "600")
	if err := rank.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if !ended {
			_ = rank.Process.Kill()
			_ = rank.Wait()
		}
		ended = true
	}
	t.Cleanup(end)
	record, err := s.ReadJob()
	if err != nil {
		t.Fatal(err)
	}
	if record.Host, err = os.Hostname(); err != nil {
		t.Fatal(err)
	}
	record.PID = rank.Process.Pid
	if err := s.WriteJob(record); err != nil {
		t.Fatal(err)
	}
	return dir, s, end
}

// A request does not outlive the job that it was for by the whole of its timeout.
func TestASeenJobIsOver(t *testing.T) {
	for name, ends := range map[string]func(*testing.T, *store.Store, func()){
		"killed": func(_ *testing.T, _ *store.Store, kill func()) { kill() },
		"at its end": func(t *testing.T, s *store.Store, _ func()) {
			if err := s.RemoveJob(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, s, kill := deafJob(t)
			var seen sighting
			look := func() bool {
				job, err := findJob(dir)
				if err == nil {
					_, err = job.checkpoint(t.Context(), control.Request{Then: after.Continue, Timeout: time.Minute}, io.Discard)
				}
				if err == nil || !notOpenYet(err) {
					t.Fatalf("the request ends with %v", err)
				}
				return seen.over(job, err)
			}
			if first, again := look(), look(); first || again {
				t.Fatal("a job is over while its process lives")
			}
			ends(t, s, kill)
			if !look() {
				t.Error("a job that has ended is waited for")
			}
		})
	}
}

// What a killed job left behind does not keep a request from waiting for the restart.
func TestCheckpointWaitsForTheRestart(t *testing.T) {
	dir, s, kill := deafJob(t)
	kill()
	status, _, errOut := ctl(t, "checkpoint", dir, "--timeout", "300ms")
	if status != exitFailed {
		t.Errorf("exit status %d", status)
	}
	wantText(t, errOut, "no job has opened it within the time of --timeout")

	server, err := control.Listen(control.Config{LoopbackOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	job := &playedJob{finished: make(chan after.Action, 1)}
	job.checkpoint = func(context.Context, control.Request, func(control.Event)) (control.Result, error) {
		return control.Result{Epoch: 4}, nil
	}
	go func() {
		time.Sleep(300 * time.Millisecond)
		writeJob(t, s, server.Address())
		if err := server.Serve(job); err != nil {
			t.Error(err)
		}
	}()
	if status, out, errOut := ctl(t, "checkpoint", dir, "--timeout", "10m"); status != exitOK || out != "4\n" {
		t.Errorf("exit status %d, stdout %q, stderr %q; want epoch 4", status, out, errOut)
	}
}
