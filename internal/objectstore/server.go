// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The server. It keeps objects as files of a directory and is no part of what is built from this module.
const (
	serverModule  = "github.com/versity/versitygw/cmd/versitygw"
	serverVersion = "v1.8.0"
)

// Bucket is there when the server starts.
const Bucket = "checkpoints"

// Keys that the server accepts.
const (
	AccessKey = "key-of-the-tests"
	SecretKey = "secret-of-the-tests"
)

// Server is one that runs until the test ends.
type Server struct {
	Endpoint string // http://127.0.0.1:PORT
	Dir      string // objects are files below it: Dir/BUCKET/KEY

	cmd  *exec.Cmd
	done chan struct{}
}

// Start starts a server with an empty bucket. The test is skipped where the server cannot be had, but where all
// tests are to run (LIBCKPT_BUILD is set) it fails.
func Start(t *testing.T) *Server {
	t.Helper()
	program, err := program()
	if err != nil {
		if os.Getenv("LIBCKPT_BUILD") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	s := &Server{Dir: t.TempDir(), done: make(chan struct{})}
	if err := os.Mkdir(filepath.Join(s.Dir, Bucket), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 5 { // somebody else may take the port first
		if err = s.start(program, t.TempDir()); err == nil {
			t.Cleanup(s.stop)
			return s
		}
	}
	t.Fatal(err)
	return nil
}

// Environment is what a client needs to reach an endpoint.
func Environment(endpoint string) []string {
	return []string{"AWS_ACCESS_KEY_ID=" + AccessKey, "AWS_SECRET_ACCESS_KEY=" + SecretKey, "AWS_ENDPOINT_URL=" + endpoint,
		"AWS_REGION=us-east-1", "NO_PROXY=127.0.0.1"}
}

// Setenv is Environment for this process.
func Setenv(t *testing.T, endpoint string) {
	t.Helper()
	for _, e := range Environment(endpoint) {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
}

// Path is the file in which an object is.
func (s *Server) Path(key string) string {
	return filepath.Join(s.Dir, Bucket, filepath.FromSlash(key))
}

func (s *Server) start(program, home string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := l.Addr().String()
	_ = l.Close()
	output, err := os.Create(filepath.Join(home, "log"))
	if err != nil {
		return err
	}
	s.Endpoint = "http://" + address
	s.cmd = exec.Command(program, "--quiet", "--port", address, "posix", s.Dir)
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+AccessKey, "ROOT_SECRET_KEY="+SecretKey, "HOME="+home)
	s.cmd.Stdout, s.cmd.Stderr = output, output
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended := make(chan struct{})
	s.done = ended
	begun := make(chan error)
	go func() { // the thread that starts it must live as long as it does
		runtime.LockOSThread()
		err := s.cmd.Start()
		begun <- err
		if err == nil {
			_ = s.cmd.Wait()
		}
		_ = output.Close()
		close(ended)
	}()
	if err := <-begun; err != nil {
		return err
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		r, err := http.Get(s.Endpoint)
		if err == nil {
			_ = r.Body.Close()
			return nil
		}
		select {
		case <-ended:
			said, _ := os.ReadFile(output.Name())
			return fmt.Errorf("the server ended: %s", said)
		case <-time.After(20 * time.Millisecond):
		}
	}
	s.stop()
	return errors.New("the server does not answer")
}

func (s *Server) stop() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

// program is the server, which is built when it is not there yet.
func program() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "libckpt", "tools", "versitygw-"+serverVersion)
	path := filepath.Join(dir, "versitygw")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "install", "-trimpath", serverModule+"@"+serverVersion)
	build.Dir = dir // outside of this module
	build.Env = append(os.Environ(), "GOBIN="+filepath.Join(dir, "new"), "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("no object store for tests: go install %s@%s: %w: %s", serverModule, serverVersion, err, out[max(0, len(out)-500):])
	}
	return path, os.Rename(filepath.Join(dir, "new", "versitygw"), path)
}
