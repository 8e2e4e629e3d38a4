// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/ckpt/meeting"
	"github.com/libckpt/libckpt/internal/needmpi"
)

// asRank makes the test program a rank of a test's job.
const asRank = "PMIX_TEST_RANK"

func TestMain(m *testing.M) {
	if os.Getenv(asRank) != "" {
		if err := meetAll(); err != nil {
			fmt.Fprintln(os.Stderr, "rank:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// meetAll is what a rank does.
func meetAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	before := links()
	m, err := meeting.Find(ctx, meeting.Options{Getenv: os.Getenv, PMIx: launcherPMIx})
	if err != nil {
		return err
	}
	if os.Getenv(asRank) == "fail" && m.Rank() == 1 {
		return errors.New("rank 1 fails")
	}
	for round, size := range []int{256, 0, 1, 50_000} {
		give := func(rank int) []byte { return bytes.Repeat([]byte{byte(rank), byte(round), 0, '\n'}, size) }
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
	if err := m.Close(); err != nil {
		return err
	}
	if after := links(); after != before {
		return fmt.Errorf("descriptors before: %s; after: %s", before, after)
	}
	fmt.Printf("met %d of %d\n", m.Rank(), m.Ranks())
	return nil
}

// links are the sockets and pipes that are open.
func links() string {
	names, _ := filepath.Glob("/proc/self/fd/*")
	var out []string
	for _, name := range names {
		if to, _ := os.Readlink(name); strings.HasPrefix(to, "socket:") || strings.HasPrefix(to, "pipe:") {
			out = append(out, filepath.Base(name)+" "+to)
		}
	}
	return strings.Join(out, ", ")
}

// underOpenMPI runs this test program as ranks.
func underOpenMPI(t *testing.T, do string, argv ...string) (string, error) {
	t.Helper()
	needmpi.Test(t, "openmpi")
	launcher := []string{"mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe"}
	if testing.Short() {
		t.Skip("starts an MPI job")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, launcher[0], append(append(launcher[1:], argv...), exe)...)
	c.Env = append(os.Environ(), asRank+"="+do)
	c.WaitDelay = 5 * time.Second
	out, err := c.CombinedOutput()
	if ctx.Err() != nil {
		t.Error("the job did not end")
	}
	return string(out), err
}

func TestMeetingThroughPMIx(t *testing.T) {
	for _, n := range []int{1, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			out, err := underOpenMPI(t, "meet", "-n", fmt.Sprint(n))
			if err != nil || strings.Count(out, "met ") != n || strings.Count(out, fmt.Sprintf(" of %d\n", n)) != n {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// A rank that ends without Close ends the others, which wait for it.
func TestRankFailsUnderPMIx(t *testing.T) {
	if out, err := underOpenMPI(t, "fail", "-n", "3"); err == nil || strings.Contains(out, "met ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Without a launcher there is nothing to connect to: an error, with the call's name.
func TestPMIxWithoutLauncher(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe)
	c.Env = []string{asRank + "=1", "PMIX_RANK=0", "PMIX_NAMESPACE=gone"}
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "rank: which rank this is (PMIx): PMIx_Init: ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The structures that pmix.c declares are those of PMIx's own header.
func TestPMIxLayout(t *testing.T) {
	const headers = "/usr/lib/x86_64-linux-gnu/pmix2/include"
	if _, err := os.Stat(headers + "/pmix.h"); err != nil {
		t.Skip(err)
	}
	pairs := map[string]string{"proc": "pmix_proc_t", "bytes": "pmix_byte_object_t", "value": "pmix_value_t", "info": "pmix_info_t"}
	fields := map[string]string{"proc": "nspace rank", "bytes": "bytes size", "value": "type data data.flag data.uint32 data.bo", "info": "key flags value"}
	var text strings.Builder
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// This folder is not searched: it has a pmix.h, too.
	fmt.Fprintf(&text, "#include <pmix.h>\n#include \"%s/pmix_abi.h\"\n", here)
	text.WriteString("#define SAME(x, y) _Static_assert((x) == (y), #y)\n")
	for ours, theirs := range pairs {
		fmt.Fprintf(&text, "SAME(sizeof(struct abi_%s), sizeof(%s));\n", ours, theirs)
		for _, f := range strings.Fields(fields[ours]) {
			fmt.Fprintf(&text, "SAME(__builtin_offsetof(struct abi_%s, %s), __builtin_offsetof(%s, %s));\n", ours, f, theirs, f)
			fmt.Fprintf(&text, "SAME(sizeof(((struct abi_%s *)0)->%s), sizeof(((%s *)0)->%s));\n", ours, f, theirs, f)
		}
	}
	for _, name := range []string{"SUCCESS", "BOOL", "UINT32", "BYTE_OBJECT", "GLOBAL", "RANK_WILDCARD"} {
		fmt.Fprintf(&text, "SAME((long)ABI_%s, (long)(PMIX_%s));\n", name, name)
	}
	for _, name := range []string{"JOB_SIZE", "COLLECT_DATA"} {
		fmt.Fprintf(&text, "SAME(sizeof ABI_%s, sizeof PMIX_%s);\nSAME(__builtin_strcmp(ABI_%s, PMIX_%s), 0);\n", name, name, name, name)
	}
	c := exec.Command("gcc", "-std=gnu11", "-fsyntax-only", "-xc", "-isystem", headers, "-")
	c.Stdin = strings.NewReader(text.String())
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
