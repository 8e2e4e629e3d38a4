// SPDX-License-Identifier: Apache-2.0

package shm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/libckpt/libckpt/internal/fault"
)

// How a segment is mapped. Its processes meet under its name; the leader is the first of them:
//
//	leader                                     each of the others
//	call: what it asks for, the path ────────► compares
//	          ◄──────────────────────── word: its node, or what is wrong
//	makes the file
//	made, or what was wrong ─────────────────► opens and maps it, as the leader does
//	          ◄────────────────────────  mapped, or what was wrong
//	takes the name away
//	end, or what was wrong ──────────────────► goes on
//
// What is wrong with one is wrong for all. When a process is lost, all others take the name away.
//
// Fate at a checkpoint: none is made while a segment is being mapped; what is mapped is told by Save and made again
// by Restore.

// Network carries messages between the processes of the job, in order.
type Network interface {
	Rank() int
	Size() int
	Send(ctx context.Context, to int, kind uint16, payload []byte) error
	Handle(kind uint16, f func(from int, payload []byte))
	Failed() <-chan struct{}
	Err() error
}

// Steps of a meeting.
const (
	stepCall   = "call"
	stepWord   = "word"
	stepMade   = "made"
	stepMapped = "mapped"
	stepEnd    = "end"
)

// message is what processes say to each other of a segment.
type message struct {
	Step    string `json:"step"`
	Name    string `json:"name"`
	Spec    *Spec  `json:"spec,omitempty"` // call
	Path    string `json:"path,omitempty"` // call
	Node    *Node  `json:"node,omitempty"` // word
	Wrong   string `json:"wrong,omitempty"`
	Kind    int    `json:"kind,omitempty"`    // of Wrong, by place in kinds
	Outside bool   `json:"outside,omitempty"` // word: the sender has another leader, and waits for nothing of this one

	from int
}

var kinds = []error{ErrSystem, ErrArgument, ErrState, ErrPeer, ErrNodes}

func (m *message) fail(err error) *message {
	if err != nil {
		m.Wrong, m.Kind = err.Error(), 0
		for i, kind := range kinds {
			if e, ok := err.(*Error); ok && e.Kind == kind {
				m.Kind = i
			}
		}
	}
	return m
}

// whole tells whether a message has what its step needs.
func (m *message) whole() bool {
	return (m.Step != stepCall || m.Spec != nil && len(m.Spec.Processes) > 0) && (m.Step != stepWord || m.Node != nil || m.Wrong != "")
}

func (m *message) err() error {
	if m.Wrong == "" {
		return nil
	}
	kind := ErrSystem
	if m.Kind > 0 && m.Kind < len(kinds) {
		kind = kinds[m.Kind]
	}
	return &Error{kind, m.Wrong}
}

// Segments are those of this process. Any thread may call any method.
type Segments struct {
	net  Network
	kind uint16

	mu   sync.Mutex
	all  map[string]*segment
	mail map[string][]*message // by name: nobody has read them yet
	news chan struct{}         // closed and replaced when mail comes
}

type segment struct {
	Spec
	path string
	at   uint64
	busy bool // being mapped, or unmapped
}

// New begins to hear. restored are the segments that this process has from an image.
func New(net Network, kind uint16, restored *Restored) *Segments {
	s := &Segments{net: net, kind: kind, all: map[string]*segment{}, mail: map[string][]*message{}, news: make(chan struct{})}
	if restored != nil {
		for _, one := range restored.made {
			s.all[one.Name] = &segment{Spec: one.Spec, path: one.path, at: one.Start}
		}
	}
	net.Handle(kind, s.heard)
	return s
}

func (s *Segments) heard(from int, payload []byte) {
	m := &message{from: from}
	if json.Unmarshal(payload, m) != nil || !m.whole() {
		return // no process of ours says so
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mail[m.Name] = append(s.mail[m.Name], m)
	close(s.news)
	s.news = make(chan struct{})
}

func (s *Segments) send(to int, m *message) error {
	b, err := json.Marshal(m)
	if err == nil {
		err = s.net.Send(context.Background(), to, s.kind, b)
	}
	if err != nil {
		return s.lost(m.Name, err)
	}
	return nil
}

// lost is the error of a meeting that a process has left.
func (s *Segments) lost(name string, err error) error {
	return failed(ErrPeer, name, "it is not mapped: %v", cmp.Or(s.net.Err(), err))
}

func (s *Segments) sendAll(to []int, m *message) error {
	for _, p := range to {
		if err := s.send(p, m); err != nil {
			return err
		}
	}
	return nil
}

// read waits for the first message of a name that is wanted.
func (s *Segments) read(name string, wanted func(*message) bool) (*message, error) {
	for {
		s.mu.Lock()
		for i, m := range s.mail[name] {
			if wanted(m) {
				if s.mail[name] = slices.Delete(s.mail[name], i, i+1); len(s.mail[name]) == 0 {
					delete(s.mail, name)
				}
				s.mu.Unlock()
				return m, nil
			}
		}
		news := s.news
		s.mu.Unlock()
		select {
		case <-news:
		case <-s.net.Failed():
			return nil, s.lost(name, nil)
		}
	}
}

// next reads a message of this step, and answers the calls of processes that are not this one's leader.
func (s *Segments) next(sp *Spec, step string) (*message, error) {
	for {
		m, err := s.read(sp.Name, func(m *message) bool { return m.Step == step || m.Step == stepCall })
		if err != nil || m.Step == step && (step != stepCall || m.from == sp.Processes[0]) {
			return m, err
		}
		no := &message{Step: stepWord, Name: sp.Name, Outside: true}
		no.fail(failed(ErrArgument, sp.Name, "process %d shares it among processes %s, process %d among %s",
			m.from, list(m.Spec.Processes), s.net.Rank(), list(sp.Processes)))
		if m.Wrong != "" {
			continue // it waits for no answer
		}
		if err := s.send(m.from, no); err != nil {
			return nil, err
		}
	}
}

// Make has the leader make the segment, and returns the path of its file, which the caller maps: Mapped must follow.
// Collective over sp.Processes; the error is the same in all of them, but for one of arguments that are wrong by
// themselves, which nobody else hears of.
func (s *Segments) Make(sp Spec) (string, error) {
	if err := sp.check(s.net.Rank(), s.net.Size()); err != nil {
		return "", err
	}
	sp.Processes = slices.Clone(sp.Processes)
	s.mu.Lock()
	old := s.all[sp.Name]
	if old != nil && old.busy {
		s.mu.Unlock()
		return "", failed(ErrState, sp.Name, "another thread maps or unmaps it")
	}
	var used error
	if old != nil {
		old.busy = true // nobody else meets under this name
		used = failed(ErrState, sp.Name, "process %d has a segment of this name", s.net.Rank())
	} else {
		s.all[sp.Name] = &segment{Spec: sp, busy: true}
	}
	s.mu.Unlock()

	path, err := s.meet(&sp, used)
	if err == nil && used != nil {
		err = used // cannot be: the leader was told
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case old != nil:
		old.busy = false
	case err != nil:
		delete(s.all, sp.Name)
	default:
		s.all[sp.Name].path = path
	}
	return path, err
}

func (s *Segments) meet(sp *Spec, used error) (path string, err error) {
	if sp.Processes[0] == s.net.Rank() {
		return s.lead(sp, used)
	}
	call, err := s.next(sp, stepCall)
	if err != nil {
		return "", err
	}
	if err := call.err(); err != nil {
		return "", err
	}
	defer func() {
		if errors.Is(err, ErrPeer) { // it may be the leader that is lost
			remove(call.Path)
		}
	}()
	word := &message{Step: stepWord, Name: sp.Name}
	node, err := Here()
	how := sp.differs(call.Spec, s.net.Rank())
	switch {
	case used != nil:
		word.fail(used)
	case how != "":
		word.fail(failed(ErrArgument, sp.Name, "%s", how))
	case err != nil:
		word.fail(failed(ErrSystem, sp.Name, "process %d: %v", s.net.Rank(), err))
	default:
		word.Node = &node
	}
	if err := s.send(call.from, word); err != nil {
		return "", err
	}
	made, err := s.next(sp, stepMade)
	if err != nil {
		return "", err
	}
	return call.Path, made.err()
}

// lead is the leader's part of meet.
func (s *Segments) lead(sp *Spec, used error) (string, error) {
	others, file := sp.Processes[1:], path(nonce(), sp.Name)
	node, err := Here()
	if err != nil {
		err = failed(ErrSystem, sp.Name, "process %d: %v", s.net.Rank(), err)
	}
	if used != nil {
		err = used
	}
	call := &message{Step: stepCall, Name: sp.Name, Spec: sp, Path: file}
	if serr := s.sendAll(others, call.fail(err)); serr != nil || err != nil {
		return "", cmp.Or(err, serr)
	}
	words := map[int]*message{}
	for range others {
		m, err := s.next(sp, stepWord)
		if err != nil {
			return "", err
		}
		words[m.from] = m
	}
	var told []int
	for _, p := range others {
		m := words[p]
		if m == nil {
			return "", failed(ErrSystem, sp.Name, "process %d has given no word", p) // cannot be: one each
		}
		if err == nil {
			err = m.err()
		}
		if err == nil {
			err = apart(sp, s.net.Rank(), node, p, *m.Node)
		}
		if !m.Outside {
			told = append(told, p)
		}
	}
	if err == nil {
		err = s.make(sp, file)
	}
	made := &message{Step: stepMade, Name: sp.Name}
	if serr := s.sendAll(told, made.fail(err)); serr != nil && err == nil {
		remove(file)
		return "", serr
	}
	return file, err
}

func (s *Segments) make(sp *Spec, file string) error {
	f, err := create(sp, file)
	if err != nil {
		return err
	}
	if err := fault.Point("shm.made"); err != nil {
		remove(file)
		f.Close()
		return failed(ErrSystem, sp.Name, "its file %s: %v", file, err)
	}
	return f.Close()
}

// Mapped says that this process has mapped the segment of the last Make at this address, or failed to. When it returns
// an error nobody has the segment, and the caller unmaps it. Collective, as Make.
func (s *Segments) Mapped(name string, at uint64, failure error) error {
	s.mu.Lock()
	one := s.all[name]
	if one == nil || !one.busy || one.path == "" || one.at != 0 {
		s.mu.Unlock()
		return failed(ErrState, name, "it is not being mapped")
	}
	s.mu.Unlock()
	if err := fault.Point("shm.mapped"); err != nil {
		failure = err
	}
	if failure != nil {
		failure = failed(ErrSystem, name, "process %d cannot map %s: %v", s.net.Rank(), one.path, failure)
	}
	err := s.agree(one, failure)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.all, name)
		return err
	}
	one.at, one.busy = at, false
	return nil
}

// agree takes the name of the file away once all have mapped it.
func (s *Segments) agree(one *segment, err error) error {
	defer remove(one.path)
	if lead := one.Processes[0]; lead != s.net.Rank() {
		if serr := s.send(lead, (&message{Step: stepMapped, Name: one.Name}).fail(err)); serr != nil {
			return serr
		}
		end, rerr := s.next(&one.Spec, stepEnd)
		if rerr != nil {
			return rerr
		}
		return end.err()
	}
	for range one.Processes[1:] {
		m, rerr := s.next(&one.Spec, stepMapped)
		if rerr != nil {
			return rerr
		}
		err = cmp.Or(err, m.err())
	}
	remove(one.path) // before anybody goes on
	if serr := s.sendAll(one.Processes[1:], (&message{Step: stepEnd, Name: one.Name}).fail(err)); serr != nil {
		return cmp.Or(err, serr)
	}
	return err
}

// Unmapping tells where a segment is, which is not to be used any more; Unmapped must follow when it is unmapped. Not
// collective: the others keep it.
func (s *Segments) Unmapping(name string) (at, bytes uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.all[name]
	switch {
	case one == nil:
		return 0, 0, failed(ErrArgument, name, "this process has no segment of this name")
	case one.busy:
		return 0, 0, failed(ErrState, name, "another thread maps or unmaps it")
	}
	one.busy = true
	return one.at, one.mapped(), nil
}

// Unmapped forgets a segment.
func (s *Segments) Unmapped(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[name] == nil {
		return failed(ErrArgument, name, "this process has no segment of this name")
	}
	delete(s.all, name)
	return nil
}

// Busy says which segments are being mapped or unmapped: no image can be made now.
func (s *Segments) Busy() (reasons []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, one := range s.all {
		if one.busy {
			reasons = append(reasons, fmt.Sprintf("shared segment %q is being mapped or unmapped", name))
		}
	}
	slices.Sort(reasons)
	return reasons
}
