// SPDX-License-Identifier: Apache-2.0

package levels

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"github.com/libckpt/libckpt/internal/fault"
)

func TestPolicy(t *testing.T) {
	p, err := ParsePolicy(DefaultPolicy)
	if err != nil || p.String() != DefaultPolicy {
		t.Fatalf("%v, %v", p, err)
	}
	for epoch, want := range map[int]string{1: "[]", 4: "[2]", 8: "[2 3]", 32: "[2 3 4]", 36: "[2]"} {
		if got := fmt.Sprint(p.Due(epoch, false)); got != want {
			t.Errorf("epoch %d is raised to %s, want %s", epoch, got, want)
		}
	}
	if got := fmt.Sprint(p.Due(1, true)); got != "[2 3 4]" {
		t.Errorf("the last epoch is raised to %s", got)
	}
	if one, dropped := p.For(1); one.String() != "L1:every,L4:32" || fmt.Sprint(dropped) != "[2 3]" {
		t.Errorf("on one node: %v without %v", one, dropped)
	}
	for _, bad := range []string{"", "L2:4", "L1:2", "L1:every,L2", "L1:every,L2:0", "L1:every,L2:-1", "L1:every,L5:2", "L1:every,L2:4,L2:8",
		"L1:every,,L2:4", "L1:every,l2:4", "L1:every,L2:4.5", "L1:every,L2:99999999", "L1:every,L02:4"} {
		if _, err := ParsePolicy(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzPolicy(f *testing.F) {
	f.Add(DefaultPolicy)
	f.Add("L1:every,L3:2")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePolicy(text)
		if err != nil {
			return
		}
		if again, err := ParsePolicy(p.String()); err != nil || again != p {
			t.Errorf("%q: %v, %v", text, again, err)
		}
	})
}

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		nodes, g int
		want     string
	}{{1, 4, "[[0]]"}, {2, 4, "[[0 1]]"}, {4, 4, "[[0 1 2 3]]"}, {5, 4, "[[0 1 2 3 4]]"}, {6, 4, "[[0 1 2 3] [4 5]]"}, {5, 2, "[[0 1] [2 3 4]]"}} {
		var names []string
		for n := range c.nodes {
			for range 3 {
				names = append(names, fmt.Sprint("n", n))
			}
		}
		l := NewLayout(names, c.g)
		if got := fmt.Sprint(l.Groups); got != c.want {
			t.Errorf("%d nodes in groups of %d: %s, want %s", c.nodes, c.g, got, c.want)
		}
		for n := range c.nodes {
			if l.Leader(n) != 3*n || len(l.Processes(n)) != 3 {
				t.Errorf("node %d: leader %d, processes %v", n, l.Leader(n), l.Processes(n))
			}
		}
	}
	l := NewLayout([]string{"a", "b", "c", "a"}, 4)
	if l.Before(0) != 2 || l.Before(1) != 0 || fmt.Sprint(l.Processes(0)) != "[0 3]" {
		t.Errorf("%+v", l)
	}
}

// cluster is nodes with local directories of their own, in one process.
type cluster struct {
	t      *testing.T
	layout Layout
	places []Place
	shared string
	record *Record
	want   map[string][]byte
	gone   map[int]bool // processes that nobody can reach
}

const epoch = 3

// memory is a directory that takes no time, where the machine has one.
func memory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "levels-test")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

var errUnsound = errors.New("is not as it was written")

// newCluster has an epoch at level 1 on so many nodes with two files each.
func newCluster(t *testing.T, nodes, g int) *cluster {
	t.Helper()
	c := &cluster{t: t, shared: memory(t), want: map[string][]byte{}, gone: map[int]bool{}}
	var names []string
	for n := range nodes {
		names = append(names, fmt.Sprint("n", n), fmt.Sprint("n", n))
		c.places = append(c.places, Place{memory(t), "set-0123456789abcdef"})
		if err := errors.Join(c.places[n].Make(), c.places[n].Begin(epoch)); err != nil {
			t.Fatal(err)
		}
	}
	c.layout = NewLayout(names, g)
	random := rand.NewChaCha8([32]byte{7})
	var files []File
	for p := range names {
		b := make([]byte, 1000+p*137+(p%3)*block)
		_, _ = random.Read(b) // never fails
		name := fmt.Sprintf("rank-%05d.ckpt", p)
		c.want[name] = b
		files = append(files, File{name, int64(len(b))})
		if err := os.WriteFile(c.places[p/2].Path(epoch, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.record = NewRecord(&c.layout, c.places[0].Set, "/local", files)
	return c
}

func (c *cluster) sound(_ int, file, path string) error {
	b, err := os.ReadFile(path)
	if err == nil && !bytes.Equal(b, c.want[file]) {
		err = fmt.Errorf("%s %w", path, errUnsound)
	}
	return err
}

// dial reaches the leader of a node: the first of its two processes.
func (c *cluster) dial(process int) (Conn, error) {
	if c.gone[process] {
		return nil, errors.New("connection refused")
	}
	near, far := net.Pipe()
	go func() { _ = c.places[process/2].Serve(far, c.sound) }()
	return near, nil
}

// raise raises the epoch to a level on all nodes.
func (c *cluster) raise(level int) error {
	var peers []Peer
	for n, name := range c.layout.Names {
		peers = append(peers, Peer{name, c.layout.Leader(n)})
	}
	rec := c.record.Clone()
	for n := range peers {
		task := &Task{Level: level, Epoch: epoch, Record: c.record, Peers: peers, Node: n}
		if err := task.Check(); err != nil {
			return err
		}
		parity, err := c.places[n].Do(task, c.dial, func(path string) error { return c.sound(epoch, filepath.Base(path), path) }, c.shared)
		if err != nil {
			return err
		}
		if level == Coded {
			rec.Nodes[n].Parity = parity
		}
	}
	rec.Complete(level)
	c.record = rec
	return c.record.Check()
}

// meeting is an all-gather of goroutines.
type meeting struct {
	processes int
	mu        sync.Mutex
	now       *round
}

type round struct {
	words [][]byte
	came  int
	all   chan struct{}
}

func (m *meeting) gather(p int, mine []byte) [][]byte {
	m.mu.Lock()
	if m.now == nil {
		m.now = &round{words: make([][]byte, m.processes), all: make(chan struct{})}
	}
	r := m.now
	r.words[p] = mine
	if r.came++; r.came == m.processes {
		close(r.all)
		m.now = nil
	}
	m.mu.Unlock()
	<-r.all
	return r.words
}

// restart has each process want its file, wherever of says that it is now.
func (c *cluster) restart(of []int) (Outcome, error) {
	processes := len(of)
	m := &meeting{processes: processes}
	dial := func(process int) (Conn, error) {
		near, far := net.Pipe()
		go func() { _ = c.places[of[process]].Serve(far, c.sound) }()
		return near, nil
	}
	outcomes, errs := make([]Outcome, processes), make([]error, processes)
	done := make(chan int)
	for p := range processes {
		go func() {
			defer func() { done <- p }()
			b := &Rebuild{Place: c.places[of[p]], Node: fmt.Sprint("now", of[p]), Process: p, Records: map[int]*Record{epoch: c.record},
				Wants: []Want{{epoch, fmt.Sprintf("rank-%05d.ckpt", p)}}, Sound: c.sound,
				Shared:  func(_ int, file string) string { return filepath.Join(c.shared, file) },
				Gather:  func(mine []byte) ([][]byte, error) { return m.gather(p, mine), nil },
				Connect: func() (Dial, error) { return dial, nil }}
			outcomes[p], errs[p] = b.Run()
		}()
	}
	for range processes {
		<-done
	}
	for p := range processes {
		if fmt.Sprint(errs[p]) != fmt.Sprint(errs[0]) {
			c.t.Errorf("process %d: %v, process 0: %v", p, errs[p], errs[0])
		}
	}
	if errs[0] == nil {
		for p := range processes {
			name := fmt.Sprintf("rank-%05d.ckpt", p)
			path := c.places[of[p]].Path(epoch, name)
			if _, err := os.Stat(path); err != nil && c.record.Has(Shared) {
				path = filepath.Join(c.shared, name)
			}
			if err := c.sound(epoch, name, path); err != nil {
				c.t.Errorf("process %d: %v", p, err)
			}
		}
	}
	return outcomes[0], errs[0]
}

// lose removes the local directories of nodes.
func (c *cluster) lose(nodes ...int) {
	for _, n := range nodes {
		if err := errors.Join(os.RemoveAll(filepath.Join(c.places[n].Dir, c.places[n].Set)), c.places[n].Make()); err != nil {
			c.t.Fatal(err)
		}
	}
}

// spoil changes one byte of a file in place.
func spoil(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// here is a restart with each process where it was.
func (c *cluster) here() []int { return c.layout.Of }

// TestSurvives loses every set of nodes at every level, and compares with what the level promises.
func TestSurvives(t *testing.T) {
	const nodes = 4
	for level := Local; level <= Shared; level++ {
		for set := range 1 << nodes {
			c := newCluster(t, nodes, nodes)
			if level > Local {
				if err := c.raise(level); err != nil {
					t.Fatal(err)
				}
			}
			var lost []int
			neighbours := false
			for n := range nodes {
				if set>>n&1 != 0 {
					lost = append(lost, n)
					neighbours = neighbours || set>>((n+1)%nodes)&1 != 0
				}
			}
			c.lose(lost...)
			survives := map[int]bool{Local: len(lost) == 0, Partner: !neighbours, Coded: len(lost) <= nodes/2, Shared: true}[level]
			_, err := c.restart(c.here())
			var gone *LostError
			switch {
			case survives && err != nil:
				t.Errorf("level %d without nodes %v: %v", level, lost, err)
			case !survives && !errors.As(err, &gone):
				t.Errorf("level %d without nodes %v: %v, want that it is lost", level, lost, err)
			}
		}
	}
}

// TestDamage corrupts one byte in each kind of file; the restart finds it and uses another.
func TestDamage(t *testing.T) {
	file := "rank-00002.ckpt" // of node 1
	for _, k := range []struct {
		name  string
		level int
		do    func(c *cluster)
		lost  bool
	}{
		{"the only copy", Local, func(c *cluster) { spoil(t, c.places[1].Path(epoch, file)) }, true},
		{"the first copy", Partner, func(c *cluster) { spoil(t, c.places[1].Path(epoch, file)) }, false},
		{"the second copy", Partner, func(c *cluster) { spoil(t, c.places[2].Path(epoch, file)) }, false},
		{"the second copy, with the first lost", Partner, func(c *cluster) { c.lose(1); spoil(t, c.places[2].Path(epoch, file)) }, true},
		{"a shard", Coded, func(c *cluster) { spoil(t, c.places[1].Path(epoch, file)) }, false},
		{"a shard that is needed, and a node is lost", Coded, func(c *cluster) { c.lose(3); spoil(t, c.places[1].Path(epoch, file)) }, false},
		{"a parity, and a node is lost", Coded, func(c *cluster) { c.lose(3); spoil(t, c.places[0].Path(epoch, ParityName(0, 0))) }, false},
		{"a parity, and two nodes are lost", Coded, func(c *cluster) { c.lose(2, 3); spoil(t, c.places[0].Path(epoch, ParityName(0, 0))) }, true},
		{"a shard, and two nodes are lost", Coded, func(c *cluster) { c.lose(2, 3); spoil(t, c.places[1].Path(epoch, file)) }, true},
		{"in the shared directory", Shared, func(c *cluster) { c.lose(1); spoil(t, filepath.Join(c.shared, file)) }, true},
		{"in the shared directory, with a local one", Shared, func(c *cluster) { spoil(t, filepath.Join(c.shared, file)) }, false},
		{"cut short", Partner, func(c *cluster) {
			if err := os.Truncate(c.places[1].Path(epoch, file), 10); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		c := newCluster(t, 4, 4)
		if k.level > Local {
			if err := c.raise(k.level); err != nil {
				t.Fatal(err)
			}
		}
		k.do(c)
		out, err := c.restart(c.here())
		var gone *LostError
		if k.lost != errors.As(err, &gone) || !k.lost && err != nil {
			t.Errorf("%s: %v, want lost: %v", k.name, err, k.lost)
		}
		t.Logf("%s: %v %v %v", k.name, err, out.Actions, out.Damaged)
	}
}

// A parity of other data, with a digest that is right, is found out by what is computed from it.
func TestParityOfOtherData(t *testing.T) {
	c := newCluster(t, 4, 4)
	if err := c.raise(Coded); err != nil {
		t.Fatal(err)
	}
	p := c.record.Nodes[0].Parity
	path := c.places[0].Path(epoch, p.Name)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[10] ^= 1 // where the lost node has data
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := newHasher()
	_, _ = sum.Write(b) // never fails
	changed := *p
	changed.Digest = sum.text()
	c.record.Nodes[0].Parity = &changed
	c.lose(3)
	out, err := c.restart(c.here())
	if err != nil || !strings.Contains(strings.Join(out.Damaged, " "), "parities that do not match") {
		t.Errorf("%v, %v", out, err)
	}
}

// Processes go on on other nodes than before, also on new ones.
func TestMoved(t *testing.T) {
	for _, level := range []int{Partner, Coded} {
		c := newCluster(t, 4, 4)
		if err := c.raise(level); err != nil {
			t.Fatal(err)
		}
		c.places = append(c.places, Place{memory(t), c.places[0].Set})
		if err := c.places[4].Make(); err != nil {
			t.Fatal(err)
		}
		c.lose(2)
		if out, err := c.restart([]int{1, 1, 0, 0, 4, 4, 3, 4}); err != nil {
			t.Errorf("level %d: %v, %v", level, out, err)
		}
	}
}

// A partner that vanishes, and every step that can fail, leave the level as it was; raised again, it is complete.
func TestRaiseFails(t *testing.T) {
	for level := Partner; level <= Shared; level++ {
		c := newCluster(t, 4, 4)
		c.gone[2], c.gone[0] = true, true
		if err := c.raise(level); err == nil && level != Shared {
			t.Errorf("level %d with nodes that nobody can reach: %v", level, err)
		}
		c.gone = map[int]bool{}
		for _, point := range []string{"levels.create", "levels.write", "levels.sync", "levels.rename", "levels.send"} {
			if level == Coded && point == "levels.begin" {
				continue
			}
			for n := 1; ; n++ {
				disarm, err := fault.Arm(fmt.Sprintf("%s=enospc:%d", point, n))
				if err != nil {
					t.Fatal(err)
				}
				err = c.raise(level)
				disarm()
				if err == nil {
					if n == 1 {
						t.Errorf("level %d passes no point %s", level, point)
					}
					break
				}
				if !strings.Contains(err.Error(), "no space left") {
					t.Fatalf("level %d, %s: %v", level, point, err)
				}
				if left, _ := filepath.Glob(filepath.Join(c.places[1].EpochDir(epoch), "*"+tempSuffix)); len(left) > 0 {
					t.Errorf("level %d, %s: left %v", level, point, left)
				}
				if n > 3 { // more of the same
					break
				}
			}
		}
		if err := c.raise(level); err != nil {
			t.Fatal(err)
		}
		c.lose(3)
		if _, err := c.restart(c.here()); err != nil {
			t.Errorf("level %d: %v", level, err)
		}
	}
}

// A damaged image is not multiplied.
func TestRaiseDamaged(t *testing.T) {
	for level := Partner; level <= Shared; level++ {
		c := newCluster(t, 2, 2)
		spoil(t, c.places[1].Path(epoch, "rank-00002.ckpt"))
		if err := c.raise(level); !errors.Is(err, errUnsound) {
			t.Errorf("level %d: %v", level, err)
		}
	}
}

func TestKeep(t *testing.T) {
	c := newCluster(t, 2, 2)
	p := c.places[0]
	for _, e := range []int{1, 2, 5} {
		if err := p.Begin(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Keep([]int{2, 3}, 4); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(filepath.Join(p.Dir, p.Set))
	var left []string
	for _, n := range names {
		left = append(left, n.Name())
	}
	if fmt.Sprint(left) != "[epoch-000002 epoch-000003 epoch-000005]" || err != nil {
		t.Errorf("%v, %v", left, err)
	}
	for _, set := range []string{"", "..", "set-../../x"} {
		if err := (Place{p.Dir, set}).Keep(nil, 9); err == nil {
			t.Errorf("set %q is cleaned", set)
		}
	}
}

// What another process asks for stays inside the set.
func TestServeRefuses(t *testing.T) {
	c := newCluster(t, 2, 2)
	for _, w := range []wish{
		{Set: c.places[0].Set, Epoch: epoch, Files: []File{{"../rank-00000.ckpt", 5}}},
		{Set: c.places[0].Set, Epoch: epoch, Files: []File{{"..", 5}}},
		{Set: "set-0000000000000000", Epoch: epoch, Files: []File{{"rank-00000.ckpt", 1000}}},
		{Set: c.places[0].Set, Epoch: epoch, Files: []File{{"rank-00000.ckpt", 7}}},
		{Set: c.places[0].Set, Epoch: epoch},
	} {
		in, err := c.places[1].ask(c.dial, Peer{"n0", 0}, w)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(in); err == nil || len(b) > 0 {
			t.Errorf("%+v: %d bytes, %v", w, len(b), err)
		}
		_ = in.Close()
	}
}

// half is a connection of which one half is given, and the other thrown away.
type half struct {
	io.Reader
	io.Writer
}

func (half) Close() error                { return nil }
func (half) SetDeadline(time.Time) error { return nil }

func FuzzServe(f *testing.F) {
	place := Place{f.TempDir(), "set-0123456789abcdef"}
	if err := errors.Join(place.Make(), place.Begin(1), os.WriteFile(place.Path(1, "a"), []byte("abc"), 0o600)); err != nil {
		f.Fatal(err)
	}
	var seed bytes.Buffer
	if err := writeWords(&seed, wish{Set: place.Set, Epoch: 1, Files: []File{{"a", 3}}}); err != nil {
		f.Fatal(err)
	}
	f.Add(seed.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = place.Serve(half{bytes.NewReader(b), io.Discard}, func(int, string, string) error { return nil })
	})
}

func FuzzAnswer(f *testing.F) {
	var seed bytes.Buffer
	p := &pieces{conn: half{nil, &seed}, sum: newHasher()}
	if _, err := p.Write([]byte("abc")); err != nil {
		f.Fatal(err)
	}
	if err := p.end(nil); err != nil {
		f.Fatal(err)
	}
	f.Add(seed.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		a := &answer{conn: half{bytes.NewReader(b), io.Discard}, sum: newHasher(), left: 3}
		got, err := io.ReadAll(a)
		if err == nil && len(got) != 3 {
			t.Errorf("%d bytes and no error", len(got))
		}
	})
}

func FuzzRecord(f *testing.F) {
	l := NewLayout([]string{"a", "b"}, 2)
	r := NewRecord(&l, "set-0123456789abcdef", "/l", []File{{"x", 1}, {"y", 2}})
	b, err := json.Marshal(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Record
		if json.Unmarshal(b, &r) != nil || r.Check() != nil {
			return
		}
		sites := []Site{{Held: map[Want]int64{}}}
		for i := range r.Nodes {
			for _, f := range r.Nodes[i].Files {
				sites[0].Missing = append(sites[0].Missing, Want{1, f.Name})
			}
		}
		if a, _ := Plan(sites, map[int]*Record{1: &r}, func(Want) (File, bool) { return File{}, false }); len(a) > 0 {
			t.Errorf("from nothing: %v", a)
		}
	})
}

func TestCode(t *testing.T) {
	for _, k := range []int{2, 3, 4, 7} {
		c := newCluster(t, k, k)
		if err := c.raise(Coded); err != nil {
			t.Fatal(err)
		}
		for n := range k {
			p := c.record.Nodes[n].Parity
			b, err := os.ReadFile(c.places[n].Path(epoch, p.Name))
			if err != nil {
				t.Fatal(err)
			}
			sum := blake3.Sum256(b)
			if p.Digest != fmt.Sprintf("blake3:%x", sum) || int64(len(b)) != p.Bytes || p.Bytes != c.record.shard(0) {
				t.Errorf("%+v, %d bytes", p, len(b))
			}
		}
		var lost []int
		for n := range k / 2 {
			lost = append(lost, n)
		}
		c.lose(lost...)
		if _, err := c.restart(c.here()); err != nil {
			t.Errorf("%d nodes without %v: %v", k, lost, err)
		}
		if !slices.IsSorted(c.record.Done) {
			t.Error(c.record.Done)
		}
	}
}
