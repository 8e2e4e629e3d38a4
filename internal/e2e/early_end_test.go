// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/disturb"
)

// One rank cannot begin, before MPI is started: the others do not wait for it, under either launcher. What was
// wrong is said, and the next restart succeeds.
func TestOneRankCannotBegin(t *testing.T) {
	needRoot(t)
	for _, mpi := range mpis {
		for rank := range 2 {
			t.Run(fmt.Sprint(mpi, rank), func(t *testing.T) {
				program := buildMPI(t, mpi, "ring")
				j := startMPI(t, mpi, 2, func(r *Run) []string {
					return []string{built.CkptRun(), "--dir", r.Checkpoints(), "--", program, filepath.Join(r.Dir, "stop")}
				})
				if exit, said := checkpoint(t, j.run, j.mark, "save", "exit"); exit != (Exit{}) {
					t.Fatalf("checkpoint: %v: %s", exit, said)
				}
				j.mustEnd(t)
				field, err := disturb.Listen(string(j.mark), func(p *disturb.Process) {
					if p.Rank == rank {
						p.Set(&disturb.Trap{At: 1, Want: func(c *disturb.Call) bool {
							return c.Site == disturb.Library && c.Name == "openat" && strings.Contains(c.Text(), "manifest.json")
						}, Act: func(*disturb.Process, *disturb.Call) error { return unix.EMFILE }})
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				defer field.Close()
				self, err := os.Executable()
				if err != nil {
					t.Fatal(err)
				}
				again := func(env []string, argv ...string) (Exit, string) {
					t.Helper()
					errs := filepath.Join(t.TempDir(), "stderr")
					p, err := Start(Command{Argv: append(append(append([]string{}, launchers[mpi]...), "-n", strconv.Itoa(2)), argv...),
						Dir: j.run.Work(), Env: env, Mark: j.mark, Stdout: j.run.Stdout, Stderr: errs})
					if err != nil {
						t.Fatal(err)
					}
					exit, err := p.Wait(patience)
					if err != nil {
						t.Fatalf("%v\n%s", err, mustRead(t, errs))
					}
					return exit, string(mustRead(t, errs))
				}
				exit, said := again([]string{field.Variable()}, self, built.CkptRun(), "--restart", j.run.Checkpoints())
				if exit.Code != 1 || !strings.Contains(said, "manifest.json: too many open files") {
					t.Errorf("%v: %s", exit, said)
				}
				if err := noneLeft(j.mark); err != nil {
					t.Error(err)
				}
				if err := os.WriteFile(filepath.Join(j.run.Dir, "stop"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
				if exit, said := again(nil, built.CkptRun(), "--restart", j.run.Checkpoints()); exit != (Exit{}) {
					t.Errorf("the next restart: %v: %s", exit, said)
				}
			})
		}
	}
}
