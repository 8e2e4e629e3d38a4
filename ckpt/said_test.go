// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/lease"
)

// TestRefusedOnce: of a directory that belongs to another job rank 0 says so, once, before any other rank can
// know; the others end without a word.
func TestRefusedOnce(t *testing.T) {
	dir := t.TempDir()
	if there := os.Getenv("CKPT_TEST_OWN"); there != "" { // the other job
		if _, err := lease.Take(there, lease.Claim{Program: "other", Job: "other job"}); err != nil {
			t.Fatal(err)
		}
		fmt.Println("taken")
		_, _ = io.ReadAll(os.Stdin)
		return
	}
	other := exec.Command(os.Args[0], "-test.run=^TestRefusedOnce$")
	other.Env = append(os.Environ(), "CKPT_TEST_OWN="+dir)
	in, inErr := other.StdinPipe()
	out, outErr := other.StdoutPipe()
	if err := errors.Join(inErr, outErr, other.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = other.Wait() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "taken\n" {
		t.Fatalf("%q, %v", line, err)
	}
	t.Setenv("PMIX_NAMESPACE", "this job")
	o := launch.Options{Dir: dir}

	ended := make(chan error, 3)
	h := &testHost{t: t}
	early := 0
	h.onSay = func() { // the others have seen by now what is wrong, and must not end yet
		time.Sleep(100 * time.Millisecond) // five looks of theirs
		early = len(ended)
	}
	for range cap(ended) {
		go func() { ended <- awaitOwner(o, "", zap.NewNop()) }()
	}
	_, err := own(h, o, "", "program", true, zap.NewNop())
	var said *SaidError
	if !errors.As(err, &said) {
		t.Errorf("rank 0: %v, want a SaidError", err)
	}
	if early != 0 {
		t.Errorf("%d ranks ended before rank 0 had said why", early)
	}
	if len(h.said) != 1 || !strings.Contains(h.said[0], "belongs to a job that") {
		t.Errorf("said: %q", h.said)
	}
	for range cap(ended) {
		if err := <-ended; !errors.As(err, &said) || !strings.Contains(err.Error(), "belongs to a job that") {
			t.Errorf("another rank: %v, want a SaidError of the same words", err)
		}
	}
}

// TestSaidByRank0: of a damaged manifest rank 0 says so, once, and the others end when it has; one that sees something
// that rank 0 does not says it itself.
func TestSaidByRank0(t *testing.T) {
	made := filepath.Join(t.TempDir(), "made")
	j := start(t, newTestHost(t), testOptions(made))
	checkpoint(t, j)
	checkpoint(t, j)
	dir := filepath.Join(t.TempDir(), "ckpt") // nobody owns it
	err := os.CopyFS(dir, os.DirFS(made))
	if err = errors.Join(err, os.RemoveAll(filepath.Join(dir, "lease")), os.Truncate(filepath.Join(dir, "epoch-000002", "manifest.json"), 100)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PMIX_NAMESPACE", "this job")
	o := testOptions(dir)
	o.Restart = dir
	plan := func(rank int) (*testHost, error) {
		t.Setenv("PMIX_RANK", fmt.Sprint(rank))
		h := &testHost{t: t}
		p := Process{Host: h, Options: o, Log: zap.NewNop()}
		_, err := p.PlanRestart(os.Getenv)
		return h, err
	}
	var said *SaidError
	h, err := plan(0)
	if !errors.As(err, &said) || len(h.said) != 1 || !strings.Contains(h.said[0], "manifest.json") || !strings.Contains(h.said[0], dir+"@1") {
		t.Errorf("rank 0: %v, said %q", err, h.said)
	}
	for rank := 1; rank <= 2; rank++ {
		if h, err := plan(rank); !errors.As(err, &said) || len(h.said) != 0 || !strings.Contains(err.Error(), "manifest.json") {
			t.Errorf("rank %d: %v, said %q", rank, err, h.said)
		}
	}
	// Another job, whose rank 0 finds nothing wrong.
	t.Setenv("PMIX_NAMESPACE", "another job")
	l, err := lease.Take(dir, lease.Claim{Program: "program", Job: claim(dir, o, "", zap.NewNop()).Job})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	if h, err := plan(1); err == nil || errors.As(err, &said) || len(h.said) != 0 {
		t.Errorf("alone with what is wrong: %v, said %q", err, h.said)
	}
}

// TestNobodyToSayItTo: where there is no standard error, the error stays to be reported as others are.
func TestNobodyToSayItTo(t *testing.T) {
	var said *SaidError
	if err := say(&testHost{mute: true}, errors.New("why")); errors.As(err, &said) {
		t.Errorf("%v is taken for said", err)
	}
	h := &testHost{}
	if err := say(h, say(h, errors.New("why"))); !errors.As(err, &said) || len(h.said) != 1 {
		t.Errorf("%v, said %q", err, h.said)
	}
}
