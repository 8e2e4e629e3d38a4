// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Several nodes: namespaces of this machine (scripts/nodes.sh). Each node has its own network, host name, processes,
// boot number, /dev/shm and /tmp.

// room is some nodes and the bridge between them.
type room struct {
	t      *testing.T
	dir    string
	script string
	prefix string
	up     *exec.Cmd
	end    func()
}

// canNodes is why this machine cannot have nodes; nil when it can.
var canNodes = sync.OnceValue(func() error {
	if os.Geteuid() != 0 {
		return errors.New("namespaces need root")
	}
	for _, tool := range []string{"ip", "tc", "nsenter", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	// Inside a container some of it may be forbidden.
	try := exec.Command("unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "sh", "-c",
		"mount -n -t proc proc /proc && ip link add bridge type bridge && ip link add link1 type veth peer name eth0")
	if said, err := try.CombinedOutput(); err != nil {
		return fmt.Errorf("namespaces, a bridge and a pair of veth: %w: %s", err, said)
	}
	return nil
})

// needNodes skips the test, by its name and with the reason, where there can be no nodes.
func needNodes(t *testing.T) {
	t.Helper()
	needCommands(t)
	if err := canNodes(); err != nil {
		t.Skipf("no nodes on this machine: %v", err)
	}
}

// newRoom makes nodes, which end with the test, or with this process however it ends.
func newRoom(t *testing.T, shared string, nodes int, options ...string) *room {
	t.Helper()
	r := &room{t: t, dir: t.TempDir(), script: filepath.Join(built.Root, "scripts/nodes.sh"), prefix: "node"}
	if at := slices.Index(options, "--prefix"); at >= 0 {
		r.prefix = options[at+1]
	}
	argv := append([]string{"up", r.dir, strconv.Itoa(nodes), "--until-eof", "--keep", shared, "--keep", built.Bin}, options...)
	r.up = exec.Command(r.script, argv...)
	complaints := filepath.Join(r.dir, "complaints")
	var err error
	r.up.Stderr, err = os.Create(complaints)
	must(t, err)
	hold, err := r.up.StdinPipe()
	must(t, err)
	said, err := r.up.StdoutPipe()
	must(t, err)
	must(t, r.up.Start())
	r.end = sync.OnceFunc(func() {
		hold.Close()
		_ = r.up.Wait() // it was killed, or not
	})
	t.Cleanup(r.end)
	up := make(chan string, 1)
	go func() {
		var line [64]byte
		n, _ := said.Read(line[:])
		up <- string(line[:n])
	}()
	select {
	case line := <-up:
		if line != "up\n" {
			t.Fatalf("the nodes say %q: %s", line, mustRead(t, complaints))
		}
	case <-time.After(patience):
		t.Fatal("the nodes are not up")
	}
	return r
}

// do runs a command of nodes.sh.
func (r *room) do(verb string, args ...any) {
	r.t.Helper()
	argv := []string{verb, r.dir}
	for _, a := range args {
		argv = append(argv, fmt.Sprint(a))
	}
	if out, err := exec.Command(r.script, argv...).CombinedOutput(); err != nil {
		r.t.Fatalf("nodes.sh %s: %v: %s", strings.Join(argv, " "), err, out)
	}
}

// on is a command that runs on a node; 0 is the login node.
func (r *room) on(node int, argv ...string) []string {
	return append([]string{r.script, "on", r.dir, strconv.Itoa(node)}, argv...)
}

// mpiexec starts as many ranks on each node as asked, from the login node.
func (r *room) mpiexec(mpi string, perNode map[int]int, argv ...string) []string {
	var hosts []string
	total := 0
	for node := range 99 {
		if n := perNode[node]; n > 0 {
			hosts = append(hosts, fmt.Sprintf("%s%d:%d", r.prefix, node, n))
			total += n
		}
	}
	agent := filepath.Join(r.dir, "agent")
	// Open MPI 6 finds no two interfaces that reach each other by itself.
	launch := map[string][]string{
		"mpich": {"mpiexec.mpich", "-launcher", "ssh", "-launcher-exec", agent, "-hosts"},
		"openmpi": {"env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "mpiexec.openmpi", "--mca", "plm_rsh_agent", agent, "--mca", "mpi_yield_when_idle", "1", "--bind-to", "none",
			"--mca", "btl_tcp_if_include", "eth0", "--host"},
	}[mpi]
	return r.on(0, append(append(launch, strings.Join(hosts, ","), "-n", strconv.Itoa(total)), argv...)...)
}

// nodesJob is the heat example on nodes.
type nodesJob struct {
	*heat
	t   *testing.T
	mpi string
}

const nodesRanks = 4

func newNodesJob(t *testing.T, mpi string, steps int, more ...string) *nodesJob {
	t.Helper()
	h := newHeat(t, steps, 100*steps)
	h.argv[0] = filepath.Join(built.Root, "build/examples/heat."+mpi)
	h.argv = append(h.argv, more...)
	return &nodesJob{heat: h, t: t, mpi: mpi}
}

// undisturbed is the job without ckptrun, on this machine alone; the same for all tests with as many steps.
func undisturbed(t *testing.T, mpi string, steps int) *nodesJob {
	t.Helper()
	key := fmt.Sprint(mpi, steps)
	if undisturbedJobs[key] == nil {
		j := newNodesJob(t, mpi, steps)
		t.Setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
		t.Setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
		run, err := NewRun(filepath.Join(built.Bin, "undisturbed-"+key)) // it outlives this test
		must(t, err)
		j.run = run
		p, err := j.run.Start(j.mark, append(append(slices.Clone(launchers[mpi]), "-n", strconv.Itoa(nodesRanks)), j.argv...)...)
		must(t, err)
		if exit := j.wait(t, p); exit != (Exit{}) {
			t.Fatalf("natively: %v: %s", exit, mustRead(t, j.run.Stderr))
		}
		undisturbedJobs[key] = j
	}
	return undisturbedJobs[key]
}

var undisturbedJobs = map[string]*nodesJob{}

func (j *nodesJob) start(r *room, perNode map[int]int, options ...string) *Process {
	j.t.Helper()
	return j.launch(r, perNode, append(append([]string{built.CkptRun(), "--dir", j.run.Checkpoints()}, append(options, "--")...), j.argv...)...)
}

func (j *nodesJob) restart(r *room, perNode map[int]int, options ...string) *Process {
	j.t.Helper()
	return j.launch(r, perNode, append([]string{built.CkptRun(), "--restart", j.run.Checkpoints()}, options...)...)
}

func (j *nodesJob) launch(r *room, perNode map[int]int, argv ...string) *Process {
	j.t.Helper()
	p, err := j.run.Start(j.mark, r.mpiexec(j.mpi, perNode, argv...)...)
	must(j.t, err)
	return p
}

// ckptctl runs on the login node.
func (j *nodesJob) ckptctl(r *room, args ...string) (Exit, string) {
	j.t.Helper()
	run, err := NewRun(j.t.TempDir())
	must(j.t, err)
	must(j.t, run.Once(checkpointLimit, r.on(0, append([]string{built.CkptCtl()}, args...)...)...))
	return run.Exit, string(bytes.Join([][]byte{mustRead(j.t, run.Stdout), mustRead(j.t, run.Stderr)}, nil))
}

// save asks for a checkpoint, and waits for it.
func (j *nodesJob) save(r *room, p *Process, then string) {
	j.t.Helper()
	before := j.newest(j.t)
	exit, said := j.ckptctl(r, "checkpoint", j.run.Checkpoints(), "--then", then, "--timeout", checkpointLimit.String())
	if exit != (Exit{}) || j.newest(j.t) <= before {
		j.t.Fatalf("ckptctl checkpoint: %v: %s\n%s\nended: %v\n%s", exit, said, mustRead(j.t, j.run.Stderr), p.Ended(), Dump(j.mark.Processes()))
	}
	if then == "continue" {
		return
	}
	if _, err := p.Wait(mpiLimit); err != nil {
		j.t.Fatal(err)
	}
	must(j.t, noneLeft(j.mark))
}

// finish waits for a good end and the right result.
func (j *nodesJob) finish(p *Process, steps int) {
	j.t.Helper()
	if exit := j.wait(j.t, p); exit != (Exit{}) {
		j.t.Fatalf("%v: %s", exit, mustRead(j.t, j.run.Stderr))
	}
	j.mustEqual(j.t, undisturbed(j.t, j.mpi, steps).heat)
}

// hosts are those of the ranks of the newest epoch.
func (j *nodesJob) hosts(r *room) []string {
	j.t.Helper()
	exit, said := j.ckptctl(r, "inspect", j.run.Checkpoints())
	if exit != (Exit{}) {
		j.t.Fatalf("ckptctl inspect: %v: %s", exit, said)
	}
	found := regexp.MustCompile(`\b`+r.prefix+`\d+\b`).FindAllString(said, -1)
	slices.Sort(found)
	return slices.Compact(found)
}

// A job over three nodes is saved and continues on two, on four, and on nodes of other names and addresses: the
// result is that of a run that was not disturbed, bit for bit.
func TestNodesMove(t *testing.T) {
	needNodes(t)
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			const steps = 1200
			j := newNodesJob(t, mpi, steps)
			here := newRoom(t, j.run.Dir, 4)
			p := j.start(here, map[int]int{1: 1, 2: 2, 3: 1})
			j.save(here, p, "kill")
			if got := j.hosts(here); !slices.Equal(got, []string{"node1", "node2", "node3"}) {
				t.Errorf("saved on %v", got)
			}
			p = j.restart(here, map[int]int{1: 2, 3: 2})
			j.save(here, p, "kill")
			if got := j.hosts(here); !slices.Equal(got, []string{"node1", "node3"}) {
				t.Errorf("saved on %v", got)
			}
			p = j.restart(here, map[int]int{1: 1, 2: 1, 3: 1, 4: 1}, "--lease", "1s")
			j.save(here, p, "kill")
			if got := j.hosts(here); len(got) != 4 {
				t.Errorf("saved on %v", got)
			}
			here.end()
			there := newRoom(t, j.run.Dir, 2, "--prefix", "other", "--net", "192.168.44")
			j.finish(j.restart(there, map[int]int{1: 3, 2: 1}), steps)
		})
	}
}

// A container whose first process does not wait for processes that are left to it: a room there may never end, once a command on
// its nodes was killed, and nodes.sh says so at the start.
func TestNodesWithoutInit(t *testing.T) {
	needNodes(t)
	// Python waits for the child that it has started, and for no other.
	const first = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:], stdin=subprocess.DEVNULL))"
	up := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "python3", "-c", first,
		filepath.Join(built.Root, "scripts/nodes.sh"), "up", t.TempDir(), "1", "--until-eof")
	said, err := up.CombinedOutput()
	if err == nil || !strings.Contains(string(said), "start the container with an init") {
		t.Errorf("nodes.sh up: %v: %s", err, said)
	}
}
