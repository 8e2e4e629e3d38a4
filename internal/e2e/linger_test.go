// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// lingering listens without SO_REUSEADDR, and is the first to close a connection: its end of it then lingers at the
// port for a minute. When the file "go" is there, it serves another connection. Before that it looks that bind and
// listen fail where they should.
const lingering = `
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static struct sockaddr_in at;
static int serve(int ln) {
    char c = 0;
    int out = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(out, (struct sockaddr *)&at, sizeof at)) return 1;
    int in = accept(ln, NULL, NULL);
    if (in < 0 || write(in, "x", 1) != 1 || close(in)) return 2;
    if (read(out, &c, 1) != 1 || c != 'x' || read(out, &c, 1) != 0) return 3;
    return close(out);
}
int main(void) {
    socklen_t n = sizeof at;
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int ln = socket(AF_INET, SOCK_STREAM, 0), other = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(ln, (struct sockaddr *)&at, sizeof at) || listen(ln, 5) || getsockname(ln, (struct sockaddr *)&at, &n)) return 10;
    if (bind(other, (struct sockaddr *)&at, sizeof at) == 0 || errno != EADDRINUSE) return 11;
    if (listen(-1, 5) == 0 || errno != EBADF) return 12;
    if (listen(0, 5) == 0 || errno != ENOTSOCK) return 13;
    int error = serve(ln);
    if (error) return error;
    FILE *f = fopen("port.new", "w");
    fprintf(f, "%d\n", ntohs(at.sin_port));
    fclose(f);
    rename("port.new", "port");
    while (access("go", F_OK)) usleep(1000);
    error = serve(ln);
    printf("served again: %d\n", error);
    return error;
}`

// TestPortAfterClosedConnections: a program that listens without SO_REUSEADDR, and has closed a connection before its
// first checkpoint, has its port again at once when it is restarted, under both ways of trapping.
func TestPortAfterClosedConnections(t *testing.T) {
	needCommands(t)
	program := filepath.Join(t.TempDir(), "lingering")
	source := program + ".c"
	if err := os.WriteFile(source, []byte(lingering), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-O2", "-Wall", "-Werror", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, trap := range []string{"seccomp", "sud"} {
		t.Run(trap, func(t *testing.T) {
			dir := t.TempDir()
			var out strings.Builder
			cmd := exec.Command(built.CkptRun(), "--trap", trap, "--dir", "ckpt", "--", program)
			cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
			must(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			var port []byte
			if !Poll(patience, nil, func() bool {
				var err error
				port, err = os.ReadFile(filepath.Join(dir, "port"))
				return err == nil || len(ended) > 0
			}) || port == nil {
				_ = cmd.Process.Kill()
				t.Fatalf("%v\n%s", <-ended, &out)
			}
			if said, err := exec.Command(built.CkptCtl(), "checkpoint", filepath.Join(dir, "ckpt"), "--then", "exit").CombinedOutput(); err != nil {
				_ = cmd.Process.Kill()
				t.Fatalf("%v\n%s\n%v\n%s", err, said, <-ended, &out)
			}
			<-ended
			// What the test is about: without SO_REUSEADDR at both ends nobody has the port now.
			if ln, err := net.Listen("tcp", "127.0.0.1:"+strings.TrimSpace(string(port))); err == nil {
				_ = ln.Close()
			} else {
				t.Errorf("after its end nobody can listen at the program's port: %v", err)
			}
			must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
			again := exec.Command(built.CkptRun(), "--trap", trap, "--restart", "ckpt")
			again.Dir = dir
			if said, err := again.CombinedOutput(); err != nil || !strings.Contains(string(said), "served again: 0") {
				t.Errorf("%v\n%s", err, said)
			}
		})
	}
}
