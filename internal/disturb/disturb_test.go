// SPDX-License-Identifier: Apache-2.0

package disturb

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is what a small thing may take on a loaded machine. Nothing is decided by it.
const patience = time.Minute

func TestMain(m *testing.M) {
	if err := Enter(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(127)
	}
	if os.Getenv("DISTURB_TEST") != "" {
		echo()
		return
	}
	os.Exit(m.Run())
}

// echo connects to itself in another process: who has no address on its input listens. What is said to one
// comes out of the other.
func echo() {
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	var conn net.Conn
	var err error
	if in.Text() == "" {
		var l net.Listener
		if l, err = net.Listen("tcp4", "127.0.0.1:0"); err == nil {
			fmt.Println(l.Addr())
			conn, err = l.Accept()
		}
	} else {
		conn, err = net.Dial("tcp4", in.Text())
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("connected")
	go func() {
		heard := bufio.NewScanner(conn)
		for heard.Scan() {
			fmt.Println("heard", heard.Text())
		}
		fmt.Println("ended", heard.Err())
	}()
	for in.Scan() {
		fmt.Fprintln(conn, in.Text())
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a filter with a listener, and the sockets of others, need root")
	}
}

func field(t *testing.T, started func(*Process)) *Field {
	t.Helper()
	needRoot(t)
	f, err := Listen(fmt.Sprint(os.Getpid(), t.Name()), started)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func command(t *testing.T, f *Field, env []string, argv ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if argv[0], err = exec.LookPath(argv[0]); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, argv...)
	cmd.Env = append(append(os.Environ(), env...), f.Variable(), "LC_ALL=C")
	return cmd
}

// The n-th call fails, and no other; the processes are those of a shell and its children.
func TestCallFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for at := range 4 {
		seen := make(chan string, 8)
		f := field(t, func(p *Process) {
			p.Set(&Trap{At: at, Want: func(c *Call) bool { return strings.HasSuffix(c.Text(), "/file") && c.Name == "openat" },
				Act: func(_ *Process, c *Call) error { seen <- c.Text(); return unix.EIO }})
		})
		out, err := command(t, f, nil, "sh", "-c", "cat "+file+"; cat "+file).CombinedOutput()
		want := map[int]string{0: "", 1: "text\n", 2: "text\n", 3: "text\ntext\n"}[at]
		failures := map[int]int{0: 2, 1: 1, 2: 1, 3: 0}[at]
		var left string
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, "Input/output error") {
				left += line
			}
		}
		if left != want || strings.Count(string(out), "Input/output error") != failures || len(seen) != failures {
			t.Errorf("call %d: %v, %q, %d calls", at, err, out, len(seen))
		}
		f.Close()
	}
}

// A call waits for as long as the test wants; when the process is killed meanwhile, that ends too.
func TestCallWaits(t *testing.T) {
	held, goOn := make(chan *Process, 1), make(chan struct{})
	f := field(t, func(p *Process) {
		p.Set(&Trap{At: 1, Want: func(c *Call) bool { return strings.HasSuffix(c.Text(), "/nothing") },
			Act: func(p *Process, _ *Call) error { held <- p; <-goOn; return nil }})
	})
	for _, kill := range []bool{false, true} {
		cmd := command(t, f, []string{"PMI_RANK=3"}, "cat", "/nothing")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p := <-held
		if p.Rank != 3 || p.PID != cmd.Process.Pid || f.Rank(3) != p {
			t.Errorf("%+v, expected rank 3, process %d", p, cmd.Process.Pid)
		}
		if kill {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			close(goOn)
		} else {
			goOn <- struct{}{}
			if err := cmd.Wait(); err == nil {
				t.Error("there is no such file")
			}
		}
		select {
		case <-p.Done():
		case <-time.After(patience):
			t.Fatal("its end is not noticed")
		}
	}
}

// peer is one end of a connection, in a process of its own.
type peer struct {
	in  io.Writer
	out chan string
}

func (p *peer) line(t *testing.T) string {
	t.Helper()
	select {
	case l := <-p.out:
		return l
	case <-time.After(patience):
		t.Fatal("no line")
	}
	return ""
}

func (p *peer) say(t *testing.T, s string) {
	t.Helper()
	if _, err := fmt.Fprintln(p.in, s); err != nil {
		t.Fatal(err)
	}
}

// A connection that is cut in one direction carries nothing there, and all in the other; healed, what was said
// meanwhile arrives. A reset ends it for both.
func TestNetwork(t *testing.T) {
	f := field(t, nil)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var peers [2]*peer
	for i := range peers {
		cmd := command(t, f, []string{fmt.Sprint("PMI_RANK=", i), "DISTURB_TEST=1"}, self)
		in, ierr := cmd.StdinPipe()
		out, oerr := cmd.StdoutPipe()
		if err := errors.Join(ierr, oerr, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		p := &peer{in, make(chan string, 16)}
		go func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				p.out <- lines.Text()
			}
		}()
		peers[i] = p
	}
	peers[0].say(t, "")
	peers[1].say(t, peers[0].line(t))
	for _, p := range peers {
		if l := p.line(t); l != "connected" {
			t.Fatal(l)
		}
	}
	hears := func(p *peer, want string) {
		t.Helper()
		if l := p.line(t); l != "heard "+want {
			t.Fatalf("%q, expected to hear %q", l, want)
		}
	}
	peers[0].say(t, "a")
	hears(peers[1], "a")
	if err := f.Cut(0, 1); err != nil {
		t.Fatal(err)
	}
	peers[0].say(t, "b") // is lost
	for range 3 {
		peers[1].say(t, "c")
		hears(peers[0], "c")
	}
	if n := len(peers[1].out); n > 0 {
		t.Errorf("%q in the direction that is cut", <-peers[1].out)
	}
	if err := f.Heal(0, 1); err != nil {
		t.Fatal(err)
	}
	hears(peers[1], "b")
	if err := f.Reset(0, 1); err != nil {
		t.Fatal(err)
	}
	for _, p := range peers {
		if l := p.line(t); !strings.HasPrefix(l, "ended") {
			t.Errorf("%q after a reset", l)
		}
	}
}
