// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/libckpt/libckpt/internal/disturb"
	"github.com/libckpt/libckpt/internal/history"
)

// watcher writes a history: what is done is told to it, and it looks itself at what the program notes, at the
// directory, and at the logs.
type watcher struct {
	ranks  int
	folder string // of the program's logs and journals
	dir    string // of the checkpoints

	mu     sync.Mutex
	events []history.Event
	last   []int // step of each rank
	read   map[string]int64
	disk   map[int]bool
	runs   []*incarnation
	stop   chan struct{}
}

// incarnation is one start of the job.
type incarnation struct {
	number int
	*Process
	field  *disturb.Field
	stderr string
	opened bool
}

func newWatcher(ranks int, folder, dir string) *watcher {
	w := &watcher{ranks: ranks, folder: folder, dir: dir, read: map[string]int64{}, disk: map[int]bool{}, stop: make(chan struct{})}
	for range ranks {
		w.last = append(w.last, -1)
	}
	go func() {
		for {
			select {
			case <-w.stop:
				return
			case <-time.After(20 * time.Millisecond):
				w.look()
			}
		}
	}()
	return w
}

func (w *watcher) close() { close(w.stop) }

// add looks around, and notes an event after what is seen.
func (w *watcher) add(e history.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookLocked()
	w.note(e)
}

func (w *watcher) note(e history.Event) {
	e.At = time.Now()
	w.events = append(w.events, e)
}

// look notes what is new, and returns how far each rank is.
func (w *watcher) look() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookLocked()
	return append([]int(nil), w.last...)
}

func (w *watcher) lookLocked() {
	// An epoch is seen before the steps are, so that it was made at one of these.
	there := epochsIn(w.dir)
	w.owners()
	for r := range w.ranks {
		journal := filepath.Join(w.folder, fmt.Sprint("journal.", r))
		// In the order of their names, so of their times. A list may lack what is made while it is read, and
		// have what is made after that: what comes up to the newest of one list is all in the next.
		known, _ := os.ReadDir(journal)
		if len(known) == 0 {
			continue
		}
		list, _ := os.ReadDir(journal)
		for _, d := range list {
			if d.Name() > known[len(known)-1].Name() {
				break
			}
			f := strings.Fields(d.Name())
			step, err := strconv.Atoi(f[1])
			if err != nil {
				step = -1
			}
			w.last[r] = step
			w.note(history.Event{Kind: history.Step, Rank: r, Step: step, Text: f[2]})
			_ = os.Remove(filepath.Join(journal, d.Name()))
		}
	}
	for n := range there {
		if !w.disk[n] {
			w.disk[n] = true
			w.note(history.Event{Kind: history.Appeared, Epoch: n})
		}
	}
	for n := range w.disk {
		if !there[n] {
			delete(w.disk, n)
			w.note(history.Event{Kind: history.Gone, Epoch: n})
		}
	}
	for _, in := range w.runs {
		for _, line := range w.news(in.stderr) {
			w.note(history.Event{Kind: history.Log, Run: in.number, Text: line})
		}
	}
}

// news are the whole lines that a file has more than at the last look.
func (w *watcher) news(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	var text bytes.Buffer
	if _, err := f.Seek(w.read[path], 0); err != nil {
		return nil
	}
	_, _ = text.ReadFrom(f)
	end := bytes.LastIndexByte(text.Bytes(), '\n') + 1
	w.read[path] += int64(end)
	return strings.Split(strings.TrimSuffix(text.String()[:end], "\n"), "\n")[:strings.Count(text.String()[:end], "\n")]
}

// owners notes which runs have come to own the directory.
func (w *watcher) owners() {
	for _, in := range w.runs {
		if in.opened {
			continue
		}
		var job struct{ PID int }
		text, err := os.ReadFile(filepath.Join(w.dir, "job.json"))
		if err != nil || json.Unmarshal(text, &job) != nil {
			continue
		}
		if p := in.field.Rank(0); p != nil && p.PID == job.PID {
			in.opened = true
			w.note(history.Event{Kind: history.Opened, Run: in.number, Token: w.token()})
		}
	}
}

// token is the highest in the directory.
func (w *watcher) token() uint64 {
	list, _ := os.ReadDir(filepath.Join(w.dir, "lease"))
	most := uint64(0)
	for _, f := range list {
		if n, err := strconv.ParseUint(f.Name(), 10, 64); err == nil {
			most = max(most, n)
		}
	}
	return most
}

// epochsIn are the epochs with a manifest.
func epochsIn(dir string) map[int]bool {
	all := map[int]bool{}
	manifests, _ := filepath.Glob(filepath.Join(dir, "epoch-*", "manifest.json"))
	for _, m := range manifests {
		if n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(m)), "epoch-")); err == nil {
			all[n] = true
		}
	}
	return all
}

func newestOf(epochs map[int]bool) int {
	n := 0
	for e := range epochs {
		n = max(n, e)
	}
	return n
}

// logbook is what logbook.c comes to: steps of the ranks that go together, and of the last one.
type logbook struct {
	mu    sync.Mutex
	ranks int
	x     []uint64
	field [][]uint64
	lines [][]string
}

const logbookWords = 1 << 16

func newLogbook(ranks int) *logbook {
	l := &logbook{ranks: ranks, lines: make([][]string, ranks)}
	for r := range ranks {
		l.x = append(l.x, mix(1, uint64(r)))
		l.field = append(l.field, make([]uint64, logbookWords))
	}
	return l
}

func mix(a, b uint64) uint64 {
	a = (a ^ b) * 0x9e3779b97f4a7c15
	return a ^ a>>29
}

// step is what a step comes to.
func (l *logbook) step(rank, step int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for step >= 0 && len(l.lines[rank]) <= step {
		l.next()
	}
	if step < 0 {
		return "no step"
	}
	return l.lines[rank][step]
}

func (l *logbook) next() {
	s := uint64(len(l.lines[0]))
	together := l.ranks - 1
	was, all := append([]uint64(nil), l.x...), uint64(0)
	for _, x := range was[:together] {
		all ^= x
	}
	for r := range l.x {
		in, sum := was[r], was[r]
		if r < together {
			in, sum = was[(r+together-1)%together], all
		}
		x := mix(mix(mix(was[r], in), sum), s)
		l.field[r][x%logbookWords] += x
		x = mix(x, l.field[r][s*31%logbookWords])
		l.x[r] = x
		l.lines[r] = append(l.lines[r], fmt.Sprintf("%016x", x))
	}
}
