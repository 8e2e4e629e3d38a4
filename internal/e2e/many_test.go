// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// many has as many descriptors as it may, and looks what is behind each, before and after a checkpoint.
const many = `
import errno, os, resource, time
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
have = {}
while True:
    try:
        fd = os.open("file.%d" % (len(have) % 7), os.O_RDWR | os.O_CREAT)
    except OSError as e:
        assert e.errno == errno.EMFILE, e
        break
    have[fd] = len(have) % 7
    os.write(fd, b"x" * (fd % 50))
def look():
    return all(os.path.samestat(os.fstat(fd), os.stat("file.%d" % n)) and os.lseek(fd, 0, os.SEEK_CUR) == fd % 50 for fd, n in have.items())
before = look()
r = os.fork()
if r == 0:
    os._exit(0 if look() else 1)
child = os.waitpid(r, 0)[1]
os.close(max(have))
last = max(have)
del have[last]
last = max(have)
open("ready.new", "w").close()
os.rename("ready.new", "ready")
while not os.path.exists("go"):
    time.sleep(0.001)
print("limit", limit[0] if limit[0] == limit[1] else limit, "last", last, before, child, look())
`

// TestManyDescriptors: a program has 768 descriptors, all of which are there after a restart, and 256 where the hard
// limit is low; there a program with more is not restarted, and it is said why.
func TestManyDescriptors(t *testing.T) {
	needCommands(t)
	const low = "ulimit -n 1024; "
	for name, c := range map[string]struct {
		start, restart, says string
		good                 bool
	}{
		"many":      {"", "", "limit 768 last 766 True 0 True", true},
		"few":       {low, low, "limit 256 last 254 True 0 True", true},
		"then many": {low, "", "limit 256 last 254 True 0 True", true},
		"then few":  {"", low, "ulimit -Hn", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, "many.py"), []byte(many), 0o600))
			var out strings.Builder
			cmd := exec.Command("bash", "-c", c.start+"exec "+built.CkptRun()+" --dir ckpt -- /usr/bin/python3 many.py")
			cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
			must(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			if !Poll(patience, nil, func() bool {
				_, err := os.Stat(filepath.Join(dir, "ready"))
				return err == nil || len(ended) > 0
			}) || len(ended) > 0 {
				_ = cmd.Process.Kill()
				t.Fatalf("%v\n%s", <-ended, &out)
			}
			if said, err := exec.Command(built.CkptCtl(), "checkpoint", filepath.Join(dir, "ckpt"), "--then", "exit").CombinedOutput(); err != nil {
				_ = cmd.Process.Kill()
				t.Fatalf("%v\n%s\n%v\n%s", err, said, <-ended, &out)
			}
			<-ended
			must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
			again := exec.Command("bash", "-c", c.restart+"exec "+built.CkptRun()+" --restart ckpt")
			again.Dir = dir
			said, err := again.CombinedOutput()
			if (err == nil) != c.good || !strings.Contains(string(said), c.says) {
				t.Errorf("%v, want %q\n%s", err, c.says, said)
			}
		})
	}
}
