// SPDX-License-Identifier: Apache-2.0

package meeting

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// A frame is what the ranks of a meeting say to each other: its kind, the length of what follows in 8 bytes,
// big-endian, and that.
const (
	frameHello   = 'h' // a guest says who it is
	frameWelcome = 'w' // rank 0: all have come, and which rank this is
	frameOther   = 'o' // rank 0: this is the meeting of another job; look on
	frameFault   = 'f' // rank 0: there is no meeting; the text says why
	frameGive    = 'g' // a guest: its part of an all-gather
	frameAll     = 'a' // rank 0: the parts of all, by rank

	frameHeader = 9
	maxText     = 4 << 10 // bytes of a hello or a fault
	maxRankText = 16      // of a welcome: the rank that the meeting gave, in digits
	maxGive     = 1 << 20 // bytes that a rank may give to an all-gather
)

type frame struct {
	kind byte
	data []byte
}

func (f frame) send(w io.Writer) error {
	b := make([]byte, frameHeader, frameHeader+len(f.data))
	b[0] = f.kind
	binary.BigEndian.PutUint64(b[1:], uint64(len(f.data)))
	_, err := w.Write(append(b, f.data...))
	return err
}

// receive reads a frame with most bytes of data; faults may always be as long as a text.
func receive(r io.Reader, most int) (frame, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return frame{}, err
	}
	kind, n := header[0], binary.BigEndian.Uint64(header[1:])
	if kind == frameFault {
		most = max(most, maxText)
	}
	if n > uint64(most) {
		return frame{}, fmt.Errorf("frame %q has %d bytes, want at most %d", kind, n, most)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return frame{}, fmt.Errorf("frame %q ends early: %w", kind, err)
	}
	return frame{kind, data}, nil
}

// fault is err as others are told it.
func fault(err error) frame {
	text := err.Error()
	return frame{frameFault, []byte(text[:min(len(text), maxText)])}
}

// hello is what a guest says of itself.
type hello struct {
	Rank  int    `json:"rank"` // -1: the meeting gives one
	Ranks int    `json:"ranks"`
	From  string `json:"from"` // where both are from, for messages
	Job   string `json:"job,omitempty"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
}

// rankText is the rank for messages.
func (h *hello) rankText() string {
	if h.Rank < 0 {
		return "a rank"
	}
	return fmt.Sprintf("rank %d", h.Rank)
}

func (h *hello) who() string { return person(h.PID, h.Host) }

func (h *hello) frame() (frame, error) {
	b, err := json.Marshal(h)
	return frame{frameHello, b}, err
}

func readHello(r io.Reader) (*hello, error) {
	f, err := receive(r, maxText)
	if err != nil {
		return nil, err
	}
	var h hello
	if f.kind != frameHello {
		return nil, fmt.Errorf("it began with frame %q, want a hello", f.kind)
	}
	if err := json.Unmarshal(f.data, &h); err != nil {
		return nil, fmt.Errorf("its hello: %w", err)
	}
	if h.Ranks < 1 || h.Rank < -1 || h.Rank >= h.Ranks {
		return nil, fmt.Errorf("its hello says rank %d of %d", h.Rank, h.Ranks)
	}
	return &h, nil
}
