// SPDX-License-Identifier: Apache-2.0

package meeting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// asRank makes the test program a rank of a test's job.
const asRank = "MEETING_TEST_RANK"

func TestMain(m *testing.M) {
	if do := os.Getenv(asRank); do != "" {
		if err := runRank(do); err != nil {
			fmt.Fprintln(os.Stderr, "rank:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runRank is what a rank does: it meets the others, or fails while they wait for it.
func runRank(do string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o := Options{Getenv: os.Getenv, Dir: os.Getenv("MEETING_TEST_DIR")}
	m, err := Find(ctx, o)
	if err != nil {
		return err
	}
	if do == "fail" && m.Rank() == 1 {
		return errors.New("rank 1 fails")
	}
	for round, size := range []int{256, 0, 1, 5000} {
		give := func(rank int) []byte { return bytes.Repeat([]byte{byte(rank), byte(round), ' ', '\n'}, size) }
		all, err := m.Allgather(give(m.Rank()))
		if err != nil {
			return err
		}
		for r, b := range all {
			if !bytes.Equal(b, give(r)) {
				return fmt.Errorf("round %d: rank %d gave other bytes", round, r)
			}
		}
	}
	fmt.Printf("met %d of %d\n", m.Rank(), m.Ranks())
	return m.Close()
}

// job runs ranks under a launcher and returns what they print, one line each.
func job(t *testing.T, do string, argv ...string) (string, error) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts an MPI job")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, argv[0], append(argv[1:], exe)...)
	c.Env = append(os.Environ(), asRank+"="+do)
	c.WaitDelay = 5 * time.Second
	out, err := c.CombinedOutput()
	if ctx.Err() != nil {
		t.Errorf("the job did not end")
	}
	return string(out), err
}

func TestUnderHydra(t *testing.T) {
	needmpi.Test(t, "mpich")
	for name, c := range map[string]struct {
		do   string
		argv []string
	}{
		"descriptor": {"meet", []string{"mpiexec.mpich", "-n", "4"}},
		"one rank":   {"meet", []string{"mpiexec.mpich", "-n", "1"}},
		"port":       {"meet", []string{"mpiexec.mpich", "-pmi-port", "-n", "4"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := job(t, c.do, c.argv...)
			n := c.argv[len(c.argv)-1]
			if err != nil || strings.Count(out, "met ") != int(n[0]-'0') || strings.Count(out, " of "+n+"\n") != int(n[0]-'0') {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// A rank that ends without Close ends the others, which wait for it.
func TestRankFailsUnderHydra(t *testing.T) {
	needmpi.Test(t, "mpich")
	for name, argv := range map[string][]string{"descriptor": {"mpiexec.mpich", "-n", "3"}, "port": {"mpiexec.mpich", "-pmi-port", "-n", "3"}} {
		t.Run(name, func(t *testing.T) {
			out, err := job(t, "fail", argv...)
			if err == nil || strings.Contains(out, "met ") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// Processes meet in a directory in which a job was killed while its ranks came together.
func TestProcessesMeetAfterAKill(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	rank := func(r int) (*exec.Cmd, *bytes.Buffer) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		t.Cleanup(cancel)
		c := exec.CommandContext(ctx, exe)
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		c.Env = append(os.Environ(), asRank+"=meet", "MEETING_TEST_DIR="+dir, fmt.Sprint("CKPT_RANK=", r), "CKPT_SIZE=3")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c, &out
	}
	zero, _ := rank(0)
	stale := awaitNote(t, dir, anyNote)
	if err := zero.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = zero.Wait()
	if n, err := readNote(dir); err != nil || n == nil || n.Key != stale.Key {
		t.Fatalf("the note of the killed job is gone: %v", err)
	}
	var all [3]*exec.Cmd
	var outs [3]*bytes.Buffer
	for _, r := range []int{2, 1, 0} {
		all[r], outs[r] = rank(r)
	}
	for r, c := range all {
		if err := c.Wait(); err != nil || outs[r].String() != fmt.Sprintf("met %d of 3\n", r) {
			t.Errorf("rank %d: %v, %s", r, err, outs[r])
		}
	}
	noNote(t, dir)
}
