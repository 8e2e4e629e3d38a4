// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/libckpt/libckpt/internal/regular"
)

// historyName is the file that keeps what each epoch cost, also when the epoch itself is gone. A line is an epoch. It
// is for people and their tools: no checkpoint and no restart needs it, so it is neither fenced nor synced.
const historyName = "history.jsonl"

// maxHistory bounds the file: what is older than the newest half is dropped then.
var maxHistory int64 = 16 << 20

// History is what is kept of an epoch: its manifest without what finds and checks the images.
type History struct {
	Manifest
	// Gone: its epoch is not in the directory any more, or is not the one that the line is of.
	Gone bool `json:"-"`
}

// Past is the line of a manifest.
func Past(m *Manifest) History {
	h := History{Manifest: *m}
	h.Images = slices.Clone(m.Images)
	for i := range h.Images {
		h.Images[i].Digest, h.Images[i].File = "", ""
	}
	return h
}

// AppendHistory adds an epoch. Only the owner of the directory does.
func (s *Store) AppendHistory(m *Manifest) error {
	path := filepath.Join(s.dir, historyName)
	fail := func(err error) error { return fmt.Errorf("history of epochs %s: %w", path, err) }
	line, err := json.Marshal(Past(m))
	if err != nil {
		return fail(err)
	}
	line = append(line, '\n')
	if err := s.shortenHistory(path, int64(len(line))); err != nil {
		return fail(err)
	}
	f, err := regular.Open(path, os.O_WRONLY|os.O_APPEND)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		return fail(err)
	}
	st, err := f.Stat()
	if err == nil {
		_, err = f.Write(line)
	}
	if err != nil && st != nil {
		_ = f.Truncate(st.Size()) // a full disk leaves no half line
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fail(err)
	}
	return nil
}

// shortenHistory drops the older half when the file would get too long.
func (s *Store) shortenHistory(path string, more int64) error {
	st, err := os.Stat(path)
	if err != nil || st.Size()+more <= maxHistory {
		return nil
	}
	p, err := regular.ReadFile(path, 2*maxHistory)
	if err != nil {
		return err
	}
	p = p[len(p)/2:]
	p = p[bytes.IndexByte(p, '\n')+1:]
	temp, err := writeTemp(path, p, "store.history")
	if err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		_ = os.Remove(temp)
		return err
	}
	return nil
}

// History is what is known of all epochs that were committed in the directory, oldest first: those that are there, and
// those of which only the line is left. Lines that cannot be read are left out, and counted.
func (s *Store) History() (list []History, unread int, err error) {
	epochs, err := s.Epochs()
	if err != nil {
		return nil, 0, err
	}
	type name struct {
		epoch int
		time  int64
	}
	there := map[name]bool{}
	for i := range epochs {
		if m := epochs[i].Manifest; m != nil {
			list = append(list, Past(m))
			there[name{m.Epoch, m.Time.UnixNano()}] = true
		}
	}
	p, err := regular.ReadFile(filepath.Join(s.dir, historyName), 2*maxHistory)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, 0, fmt.Errorf("history of epochs: %w", err)
	}
	for line := range bytes.Lines(p) {
		h := History{Gone: true}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if json.Unmarshal(line, &h) != nil || h.Epoch < 1 || len(h.Images) == 0 {
			unread++
			continue
		}
		if id := (name{h.Epoch, h.Time.UnixNano()}); !there[id] {
			there[id] = true
			list = append(list, h)
		}
	}
	slices.SortStableFunc(list, func(a, b History) int { return a.Time.Compare(b.Time) })
	return list, unread, nil
}

// Began is when the checkpoint was asked for, as far as that is known.
func (m *Manifest) Began() time.Time {
	if !m.Asked.IsZero() {
		return m.Asked
	}
	return m.Time.Add(-time.Duration(m.TotalSeconds * float64(time.Second)))
}
