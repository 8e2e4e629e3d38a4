// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// velocJob is examples/veloc/heat.c with libckpt_veloc.so of an MPI.
type velocJob struct {
	namedJob
	dir, config string
}

func newVelocJob(t *testing.T, mpi string, replace ...string) *velocJob {
	t.Helper()
	j := &velocJob{dir: t.TempDir()}
	j.launcher = shimLaunchers[mpi]
	j.program = buildShim(t, "veloc", "mpicc", mpi, filepath.Join(built.Root, "examples", "veloc", "heat.c"), "-std=gnu11")
	j.config = filepath.Join(j.dir, "veloc.cfg")
	text := string(mustRead(t, filepath.Join(built.Root, "examples", "veloc", "veloc.cfg")))
	text = strings.NewReplacer(append(replace, "./", j.dir+"/")...).Replace(text)
	if err := os.WriteFile(j.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return j
}

func (j *velocJob) start(env string, ranks string, argv ...string) []string {
	return append(append(append([]string{}, j.launcher...), ranks, "env", env, j.program, j.config), argv...)
}

// TestVeloC: a program with VeloC's calls is continued after kill -9, bit for bit; what the configuration says of
// intervals and modes decides where its checkpoints are.
func TestVeloC(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mpi, env string
		replace  []string
		level    int
	}{
		"async": {"mpich", "CKPT_NODE_SIZE=1", nil, 4},
		"sync":  {"openmpi", "CKPT_NODE_SIZE=1", []string{"async", "sync", "persistent_interval = 0", "persistent_interval = -1"}, 3},
		"local": {"mpich", "CKPT_NODE_SIZE=1", []string{"ec_interval = 0", "ec_interval = -1", "persistent_interval = 0", "persistent_interval = -1"}, 1},
		"alone": {"openmpi", "CKPT_GROUP=4", []string{"scratch = ./scratch", ""}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newVelocJob(t, c.mpi, c.replace...)
			r, err := NewRun(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			undisturbed := outputOf(t, j.start(c.env, "2", "2000", "0")...)
			continued(t, killedOnce(t, r, j.start(c.env, "2", "2000", "40")), undisturbed)
			epochs, err := filepath.Glob(filepath.Join(j.dir, "persistent", "epoch-*"))
			if err != nil || len(epochs) == 0 || len(epochs) > 3 { // max_versions, and the newest at each level
				t.Fatalf("%v: %v", err, epochs)
			}
			var last int
			if _, err := fmt.Sscanf(filepath.Base(epochs[len(epochs)-1]), "epoch-%d", &last); err != nil {
				t.Fatal(err)
			}
			if at := manifestLevel(filepath.Join(j.dir, "persistent"), last); name != "alone" && at != strconv.Itoa(c.level) {
				t.Errorf("the last epoch is at level %s, want %d", at, c.level)
			}
		})
	}
}

// TestVeloCErrors: what VELOC_Init and those after it refuse, and in which words.
func TestVeloCErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replace []string
		want    string
	}{
		"mode":       {[]string{"async", "fast"}, `says mode = "fast": want sync or async`},
		"persistent": {[]string{"persistent = ", "other = "}, "does not say persistent"},
		"versions":   {[]string{"max_versions = 2", "max_versions = few"}, "few"},
		"directory":  {[]string{"persistent = ./persistent", "persistent = /dev/null/below"}, "Not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newVelocJob(t, "mpich", c.replace...)
			exit, out, said := again(t, j.start("CKPT_NODE_SIZE=1", "2", "20", "10")...)
			if exit == (Exit{}) || !strings.Contains(said, c.want) {
				t.Errorf("%v: want %q: %s%s", exit, c.want, out, said)
			}
		})
	}
}
