// SPDX-License-Identifier: Apache-2.0

package meeting

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/libckpt/libckpt/internal/handshake"
	"github.com/libckpt/libckpt/internal/hostaddr"
	"github.com/libckpt/libckpt/internal/regular"
)

const (
	noteName   = ".meet"
	noteTemp   = noteName + ".*.tmp"
	noteFormat = 1
	maxNote    = 64 << 10
)

// note is the file by which the ranks of a job find rank 0. Whoever has the key may join the meeting, so nobody else
// may read it.
type note struct {
	Format    int      `json:"format"`
	Job       string   `json:"job,omitempty"` // the launcher's name of the job; empty: it has none
	Host      string   `json:"host"`          // for messages, as PID
	PID       int      `json:"pid"`
	HostID    string   `json:"host_id"`             // tells whether loopback leads to rank 0
	Loopback  string   `json:"loopback,omitempty"`  // address:port from the same host
	Addresses []string `json:"addresses,omitempty"` // address:port from elsewhere, in the order to try
	Key       string   `json:"key"`                 // 32 random bytes in hexadecimal: the private key of both ends
}

func newKey() string {
	b := make([]byte, handshake.KeySize)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	return hex.EncodeToString(b)
}

// who says whose note it is.
func (n *note) who() string { return person(n.PID, n.Host) }

func person(pid int, host string) string { return fmt.Sprintf("process %d on %s", pid, host) }

// identity is that of everybody who has read the note.
func (n *note) identity() (*handshake.Identity, error) {
	seed, err := hex.DecodeString(n.Key)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	return handshake.IdentityOf(seed)
}

// greeting is what rank says before it proves that it has the key. The public key names the meeting.
func greeting(me *handshake.Identity, rank int) handshake.Hello {
	public := me.Public()
	job := sha256.Sum256(public[:])
	return handshake.Hello{Protocol: protocol, Job: [16]byte(job[:16]), From: uint32(rank)}
}

var protocol = [8]byte{'c', 'k', 'p', 't', 'm', 'e', 't', '1'}

// ways lists what to try from this host, best first.
func (n *note) ways() []string {
	var w []string
	if here, err := hostaddr.Here(); err == nil && n.Loopback != "" && n.HostID == hex.EncodeToString(here[:]) {
		w = append(w, n.Loopback)
	}
	return append(w, n.Addresses...)
}

func parseNote(b []byte) (*note, error) {
	var n note
	if err := json.Unmarshal(b, &n); err != nil {
		return nil, err
	}
	if n.Format != noteFormat {
		return nil, fmt.Errorf("format is %d, this libckpt reads %d: use the same libckpt on every host", n.Format, noteFormat)
	}
	if _, err := n.identity(); err != nil {
		return nil, err
	}
	for _, w := range append([]string{n.Loopback}, n.Addresses...) {
		if _, err := netip.ParseAddrPort(w); err != nil && w != "" {
			return nil, err
		}
	}
	return &n, nil
}

// readNote returns nil without an error when there is none.
func readNote(dir string) (*note, error) {
	// NFS shows a name that is new to those who open the folder first.
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	_ = d.Close()
	path := filepath.Join(dir, noteName)
	b, err := regular.ReadFile(path, maxNote)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n, err := parseNote(b)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	return n, nil
}

// write puts the note in the place of any other, in one step.
func (n *note) write(dir string) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	// Another rank 0 that ends sweeps (remove), and may take this one's new file for a leftover.
	for range 5 {
		if err = writeOver(dir, b); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

func writeOver(dir string, b []byte) error {
	f, err := os.CreateTemp(dir, noteTemp) // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, noteName))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// remove removes the note if it is still this one, and what killed jobs left of theirs. Another rank 0 whose note is
// removed by bad luck writes it again.
func (n *note) remove(dir string) {
	if there, err := readNote(dir); err == nil && there != nil && there.Key == n.Key {
		_ = os.Remove(filepath.Join(dir, noteName))
	}
	left, _ := filepath.Glob(filepath.Join(dir, noteTemp))
	for _, path := range left {
		_ = os.Remove(path)
	}
}
