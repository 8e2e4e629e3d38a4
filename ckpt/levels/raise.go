// SPDX-License-Identifier: Apache-2.0

package levels

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/libckpt/libckpt/internal/fault"
)

// Task is the part of one node in raising an epoch. Its leader does it.
type Task struct {
	Level  int     `json:"level"`
	Epoch  int     `json:"epoch"`
	Record *Record `json:"record"`
	Peers  []Peer  `json:"peers"` // the nodes of the record
	Node   int     `json:"node"`  // this one of them
	// Objects is the place in an object store that stands for the shared directory at level Shared; "": none does.
	Objects string `json:"objects,omitempty"`
}

// Raised is what the leader says when it is done.
type Raised struct {
	Node   int      `json:"node"`
	Error  string   `json:"error,omitempty"`
	Parity *Parity  `json:"parity,omitempty"`
	Stored []Stored `json:"stored,omitempty"` // in an object store
}

// Stored is a file in an object store.
type Stored struct {
	File
	Digest string `json:"digest"` // of the whole file: "blake3:" and hexadecimal digits
}

// Check says whether a task can be done here: words of another process are not believed.
func (t *Task) Check() error {
	if t.Record == nil || t.Node < 0 || t.Node >= len(t.Record.Nodes) || len(t.Peers) != len(t.Record.Nodes) || t.Epoch < 1 {
		return errors.New("an order to raise an epoch is not well formed")
	}
	if t.Level < Partner || t.Level > Shared {
		return fmt.Errorf("an order to raise an epoch to level %d", t.Level)
	}
	if t.Objects != "" && t.Level != Shared {
		return fmt.Errorf("an order to bring an epoch to %s at level %d", t.Objects, t.Level)
	}
	return t.Record.Check()
}

// checkOwn checks the files of this node, before they are multiplied.
func (p Place) checkOwn(t *Task, sound func(path string) error) error {
	for _, f := range t.Record.Nodes[t.Node].Files {
		if err := sound(p.Path(t.Epoch, f.Name)); err != nil {
			return err
		}
	}
	return nil
}

// DoObjects is Do for a task with Objects. put brings a file there.
func (p Place) DoObjects(t *Task, sound func(path string) error, put func(path string) (Stored, error)) ([]Stored, error) {
	if err := p.checkOwn(t, sound); err != nil {
		return nil, err
	}
	var list []Stored
	for _, f := range t.Record.Nodes[t.Node].Files {
		s, err := put(p.Path(t.Epoch, f.Name))
		if err == nil && s.File != f {
			err = fmt.Errorf("%s has %d bytes, not %d", p.Path(t.Epoch, f.Name), s.Bytes, f.Bytes)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// Do does it. sound checks a file of this node before it is multiplied; shared is the directory of the epoch
// that all nodes see. On failure nothing is left that counts.
func (p Place) Do(t *Task, dial Dial, sound func(path string) error, shared string) (*Parity, error) {
	if err := fault.Point("levels.raise"); err != nil {
		return nil, err
	}
	if err := p.checkOwn(t, sound); err != nil {
		return nil, err
	}
	switch t.Level {
	case Partner:
		return nil, p.copyFrom(t, dial)
	case Coded:
		return p.code(t, dial)
	}
	return nil, p.share(t, shared)
}

// before is the node whose partner this one is.
func (t *Task) before() (node int, is bool) {
	members := t.Record.Members(t.Record.Nodes[t.Node].Group)
	for i, n := range members {
		if n == t.Node {
			return members[(i+len(members)-1)%len(members)], len(members) > 1
		}
	}
	return 0, false
}

// copyFrom gets the files of the node before this one.
func (p Place) copyFrom(t *Task, dial Dial) error {
	n, is := t.before()
	if !is {
		return errors.New("it is alone in its group: nobody can be its partner")
	}
	return p.fetch(dial, t.Peers[n], t.Epoch, t.Record.Nodes[n].Files)
}

// code makes this node's parity.
func (p Place) code(t *Task, dial Dial) (*Parity, error) {
	group := t.Record.Nodes[t.Node].Group
	members := t.Record.Members(group)
	if len(members) < 2 {
		return nil, errors.New("it is alone in its group: there is nothing to compute a parity of")
	}
	index := -1
	sources := make([]io.Reader, len(members))
	var asked []*answer
	defer func() {
		for _, a := range asked {
			_ = a.Close()
		}
	}()
	for i, n := range members {
		files := t.Record.Nodes[n].Files
		if n == t.Node {
			index = i
			own := &localFiles{place: p, epoch: t.Epoch, files: files}
			defer own.Close()
			sources[i] = own
			continue
		}
		a, err := p.ask(dial, t.Peers[n], wish{Set: p.Set, Epoch: t.Epoch, Files: files})
		if err != nil {
			return nil, err
		}
		asked = append(asked, a)
		sources[i] = a
	}
	name, length := ParityName(group, index), t.Record.shard(group)
	out, err := create(p.Path(t.Epoch, name))
	if err != nil {
		return nil, err
	}
	sum := newHasher()
	err = encode(io.MultiWriter(out, sum), index, sources, length)
	for _, a := range asked {
		if err == nil {
			err = a.drained()
		}
	}
	if err := out.finish(err); err != nil {
		return nil, err
	}
	return &Parity{File: File{name, length}, Index: index, Digest: sum.text()}, nil
}

// share copies this node's files to where all nodes see them.
func (p Place) share(t *Task, dir string) error {
	for _, f := range t.Record.Nodes[t.Node].Files {
		out, err := create(filepath.Join(dir, f.Name))
		if err != nil {
			return err
		}
		if err := out.finish(p.send(out, t.Epoch, f)); err != nil {
			return err
		}
	}
	return nil
}

// localFiles reads files of a place, one after the other.
type localFiles struct {
	place Place
	epoch int
	files []File
	in    io.ReadCloser
	left  int64 // of in
}

func (l *localFiles) Read(p []byte) (int, error) {
	for l.left == 0 {
		if err := l.Close(); err != nil {
			return 0, err
		}
		if len(l.files) == 0 {
			return 0, io.EOF
		}
		in, err := l.place.open(l.epoch, l.files[0])
		if err != nil {
			return 0, err
		}
		l.in, l.left, l.files = in, l.files[0].Bytes, l.files[1:]
	}
	n, err := l.in.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	if errors.Is(err, io.EOF) && l.left > 0 {
		err = io.ErrUnexpectedEOF // it has become shorter
		return n, fmt.Errorf("local file: %w", err)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (l *localFiles) Close() error {
	if l.in == nil {
		return nil
	}
	err := l.in.Close()
	l.in = nil
	return err
}
