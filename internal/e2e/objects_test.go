// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/internal/objectstore"
)

// objectJob is a job with level 4 in an object store, behind a proxy.
type objectJob struct {
	*leveledJob
	server *objectstore.Server
	proxy  *objectstore.Proxy
	place  string
}

func newObjects(t *testing.T, mpi string) *objectJob {
	t.Helper()
	j := &objectJob{server: objectstore.Start(t), place: "s3://" + objectstore.Bucket + "/jobs/one"}
	j.proxy = j.server.Proxy(t)
	objectstore.Setenv(t, j.proxy.Endpoint)
	j.leveledJob = newLeveled(t, mpi)
	return j
}

func (j *objectJob) start(t *testing.T, levels string) *Process {
	t.Helper()
	return j.startWithin(t, levels, "30s")
}

// startWithin is start with --object-timeout.
func (j *objectJob) startWithin(t *testing.T, levels, timeout string) *Process {
	t.Helper()
	return j.launch(t, built.CkptRun(), "--local", j.nodes.local(), "--levels", levels, "--object", j.place, "--object-timeout", timeout,
		"--dir", j.run.Checkpoints(), "--log", "info", "--", buildMPI(t, j.mpi, "ring"), j.stop)
}

// object is the file of the server in which an object is.
func (j *objectJob) object(epoch int, name string) string {
	return j.server.Path(fmt.Sprintf("jobs/one/epoch-%06d/%s", epoch, name))
}

// finish continues the job to its end, and returns what it said.
func (j *objectJob) finish(t *testing.T, argv ...string) string {
	t.Helper()
	before := len(mustRead(t, j.run.Stderr))
	if err := os.WriteFile(j.stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := j.launch(t, append([]string{built.CkptRun()}, argv...)...)
	exit, err := p.Wait(patience)
	said := string(mustRead(t, j.run.Stderr)[before:])
	if err != nil || exit != (Exit{}) {
		t.Fatalf("%v, %v\n%s", exit, err, said)
	}
	if out := string(mustRead(t, j.run.Stdout)); !strings.Contains(out, "done") {
		t.Errorf("printed %q", out)
	}
	return said
}

// loseAll removes the checkpoint directory and empties all local disks.
func (j *objectJob) loseAll(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(j.run.Checkpoints()); err != nil {
		t.Fatal(err)
	}
	j.nodes.lose(t, 0, 1, 2, 3)
}

// TestObjectStore saves a job into an object store, kills it with kill -9, loses the directory and all local disks, and
// continues it from the store.
func TestObjectStore(t *testing.T) {
	for _, mpi := range []string{"mpich", "openmpi"} {
		for _, c := range []struct {
			name string
			from func(j *objectJob) []string
		}{
			{"place", func(j *objectJob) []string {
				return []string{"--local", j.nodes.local(), "--dir", j.run.Checkpoints(), "--restart", j.place}
			}},
			{"epoch", func(j *objectJob) []string {
				return []string{"--local", j.nodes.local(), "--dir", j.run.Checkpoints(), "--restart", j.place + "@2"}
			}},
			{"directory", func(j *objectJob) []string {
				return []string{"--local", j.nodes.local(), "--object", j.place, "--restart", j.run.Checkpoints()}
			}},
		} {
			t.Run(mpi+"/"+c.name, func(t *testing.T) {
				j := newObjects(t, mpi)
				p := j.start(t, "L1:every,L2:2,L4:2")
				j.save(t, p, 1, "1")
				j.save(t, p, 2, "4")
				j.kill(t, p)
				j.loseAll(t)
				said := j.finish(t, c.from(j)...)
				if !strings.Contains(said, "brought from the object store") || !strings.Contains(said, "epoch 2") {
					t.Errorf("says %s", said)
				}
			})
		}
	}
}

// TestObjectStoreIncrements: an epoch with what changed is brought to the store with those that it needs, and these stay
// there although fewer are kept. All else is lost, and the job goes on from the chain in the store.
func TestObjectStoreIncrements(t *testing.T) {
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			server := objectstore.Start(t)
			objectstore.Setenv(t, server.Proxy(t).Endpoint)
			place := "s3://" + objectstore.Bucket + "/jobs/drift"
			to := []string{"--full", "every", "4", "--keep", "1", "--levels", "L1:every,L4:6", "--object", place}
			d := killedDrift(t, mpi, "4", to...)
			for epoch, want := range map[int]bool{3: false, 5: true, 6: true} {
				at := server.Path(fmt.Sprintf("jobs/drift/epoch-%06d/manifest.json", epoch))
				if _, err := os.Stat(at); (err == nil) != want {
					t.Errorf("epoch %d in the store: %v", epoch, err)
				}
			}
			must(t, os.RemoveAll(d.run.Checkpoints()))
			d.nodes.lose(t, 0, 1, 2, 3)
			d.ends(t, to, "brought from the object store", "epoch 6")
			m := string(mustRead(t, filepath.Join(d.run.Checkpoints(), "epoch-000006", "manifest.json")))
			if !strings.Contains(m, `"parent": 5`) {
				t.Errorf("manifest of epoch 6: %s", m)
			}
		})
	}
}

// TestObjectStoreStandsIn loses the local disks, and the directory stays: its newest epoch is lost, and one that is in the
// store is taken.
func TestObjectStoreStandsIn(t *testing.T) {
	j := newObjects(t, "mpich")
	p := j.start(t, "L1:every,L4:2")
	j.save(t, p, 1, "1")
	j.save(t, p, 2, "4")
	j.save(t, p, 3, "1")
	j.kill(t, p)
	j.nodes.lose(t, 0, 1, 2, 3)
	said := j.finish(t, "--local", j.nodes.local(), "--restart", j.run.Checkpoints())
	if !strings.Contains(said, "epoch 3 is lost") || !strings.Contains(said, "taken instead: epoch 2 (level 4)") {
		t.Errorf("says %s", said)
	}
}

// TestObjectStoreCommands lists, checks, copies and removes epochs in the store by ckptctl.
func TestObjectStoreCommands(t *testing.T) {
	j := newObjects(t, "mpich")
	p := j.start(t, "L1:every,L4:every")
	j.save(t, p, 1, "4")
	j.save(t, p, 2, "4")
	j.kill(t, p)
	j.loseAll(t)
	ctl := func(status int, args ...string) string {
		t.Helper()
		out, err := exec.Command(built.CkptCtl(), args...).CombinedOutput()
		var exit *exec.ExitError
		got := 0
		if errors.As(err, &exit) {
			got = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if got != status {
			t.Fatalf("ckptctl %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	want := func(said, what string) {
		t.Helper()
		if !strings.Contains(said, what) {
			t.Errorf("says %q, want %q", said, what)
		}
	}
	want(ctl(0, "ls", j.place), "committed")
	want(ctl(0, "verify", j.place+"@1"), "4 images")
	back := filepath.Join(t.TempDir(), "back")
	want(ctl(0, "copy", j.place+"@1", back), "4 files")
	want(ctl(0, "verify", back), "all sound")
	want(ctl(0, "copy", back, j.place+"/more"), "4 files")
	want(ctl(0, "copy", back, j.place+"/more"), "is there already")
	want(ctl(0, "verify", j.place+"/more"), "all sound")
	want(ctl(2, "copy", back, j.place+"/more@2"), "keeps its number")
	want(ctl(0, "gc", j.place, "--keep", "1"), "removed epoch 1")
	want(ctl(3, "ls", j.place+"/none"), "no committed checkpoint")
	want(ctl(3, "verify", j.place+"@1"), "no committed checkpoint")
	image := j.object(2, "rank-00001.ckpt")
	b := mustRead(t, image)
	b[len(b)/2] ^= 1
	if err := os.WriteFile(image, b, 0o600); err != nil {
		t.Fatal(err)
	}
	want(ctl(1, "verify", j.place), "rank-00001.ckpt: DAMAGED")
	want(ctl(1, "copy", j.place, filepath.Join(t.TempDir(), "bad")), "is damaged: digest")
	if said := j.finish(t, "--dir", j.run.Checkpoints(), "--restart", j.place+"/more"); !strings.Contains(said, "brought from the object store") {
		t.Errorf("without local directories: says %s", said)
	}
}

// TestObjectStoreDamaged has the newest epoch of the store damaged: an older one is taken, and verify finds it.
func TestObjectStoreDamaged(t *testing.T) {
	for _, c := range []struct {
		name, object string
		spoil        func(b []byte) []byte
		says         string
	}{
		{"image", "rank-00002.ckpt", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, "is damaged: digest"},
		{"short", "rank-00002.ckpt", func(b []byte) []byte { return b[:len(b)/2] }, "is damaged: length"},
		{"manifest", "manifest.json", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, "epoch 2 is lost"},
		{"gone", "rank-00002.ckpt", nil, "it is not there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newObjects(t, "mpich")
			p := j.start(t, "L1:every,L4:every")
			j.save(t, p, 1, "4")
			j.save(t, p, 2, "4")
			j.kill(t, p)
			j.loseAll(t)
			path := j.object(2, c.object)
			if c.spoil == nil {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			} else if err := os.WriteFile(path, c.spoil(mustRead(t, path)), 0o600); err != nil {
				t.Fatal(err)
			}
			said := j.finish(t, "--local", j.nodes.local(), "--dir", j.run.Checkpoints(), "--restart", j.place)
			if !strings.Contains(said, c.says) || !strings.Contains(said, "taken instead: epoch 1") {
				t.Errorf("says %s", said)
			}
		})
	}
}

// TestObjectStoreKept: what is kept of a file beside an image rots here, and the store has it. When that is rotten, too,
// an older epoch is taken, with the file as it was then.
func TestObjectStoreKept(t *testing.T) {
	needCommands(t)
	server, place := objectstore.Start(t), "s3://"+objectstore.Bucket+"/jobs/one"
	objectstore.Setenv(t, server.Proxy(t).Endpoint)
	run, err := NewRun(t.TempDir())
	must(t, err)
	mark := NewMark()
	t.Cleanup(mark.KillAll)
	out, hold, local := filepath.Join(run.Dir, "out"), filepath.Join(run.Dir, "hold"), filepath.Join(run.Dir, "local")
	must(t, os.Mkdir(local, 0o700))
	p, err := run.Start(mark, built.CkptRun(), "--dir", run.Checkpoints(), "--files-copy", "0", "--local", local,
		"--levels", "L1:every,L4:every", "--object", place, "--",
		"/usr/bin/python3", filepath.Join(built.Src, "appends.py"), out, hold)
	must(t, err)
	const step = 400_000
	for n := 1; n <= 3; n++ {
		if !Poll(patience, p.Done(), func() bool { st, err := os.Stat(out); return err == nil && st.Size() == int64(n*step) }) {
			t.Fatalf("step %d is not there: %s", n, mustRead(t, run.Stderr))
		}
		if n < 3 {
			if exit, said := checkpoint(t, run, mark, fmt.Sprintf("checkpoint-%d", n), "continue"); exit != (Exit{}) {
				t.Fatalf("checkpoint %d: %v: %s", n, exit, said)
			}
			if !Poll(patience, p.Done(), func() bool { return levelOf(run, n) == "4" }) {
				t.Fatalf("epoch %d does not come to the store: %s", n, mustRead(t, run.Stderr))
			}
		}
		writeFile(t, fmt.Sprintf("%s.%d", hold, n), nil)
	}
	exit, err := p.Wait(patience)
	if err != nil || exit != (Exit{}) {
		t.Fatalf("%v %v: %s", exit, err, mustRead(t, run.Stderr))
	}
	want := string(mustRead(t, run.Stdout))
	const file = "rank-00000-file-000"
	for _, c := range []struct {
		name  string
		rot   []string
		words []string
	}{
		{"here", []string{filepath.Join(run.Checkpoints(), "epoch-000002", file)}, []string{"brought from the object store", "epoch-000002/" + file}},
		{"in the store, too", []string{filepath.Join(run.Checkpoints(), "epoch-000002", file), server.Path("jobs/one/epoch-000002/" + file)},
			[]string{"could not be brought from the object store", "taken instead: epoch 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			must(t, os.Remove(out))
			for _, path := range c.rot {
				flip(t, path, 2*step-1)
			}
			again, err := NewRun(t.TempDir())
			must(t, err)
			must(t, again.Once(patience, built.CkptRun(), "--local", local, "--restart", run.Checkpoints()))
			said := string(mustRead(t, again.Stderr))
			if got := string(mustRead(t, again.Stdout)); again.Exit != (Exit{}) || got != want {
				t.Errorf("%v, printed %q, want %q: %s", again.Exit, got, want, said)
			}
			for _, w := range c.words {
				if !strings.Contains(said, w) {
					t.Errorf("want %q: %s", w, said)
				}
			}
		})
	}
}

// TestObjectStoreSlow: while the store takes nothing, newer epochs come to the levels below it. When it does again, the
// epoch that waited comes to level 4.
func TestObjectStoreSlow(t *testing.T) {
	j := newObjects(t, "mpich")
	p := j.startWithin(t, "L1:every,L2:every,L4:2", "5m")
	j.proxy.Set(objectstore.Fault{Do: objectstore.Paused, Method: "PUT"})
	j.save(t, p, 1, "2")
	j.save(t, p, 2, "2")
	<-j.proxy.Met()
	j.save(t, p, 3, "2")
	j.save(t, p, 4, "2")
	if level := levelOf(j.run, 2); level != "2" {
		t.Errorf("epoch 2 is at level %s without the store", level)
	}
	j.proxy.Set()
	j.proxy.Resume()
	if !Poll(patience, p.Done(), func() bool { return levelOf(j.run, 2) == "4" && levelOf(j.run, 4) == "4" }) {
		t.Errorf("epochs 2 and 4 are at levels %s and %s", levelOf(j.run, 2), levelOf(j.run, 4))
	}
	j.kill(t, p)
	j.loseAll(t)
	if said := j.finish(t, "--local", j.nodes.local(), "--dir", j.run.Checkpoints(), "--restart", j.place); !strings.Contains(said, "epoch 4") {
		t.Errorf("says %s", said)
	}
}

// TestObjectStoreFails has the store fail in the ways in which stores do, while an epoch is brought there. The job runs on,
// the epoch before is as it was, and the user is told.
func TestObjectStoreFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault objectstore.Fault
		says  string
	}{
		{"silent", objectstore.Fault{Do: objectstore.Silent, Method: "PUT"}, "no byte moved for 2s"},
		{"errors", objectstore.Fault{Do: objectstore.Status, Code: 500, Word: "InternalError"}, "InternalError"},
		{"no room", objectstore.Fault{Do: objectstore.Status, Method: "PUT", Code: 507, Word: "XMinioStorageFull"}, "no room left"},
		{"denied", objectstore.Fault{Do: objectstore.Status, Method: "PUT", Has: "rank-00003", Code: 403, Word: "AccessDenied"}, "does not allow it"},
		{"changed", objectstore.Fault{Do: objectstore.Changed, Method: "PUT", Has: "rank-00001"}, "rank-00001"},
		{"cut", objectstore.Fault{Do: objectstore.CutOff, Method: "PUT"}, "put s3://"},
		{"manifest", objectstore.Fault{Do: objectstore.Nothing, Method: "PUT", Has: "manifest"}, "manifest.json"},
		{"no bucket", objectstore.Fault{Do: objectstore.Status, Code: 404, Word: "NoSuchBucket"}, "there is no bucket"},
		{"wrong key", objectstore.Fault{Do: objectstore.Status, Code: 403, Word: "InvalidAccessKeyId"}, "does not accept the keys"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newObjects(t, "mpich")
			timeout := "30s"
			if c.fault.Do == objectstore.Silent {
				timeout = "2s"
			}
			p := j.startWithin(t, "L1:every,L4:every", timeout)
			j.save(t, p, 1, "4")
			j.proxy.Set(c.fault)
			j.save(t, p, 2, "1")
			if !Poll(patience, p.Done(), func() bool {
				return strings.Contains(string(mustRead(t, j.run.Stderr)), "epoch 2 could not be raised to level 4")
			}) {
				t.Fatalf("nothing is said\n%s", mustRead(t, j.run.Stderr))
			}
			if said := string(mustRead(t, j.run.Stderr)); !strings.Contains(said, c.says) {
				t.Errorf("says %s", said)
			}
			j.proxy.Set()
			if _, err := os.Stat(j.object(2, "manifest.json")); err == nil {
				t.Error("the epoch is in the store")
			}
			j.save(t, p, 3, "4")                       // when all is well again, so is this
			if !Poll(patience, p.Done(), func() bool { // old epochs go after that
				_, err := os.Stat(filepath.Dir(j.object(2, "x")))
				return err != nil
			}) {
				t.Error("what was left of epoch 2 is still in the store")
			}
			j.proxy.Set(c.fault)
			j.save(t, p, 4, "1")
			j.kill(t, p)
			j.proxy.Set()
			j.loseAll(t)
			said := j.finish(t, "--local", j.nodes.local(), "--dir", j.run.Checkpoints(), "--restart", j.place)
			if !strings.Contains(said, "epoch 3 (level 4)") {
				t.Errorf("says %s", said)
			}
		})
	}
}

// TestObjectStoreKilled kills a job while it brings an epoch to the store: the epoch before is continued.
func TestObjectStoreKilled(t *testing.T) {
	for _, has := range []string{"rank-00002", "manifest"} {
		t.Run(has, func(t *testing.T) {
			j := newObjects(t, "mpich")
			p := j.start(t, "L1:every,L4:every")
			j.save(t, p, 1, "4")
			j.proxy.Set(objectstore.Fault{Do: objectstore.Paused, Method: "PUT", Has: has})
			j.save(t, p, 2, "1")
			<-j.proxy.Met()
			j.kill(t, p)
			j.proxy.Set()
			j.loseAll(t)
			said := j.finish(t, "--local", j.nodes.local(), "--dir", j.run.Checkpoints(), "--restart", j.place)
			if !strings.Contains(said, "epoch 1 (level 4)") {
				t.Errorf("says %s", said)
			}
		})
	}
}
