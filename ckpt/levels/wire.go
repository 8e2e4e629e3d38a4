// SPDX-License-Identifier: Apache-2.0

package levels

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// One connection carries one answer:
//
//	asks     length, JSON of wish
//	answers  (length, bytes)*, 0, length, JSON of trailer
//
// Lengths are 4 bytes, the most significant first. The bytes are those of all files that were asked for, one after the
// other.

// Conn is a connection to a process of another node, whose other end is known to be of this job.
type Conn interface {
	io.ReadWriteCloser
	SetDeadline(t time.Time) error
}

// Dial makes a connection to a process.
type Dial func(process int) (Conn, error)

// wish asks for files.
type wish struct {
	Set   string `json:"set"`
	Epoch int    `json:"epoch"`
	Files []File `json:"files"`
	Sound bool   `json:"sound,omitempty"` // each is checked before it is sent
}

// trailer is at the end of an answer.
type trailer struct {
	Error  string `json:"error,omitempty"`
	File   string `json:"file,omitempty"`   // the error is of this file
	Digest string `json:"digest,omitempty"` // of all bytes
}

const (
	maxWords = 4 << 20   // bytes of JSON: the files of a node with ten thousand ranks
	maxPiece = 256 << 10 // bytes in one piece of an answer
	// stall is how long one piece may take before the other end counts as gone.
	stall = time.Minute
	// checking is how long a piece may take where whole files are checked first.
	checking = 30 * time.Minute
)

// fileError is an error of one of several files.
type fileError struct {
	file string
	err  error
}

func (e *fileError) Error() string { return e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

func (w *wish) check() error {
	if !validSet(w.Set) || w.Epoch < 1 || len(w.Files) == 0 {
		return fmt.Errorf("%d files of epoch %d in %q", len(w.Files), w.Epoch, w.Set)
	}
	for _, f := range w.Files {
		if !validFile(f.Name) || f.Bytes <= 0 {
			return fmt.Errorf("file %q of %d bytes", f.Name, f.Bytes)
		}
	}
	return nil
}

func writeWords(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > maxWords {
		return fmt.Errorf("%d bytes of words, want at most %d", len(b), maxWords)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

func readWords(r io.Reader, v any) error {
	n, err := readLength(r, maxWords)
	if err != nil {
		return err
	}
	b := make([]byte, n)
	if err := readFull(r, b); err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

func readLength(r io.Reader, most int) (int, error) {
	var length [4]byte
	if err := readFull(r, length[:]); err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > uint32(most) {
		return 0, fmt.Errorf("a piece has %d bytes, want at most %d", n, most)
	}
	return int(n), nil
}

// readFull is io.ReadFull for what must be there.
func readFull(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// answer reads the bytes of an answer. It returns io.EOF once they were all there, as announced by the digest at
// their end.
type answer struct {
	conn  Conn
	from  string // the node, for messages
	left  int64  // bytes that are still to come
	piece int    // of them in this piece
	sum   hasher
	err   error
	wait  time.Duration // for a piece
}

func (a *answer) Read(p []byte) (int, error) {
	if a.err != nil {
		return 0, a.err
	}
	n, err := a.read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("from node %s: %w", a.from, err)
	}
	a.err = err
	return n, err
}

func (a *answer) read(p []byte) (int, error) {
	if a.piece == 0 {
		_ = a.conn.SetDeadline(time.Now().Add(a.wait)) // a connection that is closed says so when it is read
		n, err := readLength(a.conn, maxPiece)
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, a.end()
		}
		if a.piece = n; int64(n) > a.left {
			return 0, errors.New("it sends more than it was asked for")
		}
	}
	n, err := a.conn.Read(p[:min(len(p), a.piece)])
	a.piece -= n
	a.left -= int64(n)
	_, _ = a.sum.Write(p[:n])
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (a *answer) end() error {
	var t trailer
	if err := readWords(a.conn, &t); err != nil {
		return err
	}
	switch {
	case t.Error != "":
		return &fileError{t.File, errors.New(t.Error)}
	case a.left != 0:
		return fmt.Errorf("%d bytes are missing", a.left)
	case t.Digest != a.sum.text():
		return fmt.Errorf("what arrived has another digest than what was sent (%s, %s)", a.sum.text(), t.Digest)
	}
	return io.EOF
}

func (a *answer) Close() error { return a.conn.Close() }

// pieces sends bytes as an answer.
type pieces struct {
	conn Conn
	sum  hasher
}

func (s *pieces) Write(p []byte) (done int, err error) {
	for len(p) > 0 {
		n := min(len(p), maxPiece)
		_ = s.conn.SetDeadline(time.Now().Add(stall))
		var length [4]byte
		binary.BigEndian.PutUint32(length[:], uint32(n))
		if _, err := s.conn.Write(length[:]); err != nil {
			return done, err
		}
		if _, err := s.conn.Write(p[:n]); err != nil {
			return done, err
		}
		_, _ = s.sum.Write(p[:n])
		done, p = done+n, p[n:]
	}
	return done, nil
}

// end says how the answer ended.
func (s *pieces) end(err error) error {
	t := trailer{Digest: s.sum.text()}
	if err != nil {
		t = trailer{Error: err.Error()}
		var of *fileError
		if errors.As(err, &of) {
			t.File = of.file
		}
	}
	_ = s.conn.SetDeadline(time.Now().Add(stall))
	if _, err := s.conn.Write(make([]byte, 4)); err != nil {
		return err
	}
	return writeWords(s.conn, t)
}
