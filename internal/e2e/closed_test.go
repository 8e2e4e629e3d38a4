// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/libckpt/libckpt/internal/forget"
)

// writer writes files, closes them, and waits: under their names, under a name that changes then, after they were
// written before, through a copy of their descriptor, and many of them.
const writer = `
import os, sys, time
folder, many, stop = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.makedirs(folder + "/deep/er")
def put(name, text, mode="w"):
    with open(os.path.join(folder, name), mode) as f:
        f.write(text)
put("plain", "one")
put("deep/er/plain", "two")
put("new.tmp", "three")
os.rename(folder + "/new.tmp", folder + "/renamed")
put("twice", "fi")
put("twice", "ve", "a")
fd = os.open(folder + "/over", os.O_CREAT | os.O_RDWR)
os.write(fd, b"six")
os.dup2(os.open("/dev/null", os.O_RDONLY), fd)
put("deleted", "nothing")
os.unlink(folder + "/deleted")
for i in range(many):
    put("many.%d" % i, str(i))
print("ready", flush=True)
while not os.path.exists(stop):
    time.sleep(0.01)
`

// What a program has written and closed before a checkpoint is there after a power cut, if the epoch is.
func TestClosedFilesPowerCut(t *testing.T) {
	needCommands(t)
	if fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil || os.Geteuid() != 0 {
		t.Skipf("mounting a disk that forgets needs root and /dev/fuse (%v): power cuts are not tested here", err)
	} else {
		_ = fuse.Close()
	}
	for _, many := range []int{3, 900} {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			folder := powerCutFolder(t)
			disk := forget.NewDisk()
			want := map[string]string{"plain": "one", "deep/er/plain": "two", "renamed": "three", "twice": "five", "over": "six"}
			for i := range many {
				want[fmt.Sprintf("many.%d", i)] = fmt.Sprint(i)
			}
			var left []*forget.Disk
			func() {
				unmount := mounted(t, disk, folder)
				defer unmount()
				run, err := NewRun(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				mark := NewMark()
				defer mark.KillAll()
				p, err := run.Start(mark, built.CkptRun(), "--dir", run.Checkpoints(), "--", "python3", "-c", writer,
					filepath.Join(folder, "work"), fmt.Sprint(many), filepath.Join(run.Dir, "stop"))
				if err != nil {
					t.Fatal(err)
				}
				defer p.Kill()
				if !Poll(patience, p.Done(), func() bool { return bytes.Contains(mustRead(t, run.Stdout), []byte("ready")) }) {
					t.Fatalf("it does not write: %s", mustRead(t, run.Stderr))
				}
				if exit, said := checkpoint(t, run, mark, "checkpoint", "continue"); exit != (Exit{}) {
					t.Fatalf("checkpoint: %v: %s", exit, said)
				}
				// A step of somebody else's, after which the power is cut.
				stop := disk.Record(func(m forget.Moment) {
					for loss := range forget.Losses {
						left = append(left, m.After(loss))
					}
				})
				defer stop()
				if err := os.WriteFile(filepath.Join(folder, "step"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}()
			if len(left) == 0 {
				t.Fatal("no power cut")
			}
			for i, d := range left {
				unmount := mounted(t, d, folder)
				for name, text := range want {
					if b, err := os.ReadFile(filepath.Join(folder, "work", name)); string(b) != text {
						t.Errorf("what is left %d: %s has %q, want %q (%v)", i, name, b, text, err)
						break
					}
				}
				unmount()
			}
		})
	}
}
