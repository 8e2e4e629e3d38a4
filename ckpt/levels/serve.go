// SPDX-License-Identifier: Apache-2.0

package levels

import (
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/zeebo/blake3"

	"github.com/libckpt/libckpt/internal/fault"
	"github.com/libckpt/libckpt/internal/polite"
	"github.com/libckpt/libckpt/internal/regular"
)

// hasher makes digests of bytes.
type hasher struct{ h *blake3.Hasher }

func newHasher() hasher { return hasher{blake3.New()} }

func (h hasher) Write(p []byte) (int, error) { return h.h.Write(p) }
func (h hasher) text() string                { return digestPrefix + hex.EncodeToString(h.h.Sum(nil)) }

// niceness of threads that copy: the program's threads come first, and what they leave is used. Not the idle class: a
// thread of it that holds a lock of Go's runtime while the program keeps all processors busy would hold up all others.
const niceness = 19

// Politely runs f on a thread of its own, which yields to the program, and waits for it.
func Politely(f func() error) error {
	var err error
	polite.Run(niceness, func(error) { err = f() }) // with or without: it has to be done
	return err
}

// Serve answers one connection of another node's leader with files of this place, and closes it. sound checks a
// file, where the other end asks for that.
func (p Place) Serve(conn Conn, sound func(epoch int, file, path string) error) error {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(stall))
	var w wish
	if err := readWords(conn, &w); err != nil {
		return fmt.Errorf("a wish for local files: %w", err)
	}
	out := &pieces{conn: conn, sum: newHasher()}
	err := w.check()
	if err == nil && w.Set != p.Set {
		err = fmt.Errorf("its local files are of %s, not of %s", p.Set, w.Set)
	}
	for _, f := range w.Files {
		if err == nil && w.Sound {
			err = sound(w.Epoch, f.Name, p.Path(w.Epoch, f.Name))
		}
		if err == nil {
			err = p.send(out, w.Epoch, f)
		}
		if err != nil {
			err = &fileError{f.Name, err}
			break
		}
	}
	return out.end(err)
}

func (p Place) send(out io.Writer, epoch int, f File) error {
	in, err := p.open(epoch, f)
	if err != nil {
		return err
	}
	defer in.Close()
	buf := make([]byte, maxPiece)
	for left := f.Bytes; left > 0; {
		b := buf[:min(int64(len(buf)), left)]
		if err := fault.Point("levels.send"); err != nil {
			return err
		}
		if err := readFull(in, b); err != nil {
			return fmt.Errorf("%s: %w", in.Name(), err)
		}
		if _, err := out.Write(b); err != nil {
			return err
		}
		left -= int64(len(b))
	}
	return nil
}

// open opens a local file that must have that length.
func (p Place) open(epoch int, f File) (*os.File, error) {
	in, err := regular.Open(p.Path(epoch, f.Name), os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	st, err := in.Stat()
	if err == nil && st.Size() != f.Bytes {
		err = fmt.Errorf("%s has %d bytes, not %d", in.Name(), st.Size(), f.Bytes)
	}
	if err != nil {
		_ = in.Close()
		return nil, err
	}
	return in, nil
}

// VerifyParity compares a parity with the digest in the record.
func (p Place) VerifyParity(epoch int, parity *Parity) error {
	sum := newHasher()
	if err := p.send(sum, epoch, parity.File); err != nil {
		return err
	}
	if got := sum.text(); got != parity.Digest {
		return fmt.Errorf("%s: digest: expected %s, found %s", p.Path(epoch, parity.Name), parity.Digest, got)
	}
	return nil
}

// Peer is a node that can be asked: by its leader.
type Peer struct {
	Name   string `json:"name"`
	Leader int    `json:"leader"`
}

// ask begins to fetch files, one after the other, from another node.
func (p Place) ask(dial Dial, from Peer, w wish) (*answer, error) {
	conn, err := dial(from.Leader)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", from.Name, err)
	}
	a := &answer{conn: conn, from: from.Name, sum: newHasher(), wait: stall}
	if w.Sound {
		a.wait = checking
	}
	for _, f := range w.Files {
		a.left += f.Bytes
	}
	_ = conn.SetDeadline(time.Now().Add(stall))
	if err := writeWords(conn, w); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("node %s: %w", from.Name, err)
	}
	return a, nil
}

// fetch gets files of an epoch from another node into this place.
func (p Place) fetch(dial Dial, from Peer, epoch int, files []File) error {
	if err := p.Begin(epoch); err != nil {
		return err
	}
	in, err := p.ask(dial, from, wish{Set: p.Set, Epoch: epoch, Files: files})
	if err != nil {
		return err
	}
	defer in.Close()
	made := make([]*newFile, 0, len(files))
	for _, f := range files {
		out, ferr := create(p.Path(epoch, f.Name))
		if err = ferr; err != nil {
			break
		}
		made = append(made, out)
		if _, err = io.CopyBuffer(onlyWriter{out}, io.LimitReader(in, f.Bytes), make([]byte, maxPiece)); err == nil {
			err = in.short()
		}
		if err != nil {
			break
		}
	}
	if err == nil {
		err = in.drained()
	}
	for _, out := range made { // none gets its name before the digest of all is right
		if ferr := out.finish(err); err == nil {
			err = ferr
		}
	}
	return err
}

// onlyWriter hides that a file can do more: every piece goes through Write.
type onlyWriter struct{ io.Writer }

// short is why less has come than was asked for, if so.
func (a *answer) short() error {
	if a.err == io.EOF {
		return fmt.Errorf("from node %s: %w", a.from, io.ErrUnexpectedEOF)
	}
	return a.err
}

// drained wants the end of the answer now.
func (a *answer) drained() error {
	n, err := a.Read(make([]byte, 1))
	switch {
	case err == io.EOF:
		return nil
	case err == nil:
		return fmt.Errorf("from node %s: %d bytes too many", a.from, n)
	}
	return err
}
