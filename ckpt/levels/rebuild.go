// SPDX-License-Identifier: Apache-2.0

package levels

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Rebuild is this process's part in getting what each node needs of an epoch, and of those that it was built upon.
// All processes of the job make the same calls.
type Rebuild struct {
	Place   Place
	Node    string // of this process
	Process int
	// Records are of the epochs in question; nil for one whose files are all in the shared directory.
	Records map[int]*Record
	// Wants are what this process looks after; what one process of a node has, all have.
	Wants []Want
	// Sound checks a whole file.
	Sound func(epoch int, file, path string) error
	// Glance is Sound of a file that is where it is needed already, if its content is checked when it is used; nil: Sound.
	Glance func(epoch int, file, path string) error
	// Shared is where a file is in the shared directory, if it is there at all.
	Shared func(epoch int, file string) string
	// InObjects says of an epoch whether level Shared is in an object store; the shared directory may have its files too.
	InObjects func(epoch int) bool
	// Stored is what an object store has, if it is asked at all: nil, or false.
	Stored func(Want) (File, bool)
	// Fetch brings a file from the object store to dest, checked.
	Fetch func(epoch int, file, dest string) error
	// Gather tells mine to all processes, and returns what all say.
	Gather func(mine []byte) ([][]byte, error)
	// Connect is called once on all processes, when something has to be fetched: from then on Place.Serve
	// gets what others ask for here.
	Connect func() (Dial, error)

	good map[Want]bool
	bad  map[spot]bool
	news []badFile // not told yet
	made []Want    // in this round, here, and sound
	said []string
	dial Dial
}

// spot is a file at a site.
type spot struct {
	node string
	want Want
}

// badFile is a file that is not to be used.
type badFile struct {
	Node string `json:"node"`
	Want
}

// word is what a process tells in each round.
type word struct {
	Node    string    `json:"node"`
	Held    []Held    `json:"held,omitempty"` // of a leader
	Missing []Want    `json:"missing,omitempty"`
	Bad     []badFile `json:"bad,omitempty"`
	Damaged []string  `json:"damaged,omitempty"`
	Made    []Want    `json:"made,omitempty"`
	Error   string    `json:"error,omitempty"`
}

// maxRounds bounds what can go wrong one after the other: each round finds another bad file, or brings files.
const maxRounds = 64

// Outcome is how an epoch was made whole.
type Outcome struct {
	Damaged []string // files that were not what they were written as, and why
	Actions []string // what was copied and computed
}

// Run returns once each node has what it needs, on all processes; or *LostError on all.
func (b *Rebuild) Run() (Outcome, error) {
	b.good, b.bad = map[Want]bool{}, map[spot]bool{}
	var done Outcome
	for range maxRounds {
		words, err := b.exchange()
		if err != nil {
			return done, err
		}
		for _, w := range words {
			for _, bad := range w.Bad {
				b.bad[spot{bad.Node, bad.Want}] = true
			}
			done.Damaged = append(done.Damaged, w.Damaged...)
		}
		sites := b.sites(words)
		if !slices.ContainsFunc(sites, func(s Site) bool { return len(s.Missing) > 0 }) {
			return done, nil
		}
		actions, losses := Plan(sites, b.Records, func(w Want) (File, bool) {
			if b.Stored == nil || b.bad[spot{objectsNode, w}] {
				return File{}, false
			}
			return b.Stored(w)
		})
		if len(losses) > 0 {
			for i := range losses {
				if l := &losses[i]; b.InObjects != nil && b.InObjects(l.Epoch) {
					l.Why = strings.Replace(l.Why, notShared, notStored, 1)
				}
			}
			return done, &LostError{losses}
		}
		if b.dial == nil {
			if b.dial, err = b.Connect(); err != nil {
				return done, err
			}
		}
		for i := range actions {
			a := &actions[i]
			done.Actions = append(done.Actions, a.describe(sites, b.Records))
			if sites[a.Site].Leader == b.Process {
				b.do(a, sites)
			}
		}
		if err := b.share(); err != nil { // nobody looks before all is done
			return done, err
		}
	}
	return done, errors.New("local files could not be put together: they change while they are looked at")
}

// share has all processes of a node know which files were checked when they were made there.
func (b *Rebuild) share() error {
	text, err := json.Marshal(word{Node: b.Node, Made: b.made})
	if err != nil {
		return err
	}
	b.made = nil
	all, err := b.Gather(text)
	if err != nil {
		return err
	}
	for p, text := range all {
		var w word
		if err := json.Unmarshal(text, &w); err != nil {
			return fmt.Errorf("what process %d says of its local files: %w", p, err)
		}
		for _, made := range w.Made {
			if w.Node == b.Node {
				b.good[made] = true
			}
		}
	}
	return nil
}

// exchange tells what this process has found.
func (b *Rebuild) exchange() ([]word, error) {
	mine := word{Node: b.Node}
	for _, w := range b.Wants {
		if !b.good[w] && !b.find(w) {
			mine.Missing = append(mine.Missing, w)
		}
	}
	var epochs []int
	for e, r := range b.Records {
		if r != nil {
			epochs = append(epochs, e)
		}
	}
	slices.Sort(epochs)
	held, err := b.Place.Inventory(epochs) // other processes of the node tell the same; the first one counts
	if err != nil {
		mine.Error = err.Error()
	}
	mine.Held, mine.Bad, mine.Damaged = held, b.news, b.said
	b.news, b.said = nil, nil
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := b.Gather(text)
	if err != nil {
		return nil, err
	}
	words := make([]word, len(all))
	for p, text := range all {
		if err := json.Unmarshal(text, &words[p]); err != nil {
			return nil, fmt.Errorf("what process %d says of its local files: %w", p, err)
		}
		if words[p].Error != "" {
			return nil, fmt.Errorf("node %s: %s", words[p].Node, words[p].Error)
		}
	}
	return words, nil
}

// find looks for a file of ours here and in the shared directory.
func (b *Rebuild) find(w Want) bool {
	record := b.Records[w.Epoch]
	f, node := find(record, w.File)
	if node >= 0 {
		path := b.Place.Path(w.Epoch, w.File)
		st, err := os.Stat(path)
		if err == nil && st.Size() != f.Bytes {
			err = fmt.Errorf("%s has %d bytes, not %d", path, st.Size(), f.Bytes)
		}
		if err == nil {
			err = b.glance(w, path)
		}
		if err == nil {
			b.good[w] = true
			return true
		}
		if !errors.Is(err, os.ErrNotExist) {
			b.said = append(b.said, fmt.Sprintf("node %s: %v", b.Node, err))
			Aside(path) // if that fails, what is fetched replaces it
		}
	}
	if record != nil && !record.Has(Shared) || b.bad[spot{sharedNode, w}] {
		return false
	}
	err := b.glance(w, b.Shared(w.Epoch, w.File))
	if errors.Is(err, os.ErrNotExist) && b.InObjects != nil && b.InObjects(w.Epoch) {
		return false // nobody said that it would be there; it may be there later
	}
	if err != nil {
		b.bad[spot{sharedNode, w}] = true
		b.said = append(b.said, err.Error())
		return false
	}
	b.good[w] = true
	return true
}

func (b *Rebuild) glance(w Want, path string) error {
	if b.Glance != nil {
		return b.Glance(w.Epoch, w.File, path)
	}
	return b.Sound(w.Epoch, w.File, path)
}

// sharedNode stands for the shared directory where nodes are named; no host has this name.
const sharedNode = "/"

// objectsNode stands for the object store.
const objectsNode = "//"

// atOnce is how many files a node gets from the object store at the same time.
const atOnce = 4

// getObjects brings files from the object store: to the local directory, if there is one and they belong there, else to
// the shared one.
func (b *Rebuild) getObjects(a *Action) {
	errs := make([]error, len(a.Files))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, f := range a.Files {
		g.Go(func() error {
			dest := b.Shared(a.Epoch, f.Name)
			if _, node := find(b.Records[a.Epoch], f.Name); node >= 0 && b.Place.Dir != "" {
				dest = b.Place.Path(a.Epoch, f.Name)
				errs[i] = b.Place.Begin(a.Epoch)
			}
			if errs[i] == nil {
				errs[i] = b.Fetch(a.Epoch, f.Name, dest)
			}
			return nil
		})
	}
	_ = g.Wait() // each has its own error
	for i, f := range a.Files {
		if errs[i] != nil {
			b.said = append(b.said, errs[i].Error())
			b.news = append(b.news, badFile{objectsNode, Want{a.Epoch, f.Name}})
		}
	}
}

// damagedSuffix is at the end of the name of a file that was not sound.
const damagedSuffix = ".damaged"

// Aside puts a file where nobody takes it for a sound one, or removes it.
func Aside(path string) bool {
	return os.Rename(path, path+damagedSuffix) == nil || os.Remove(path) == nil
}

// spoilt notes that a file of a node is not to be used; all processes count it as such from the next round on.
func (b *Rebuild) spoilt(node string, w Want, err error) {
	b.said = append(b.said, fmt.Sprintf("node %s: %v", node, err))
	b.news = append(b.news, badFile{node, w})
}

// sites is what the words say, by node.
func (b *Rebuild) sites(words []word) []Site {
	var sites []Site
	at := map[string]int{}
	for p := range words {
		w := &words[p]
		s, known := at[w.Node]
		if !known {
			s = len(sites)
			at[w.Node] = s
			sites = append(sites, Site{Peer: Peer{w.Node, p}, Held: map[Want]int64{}})
			for _, h := range w.Held {
				if want := (Want{h.Epoch, h.File}); !b.bad[spot{w.Node, want}] {
					sites[s].Held[want] = h.Bytes
				}
			}
		}
		for _, m := range w.Missing {
			if !slices.Contains(sites[s].Missing, m) {
				sites[s].Missing = append(sites[s].Missing, m)
			}
		}
	}
	return sites
}

// do does an action. What goes wrong is told in the next round, as a file that is not to be used.
func (b *Rebuild) do(a *Action, sites []Site) {
	if a.Decode {
		b.decode(a, sites)
		return
	}
	if a.Objects {
		b.getObjects(a)
		return
	}
	err := b.Place.fetch(b.dial, sites[a.From].Peer, a.Epoch, a.Files)
	for _, f := range a.Files {
		w := Want{a.Epoch, f.Name}
		why := err
		if err == nil {
			why = b.Sound(a.Epoch, f.Name, b.Place.Path(a.Epoch, f.Name))
		}
		if why != nil {
			b.Place.Drop(a.Epoch, f.Name)
			b.spoilt(sites[a.From].Name, w, why)
			continue
		}
		b.made = append(b.made, w)
	}
}

// decode computes all lost files of a group.
func (b *Rebuild) decode(a *Action, sites []Site) {
	err := b.decodeFiles(a, sites)
	if err == nil {
		for _, n := range a.Lost {
			for _, f := range b.Records[a.Epoch].Nodes[n].Files {
				if serr := b.Sound(a.Epoch, f.Name, b.Place.Path(a.Epoch, f.Name)); serr != nil && err == nil {
					err = fmt.Errorf("computed from parities that do not match: %w", serr)
				}
			}
		}
	}
	for _, n := range a.Lost {
		for _, f := range b.Records[a.Epoch].Nodes[n].Files {
			if err == nil {
				b.made = append(b.made, Want{a.Epoch, f.Name})
			} else {
				b.Place.Drop(a.Epoch, f.Name)
			}
		}
	}
	if err == nil {
		return
	}
	var source *sourceError
	if errors.As(err, &source) {
		b.spoilt(source.node, source.want, err)
		return
	}
	for _, p := range a.parities() {
		for _, f := range p.Files {
			b.spoilt(sites[p.Site].Name, Want{a.Epoch, f.Name}, err)
		}
	}
}

// sourceError says which file could not be had, or was not sound.
type sourceError struct {
	node string
	want Want
	err  error
}

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

func (b *Rebuild) decodeFiles(a *Action, sites []Site) error {
	record := b.Records[a.Epoch]
	if err := b.Place.Begin(a.Epoch); err != nil {
		return err
	}
	sources := make([]io.Reader, len(a.Shards))
	for i, shard := range a.Shards {
		if shard == nil {
			continue
		}
		s := &source{b: b, sites: sites, epoch: a.Epoch, shard: shard}
		if i >= len(a.Shards)/2 {
			if p := record.ParityOf(shard[0].Files[0].Name); p != nil {
				s.digest = p.Digest
			}
		}
		defer s.Close()
		sources[i] = s
	}
	out := map[int]io.Writer{}
	members := record.Members(a.Group)
	var made []*files
	for _, n := range a.Lost {
		f := &files{place: b.Place, epoch: a.Epoch, list: record.Nodes[n].Files}
		made = append(made, f)
		out[slices.Index(members, n)] = f
	}
	err := decode(out, sources, record.shard(a.Group))
	for _, s := range sources { // each says at its end whether it was sound
		if s != nil && err == nil {
			_, err = io.Copy(io.Discard, s)
		}
	}
	for _, f := range made {
		if ferr := f.finish(err); err == nil {
			err = ferr
		}
	}
	return err
}

// source reads a shard, piece by piece. Files are checked before they are read: by this process where they are
// here, else by the node that has them. A parity is checked by its digest, at its end.
type source struct {
	b      *Rebuild
	sites  []Site
	epoch  int
	shard  Shard
	digest string // of a parity
	sum    hasher
	at     *Piece
	in     io.ReadCloser
}

func (s *source) Read(p []byte) (int, error) {
	for s.in == nil {
		if len(s.shard) == 0 {
			return 0, io.EOF
		}
		s.at, s.shard, s.sum = &s.shard[0], s.shard[1:], newHasher()
		if err := s.open(); err != nil {
			return 0, s.failed(err)
		}
	}
	n, err := s.in.Read(p)
	_, _ = s.sum.Write(p[:n])
	if err == io.EOF {
		err = s.Close()
		if got := s.sum.text(); err == nil && s.digest != "" && got != s.digest {
			err = fmt.Errorf("node %s: %s: digest: expected %s, found %s", s.sites[s.at.Site].Name, s.at.Files[0].Name, s.digest, got)
		}
	}
	if err != nil {
		err = s.failed(err)
	}
	return n, err
}

func (s *source) open() error {
	site := &s.sites[s.at.Site]
	if site.Leader == s.b.Process {
		if s.digest == "" {
			for _, f := range s.at.Files {
				if err := s.b.Sound(s.epoch, f.Name, s.b.Place.Path(s.epoch, f.Name)); err != nil {
					return &fileError{f.Name, err}
				}
			}
		}
		s.in = &localFiles{place: s.b.Place, epoch: s.epoch, files: s.at.Files}
		return nil
	}
	in, err := s.b.Place.ask(s.b.dial, site.Peer, wish{s.b.Place.Set, s.epoch, s.at.Files, s.digest == ""})
	if err == nil {
		s.in = in
	}
	return err
}

// failed names what was being read. With several files, the first that is not sound is found in the next rounds.
func (s *source) failed(err error) error {
	file := s.at.Files[0]
	var of *fileError
	if errors.As(err, &of) && of.file != "" {
		file.Name = of.file
	}
	return &sourceError{s.sites[s.at.Site].Name, Want{s.epoch, file.Name}, err}
}

func (s *source) Close() error {
	if s.in == nil {
		return nil
	}
	err := s.in.Close()
	s.in = nil
	return err
}

// files writes the files of a node, one after the other; what comes after them fills a shard up.
type files struct {
	place Place
	epoch int
	list  []File
	made  []*newFile
	left  int64
}

func (f *files) Write(p []byte) (int, error) {
	whole := len(p)
	for len(p) > 0 {
		if f.left == 0 {
			if len(f.list) == 0 {
				return whole, nil
			}
			out, err := create(f.place.Path(f.epoch, f.list[0].Name))
			if err != nil {
				return 0, err
			}
			f.made, f.left, f.list = append(f.made, out), f.list[0].Bytes, f.list[1:]
		}
		n := min(int64(len(p)), f.left)
		if _, err := f.made[len(f.made)-1].Write(p[:n]); err != nil {
			return 0, err
		}
		f.left -= n
		p = p[n:]
	}
	return whole, nil
}

func (f *files) finish(err error) error {
	if err == nil && (f.left > 0 || len(f.list) > 0) {
		err = io.ErrUnexpectedEOF
	}
	for _, out := range f.made {
		if ferr := out.finish(err); err == nil {
			err = ferr
		}
	}
	return err
}
