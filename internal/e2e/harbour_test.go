// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// harbour is a job of harbour.c: ranks that meet at ports, round after round.
type harbour struct {
	run     *Run
	program string
	name    string   // that is published
	server  []string // options of mpiexec.openmpi
	files   RankFiles
	round   int // the next one

	mark Mark // of all lives: a continued program has the environment that it was saved with
	p    *Process
}

func newHarbour(t *testing.T, program string) *harbour {
	t.Helper()
	run, err := NewRun(t.TempDir())
	must(t, err)
	t.Setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
	t.Setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
	mark := NewMark()
	t.Cleanup(mark.KillAll)
	return &harbour{run: run, mark: mark, program: program, name: fmt.Sprintf("%d-%s", os.Getpid(), filepath.Base(run.Dir)),
		files: RankFiles(filepath.Join(run.Dir, "rank"))}
}

// start starts the three ranks, of this command when it is one.
func (h *harbour) start(t *testing.T, mpi string, command ...string) {
	t.Helper()
	argv := slices.Clone(launchers[mpi])
	if mpi == "openmpi" {
		argv = append(argv, h.server...)
	}
	argv = append(argv, "-n", "3")
	if len(command) == 0 || command[0] == "--dir" {
		command = append(command, h.program, h.run.Dir, h.name)
	}
	if strings.HasPrefix(command[0], "--") {
		command = append([]string{built.CkptRun()}, command...)
	}
	var err error
	h.p, err = h.run.Start(h.mark, append(argv, h.files.Argv(command...)...)...)
	must(t, err)
}

// said is what the ranks have printed to a stream.
func (h *harbour) said(stream string) string {
	text, _ := h.files.Printed(stream, 3) // there may be none yet
	return text
}

func (h *harbour) await(t *testing.T, line string) {
	t.Helper()
	if !Poll(mpiLimit, h.p.Done(), func() bool { return strings.Contains(h.said("out"), line+"\n") }) {
		t.Fatalf("%q is never said:\n%s\n%s\n%s\n%s", line, h.said("out"), h.said("err"), mustRead(t, h.run.Stderr), Dump(h.mark.Processes()))
	}
}

func (h *harbour) tell(t *testing.T, file string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(h.run.Dir, file), nil, 0o644))
}

// meet has the ranks go through four rounds: both ports, each with one root and with the other.
func (h *harbour) meet(t *testing.T) {
	t.Helper()
	for range 4 {
		h.tell(t, fmt.Sprintf("round-%d", h.round))
		h.round++
	}
	h.await(t, fmt.Sprintf("met %d", h.round-1))
}

// saveAndKill makes an epoch, and ends all ranks by kill -9.
func (h *harbour) saveAndKill(t *testing.T) {
	t.Helper()
	if out, err := exec.Command(built.CkptCtl(), "checkpoint", h.run.Checkpoints(), "--timeout", "3m").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, h.said("err"))
	}
	pids := h.mark.Ranks()
	if len(pids) != 3 {
		t.Errorf("%d ranks", len(pids))
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_, err := h.p.Wait(mpiLimit)
	must(t, err)
	must(t, noneLeft(h.mark))
}

// end has the ranks close their ports, and waits for a good end.
func (h *harbour) end(t *testing.T) {
	t.Helper()
	h.tell(t, "end")
	if exit, err := h.p.Wait(mpiLimit); err != nil || exit != (Exit{}) {
		t.Fatalf("%v, %v\n%s\n%s\n%s", exit, err, h.said("out"), h.said("err"), mustRead(t, h.run.Stderr))
	}
}

// meetsNatively says what the ranks say in so many rounds when nobody disturbs them.
func meetsNatively(t *testing.T, program string, rounds int) string {
	t.Helper()
	h := newHarbour(t, program)
	for r := range rounds {
		h.tell(t, fmt.Sprintf("round-%d", r))
	}
	h.tell(t, "end")
	h.start(t, "openmpi")
	if exit, err := h.p.Wait(mpiLimit); err != nil || exit != (Exit{}) {
		needmpi.Skip(t, "fails natively", fmt.Sprintf("Open MPI itself: %v, %v\n%s", exit, err, h.said("err")))
	}
	return h.said("out")
}

// TestPortsAgain: ports that a job has opened are there after kill -9 and a restart, and after another one. All ranks
// connect by the name that they know, or that MPI_Lookup_name gives them; the ranks that opened them accept, and close
// them in the end. The program's MPI is the one below, or another one.
func TestPortsAgain(t *testing.T) {
	needCommands(t)
	needmpi.Test(t, "openmpi")
	want := meetsNatively(t, buildMPI(t, "openmpi", "harbour"), 12)
	for _, abi := range []string{"openmpi", "mpich"} {
		t.Run("program of "+abi, func(t *testing.T) {
			h := newHarbour(t, buildMPI(t, abi, "harbour"))
			h.start(t, "openmpi", "--dir", h.run.Checkpoints())
			h.await(t, "open")
			for range 2 {
				h.meet(t)
				h.saveAndKill(t)
				h.start(t, "openmpi", "--restart", h.run.Checkpoints())
			}
			h.meet(t)
			h.end(t)
			if got := h.said("out"); got != want {
				t.Errorf("it says\n%s\nnatively\n%s", got, want)
			}
			if said := h.said("err"); said != "" {
				t.Errorf("it complains:\n%s", said)
			}
		})
	}
}

// TestPortsElsewhere: where the MPI below opens no ports, as Debian's MPICH, a job is continued all the same. The calls on
// its ports are errors that say why, on all members, and names that lead there are not found. Saved there, and
// continued above an MPI that has ports, it has its ports again.
func TestPortsElsewhere(t *testing.T) {
	needCommands(t)
	needmpi.Test(t, "openmpi", "mpich")
	program := buildMPI(t, "openmpi", "harbour")
	meetsNatively(t, program, 1)
	h := newHarbour(t, program)
	h.start(t, "openmpi", "--dir", h.run.Checkpoints())
	h.await(t, "open")
	h.meet(t)
	h.saveAndKill(t)
	before := h.said("out")

	h.start(t, "mpich", "--restart", h.run.Checkpoints())
	h.meet(t)
	lost := strings.Count(h.said("out"), "MPI_ERR_PORT: this port was not opened again at the restart: ")
	switch said := h.said("err"); {
	case lost == 0 && strings.Contains(h.said("out"), "round 7: looked up\n"):
		needmpi.Skip(t, "MPICH has ports", "this MPICH has ports: "+h.said("out"))
	case lost != 12 || strings.Count(h.said("out"), "no such name\n") != 4:
		t.Errorf("four rounds of three ranks without ports:\n%s", h.said("out"))
	case strings.Count(said, "1 port of MPI_Open_port could not be opened again by mpich; ") != 2:
		t.Errorf("it does not say what is lost: %s", said)
	}
	h.saveAndKill(t)
	after := strings.Count(h.said("out"), "\n")

	h.start(t, "openmpi", "--restart", h.run.Checkpoints())
	h.meet(t)
	h.end(t)
	said := h.said("out")
	// Each round has six lines of those who meet, one of the look-up among them, and one that it is over; one more at the end.
	if lines := strings.Count(said, "\n") - after; lines != strings.Count(before, "\n")-1+1 || strings.Count(said, "MPI_ERR_PORT") != lost ||
		!strings.Contains(said, "closed after 12 rounds\n") {
		t.Errorf("above Open MPI again it says\n%s", said)
	}
}

// TestPortsForOthers: a name that was published leads to the port as it is now also for another job, which runs without
// ckptrun, and which a name server has told of it that outlived the job that published it first.
func TestPortsForOthers(t *testing.T) {
	needCommands(t)
	needmpi.Test(t, "openmpi")
	program := buildMPI(t, "openmpi", "harbour")
	meetsNatively(t, program, 1)
	server, err := exec.LookPath("ompi-server")
	if err != nil {
		needmpi.Skip(t, "no ompi-server", "Open MPI's name server is not here: "+err.Error())
	}
	h := newHarbour(t, program)
	uri := filepath.Join(h.run.Dir, "uri")
	mark := NewMark()
	t.Cleanup(mark.KillAll)
	_, err = h.run.Start(mark, server, "--no-daemonize", "-r", uri)
	must(t, err)
	if !Poll(patience, nil, func() bool { b, err := os.ReadFile(uri); return err == nil && len(b) > 0 }) {
		t.Fatalf("no name server: %s", mustRead(t, h.run.Stderr))
	}
	h.server = []string{"--ompi-server", "file:" + uri}
	h.start(t, "openmpi", "--dir", h.run.Checkpoints())
	h.await(t, "open")
	for life := range 3 {
		if life > 0 {
			h.saveAndKill(t)
			h.start(t, "openmpi", "--restart", h.run.Checkpoints())
		}
		h.tell(t, fmt.Sprintf("visit-%d", h.round))
		h.tell(t, fmt.Sprintf("round-%d", h.round))
		h.await(t, fmt.Sprintf("round %d: looked up", h.round))
		visit, err := NewRun(filepath.Join(h.run.Dir, fmt.Sprintf("visitor-%d", life)))
		must(t, err)
		argv := append(append(slices.Clone(launchers["openmpi"]), h.server...), "-n", "1", program, h.run.Dir, h.name, "visitor")
		must(t, visit.Once(mpiLimit, argv...))
		if want := fmt.Sprintf("visitor: 7 to 1: %d, -1\n", 100*h.round); visit.Exit != (Exit{}) || string(mustRead(t, visit.Stdout)) != want {
			t.Fatalf("life %d: the visitor says %q, wanted %q: %v\n%s", life, mustRead(t, visit.Stdout), want, visit.Exit, mustRead(t, visit.Stderr))
		}
		h.await(t, fmt.Sprintf("met %d", h.round))
		h.round++
	}
	h.end(t)
	if said := h.said("out"); strings.Count(said, "visited: ") != 3 {
		t.Errorf("it says\n%s", said)
	}
	if said := h.said("err"); said != "" {
		t.Errorf("it complains:\n%s", said)
	}
}
