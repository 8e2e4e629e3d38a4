// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/internal/regular"
)

// ManifestFormat is the version of the manifest that this package writes and reads.
const ManifestFormat = 1

// maxManifest bounds what is read as a manifest: room for a million ranks.
const maxManifest = 1 << 30

// Manifest says what a committed epoch is made of.
type Manifest struct {
	Format  int       `json:"format"`  // ManifestFormat; set by Commit
	Epoch   int       `json:"epoch"`   // set by Commit
	Time    time.Time `json:"time"`    // of the commit, UTC; set by Commit unless given
	Libckpt string    `json:"libckpt"` // version that wrote it
	Parent  int       `json:"parent,omitempty"`
	Needs   []int     `json:"needs,omitempty"` // epochs with content of this one, ascending; see Depends

	// Mode is "regions" where images have the memory of ranks, apart from each other, and no processes; else "".
	Mode  string `json:"mode,omitempty"`
	Ranks int    `json:"ranks"`
	// Level is the highest level that the images have reached (package levels). Without Levels they were written to this
	// directory, and it is 4, which the program wanted (regions mode), or 0.
	Level int `json:"level,omitempty"`
	// Processes is how many images there are, where that is not the number of ranks. See ProcessCount.
	Processes int `json:"processes,omitempty"`

	MPI     MPI      `json:"mpi"`
	Program string   `json:"program"`
	Args    []string `json:"args"`
	Hosts   []string `json:"hosts"` // each host once

	// What the checkpoint cost, for `ckptctl plan`. Zero when not measured.
	StopSeconds  float64 `json:"stopSeconds,omitempty"`  // the application stood still, worst rank
	TotalSeconds float64 `json:"totalSeconds,omitempty"` // from the request to the commit
	// Asked is when the checkpoint was asked for, by the clock of rank 0. Zero: an older libckpt wrote it.
	Asked time.Time `json:"asked,omitzero"`

	// Chosen is the period that held when it was committed, where it is chosen by costs (ckptrun --mtbf, --overhead).
	Chosen *Chosen `json:"chosen,omitempty"`

	Images []Image `json:"images"` // of rank 0, 1, ...

	// FoundLost is why a restart has found that the epoch cannot be had, and has continued an older one; see Lost.
	FoundLost string `json:"lost,omitempty"`

	// Levels says where else images are; nil: in the directory of the epoch alone.
	Levels *levels.Record `json:"levels,omitempty"`
	// Objects says which object store has all files of the epoch; nil: none.
	Objects *Objects `json:"objects,omitempty"`
}

// Chosen is a choice of how often to checkpoint.
type Chosen struct {
	PeriodSeconds float64 `json:"periodSeconds"`    // between the beginnings of two checkpoints
	Levels        string  `json:"levels,omitempty"` // as ckptrun --levels has it; "": there are none
	Why           string  `json:"why"`              // in words: what decided, and the costs
}

// MPI names the MPI that the job ran on.
type MPI struct {
	Name    string `json:"name"` // "mpich", "openmpi", "none"
	Version string `json:"version,omitempty"`
	ABI     string `json:"abi"` // of the application: "mpich", "openmpi", "mpi5", "none"
	// Threads is the highest thread level that a rank asked for: "single", "funneled", "serialized",
	// "multiple".
	Threads string `json:"threads,omitempty"`
}

// Image is the image of one process.
type Image struct {
	Rank    int    `json:"rank"`            // with Tasks: of the process
	Tasks   []int  `json:"tasks,omitempty"` // ranks of a process that has several
	File    string `json:"file"`            // name in the directory of the epoch
	Bytes   int64  `json:"bytes"`
	Digest  string `json:"digest"`           // image.Digest.String()
	Payload uint64 `json:"payload"`          // bytes of memory in it
	Shared  uint64 `json:"shared,omitempty"` // bytes of memory in images that it refers to
	Same    uint64 `json:"same,omitempty"`   // of them, what another process of the node had the same when this was written
	Others  []int  `json:"others,omitempty"` // images of this epoch, or of those that are needed, that it refers to, but for its own, ascending
	Unread  uint64 `json:"unread,omitempty"` // bytes of memory that were known to be as they were without being read
	Host    string `json:"host,omitempty"`

	StopSeconds float64 `json:"stopSeconds,omitempty"` // this process stood still
	StillUntil  float64 `json:"stillUntil,omitempty"`  // seconds after the request, just before its program ran again; 0: not before the commit
	Phases      []Phase `json:"phases,omitempty"`      // up to the image, in order
}

// Phase is a stage of a checkpoint, as one process went through it. Its clock is that of the process's node.
type Phase struct {
	Name    string  `json:"name"` // "agree", "close", "stop", "drain", "snapshot", "write"
	At      float64 `json:"at"`   // seconds after the request
	Seconds float64 `json:"seconds"`
}

// ProcessCount is how many processes the epoch is of.
func (m *Manifest) ProcessCount() int {
	if m.Processes != 0 {
		return m.Processes
	}
	return m.Ranks
}

// ImageOf is the number of the image that has the rank; -1: none has.
func (m *Manifest) ImageOf(rank int) int {
	if m.Processes == 0 && rank >= 0 && rank < len(m.Images) {
		return rank
	}
	return slices.IndexFunc(m.Images, func(im Image) bool { return slices.Contains(im.Tasks, rank) })
}

// checkTasks wants each rank in one process.
func (m *Manifest) checkTasks() error {
	seen := map[int]bool{}
	for i := range m.Images {
		for _, r := range m.Images[i].Tasks {
			if r < 0 || r >= m.Ranks || seen[r] {
				return fmt.Errorf("image %d has rank %d of %d, or another one has it too", i, r, m.Ranks)
			}
			seen[r] = true
		}
	}
	if len(seen) != m.Ranks {
		return fmt.Errorf("the images have %d ranks of %d", len(seen), m.Ranks)
	}
	return nil
}

// Depends are the epochs that must stay as long as this one does: those with its content, and the one it was built upon.
func (m *Manifest) Depends() []int {
	list := slices.Clone(m.Needs)
	if m.Parent != 0 && !slices.Contains(list, m.Parent) {
		list = append(list, m.Parent)
	}
	return list
}

// check says what is wrong with a manifest's content.
func (m *Manifest) check() error {
	if len(m.Images) == 0 || m.ProcessCount() != len(m.Images) {
		return fmt.Errorf("%d images for %d processes", len(m.Images), m.ProcessCount())
	}
	if m.Processes != 0 {
		if err := m.checkTasks(); err != nil {
			return err
		}
	}
	if err := m.checkLevels(); err != nil {
		return err
	}
	if err := m.checkObjects(); err != nil {
		return fmt.Errorf("objects: %w", err)
	}
	if m.Parent < 0 || m.Parent >= m.Epoch {
		return fmt.Errorf("parent %d of epoch %d is not older", m.Parent, m.Epoch)
	}
	for i, n := range m.Needs {
		if n < 1 || n >= m.Epoch || i > 0 && n <= m.Needs[i-1] {
			return fmt.Errorf("the epochs %v that epoch %d needs are not older ones, in ascending order", m.Needs, m.Epoch)
		}
	}
	for i := range m.Images {
		im := &m.Images[i]
		switch {
		case im.Rank != i:
			return fmt.Errorf("image %d is of rank %d", i, im.Rank)
		case im.File == "" || filepath.Base(im.File) != im.File || im.File == "." || im.File == "..":
			return fmt.Errorf("image %d: %q is not the name of a file", i, im.File)
		case im.Bytes <= 0:
			return fmt.Errorf("image %d has %d bytes", i, im.Bytes)
		case im.Same > im.Shared:
			return fmt.Errorf("image %d: %d bytes of %d are another's", i, im.Same, im.Shared)
		case !validOthers(im.Others, i, len(m.Images)):
			return fmt.Errorf("image %d refers to images %v of %d", i, im.Others, len(m.Images))
		case !strings.HasPrefix(im.Digest, "blake3:"):
			return fmt.Errorf("image %d: digest %q is not known", i, im.Digest)
		}
	}
	return nil
}

// validOthers wants other images, ascending.
func validOthers(list []int, own, images int) bool {
	for i, n := range list {
		if n < 0 || n >= images || n == own || i > 0 && n <= list[i-1] {
			return false
		}
	}
	return true
}

// checkLevels wants a record of the same files.
func (m *Manifest) checkLevels() error {
	r := m.Levels
	if r == nil {
		if m.Level != 0 && m.Level != levels.Shared {
			return fmt.Errorf("level %d, and no record of it", m.Level)
		}
		return nil
	}
	if err := r.Check(); err != nil {
		return fmt.Errorf("levels: %w", err)
	}
	if r.Level() != m.Level {
		return fmt.Errorf("level %d, by its record %d", m.Level, r.Level())
	}
	bytes := map[string]int64{}
	for i := range r.Nodes {
		for _, f := range r.Nodes[i].Files {
			bytes[f.Name] = f.Bytes
		}
	}
	for i := range m.Images {
		if im := &m.Images[i]; bytes[im.File] != im.Bytes {
			return fmt.Errorf("image %d: %q of %d bytes is on no node", i, im.File, im.Bytes)
		}
	}
	if len(bytes) != len(m.Images) {
		return fmt.Errorf("nodes have %d files, of %d images", len(bytes), len(m.Images))
	}
	return nil
}

// Lost is why the epoch cannot be had any more; "": it may be.
func (m *Manifest) Lost() string {
	if m.Levels != nil && m.Levels.Lost != "" { // as libckpt wrote it while only epochs with levels could be lost
		return m.Levels.Lost
	}
	return m.FoundLost
}

// SetLost says why the epoch cannot be had; "": it can.
func (m *Manifest) SetLost(why string) {
	m.FoundLost = why
	if m.Levels != nil && m.Levels.Lost != "" {
		m.Levels = m.Levels.Clone()
		m.Levels.Lost = ""
	}
}

// The manifest is JSON whose last member is the digest of everything before the digest's own
// digits. What follows them is always the same, so every byte of the file is covered.
const (
	digestHead = ",\n  \"digest\": \"blake3:"
	digestTail = "\"\n}\n"
)

func encodeManifest(m *Manifest) ([]byte, error) {
	p, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	p = append(bytes.TrimSuffix(p, []byte("\n}")), digestHead...)
	d := blake3.Sum256(p)
	return append(hex.AppendEncode(p, d[:]), digestTail...), nil
}

func corruptManifest(path string, at int, what string, expected, found any) error {
	return &image.CorruptError{File: path, Section: "manifest", Offset: int64(at), What: what,
		Expected: fmt.Sprint(expected), Found: fmt.Sprint(found)}
}

func decodeManifest(path string, p []byte) (*Manifest, error) {
	bad := func(at int, what string, expected, found any) (*Manifest, error) {
		return nil, corruptManifest(path, at, what, expected, found)
	}
	tail := 64 + len(digestTail)
	at := len(p) - tail
	if at < len(digestHead) || string(p[at+64:]) != digestTail ||
		string(p[at-len(digestHead):at]) != digestHead {
		return bad(max(at, 0), "end of the file", "a digest (was the file cut short or edited?)", "another")
	}
	d := blake3.Sum256(p[:at])
	if want := string(p[at : at+64]); want != hex.EncodeToString(d[:]) {
		return bad(at, "digest", want, hex.EncodeToString(d[:]))
	}
	// Whoever wrote a sound manifest of another format may have put anything in it.
	var f struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(p, &f); err != nil {
		return bad(0, "content", "JSON", err)
	}
	if f.Format != ManifestFormat {
		return nil, &image.VersionError{File: path, Found: uint32(f.Format), Supported: ManifestFormat}
	}
	m := new(Manifest)
	if err := json.Unmarshal(p, m); err != nil {
		return bad(0, "content", "JSON of a manifest", err)
	}
	if err := m.check(); err != nil {
		return bad(0, "content", "a manifest", err)
	}
	return m, nil
}

// lockPending locks a manifest, so that it counts for nobody until unlock is called or this process ends. The lock
// belongs to the file, so it stays when the file gets its name. On a file system without locks this does nothing.
func lockPending(path string) (unlock func()) {
	f, err := regular.Open(path, os.O_RDWR)
	if err != nil {
		return func() {}
	}
	_ = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	return func() {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // for children of this process, too, which may have the file open
		_ = f.Close()
	}
}

// pending tells whether the manifest is there and not committed yet, by a process that lives.
func pending(path string) (bool, error) {
	f, err := regular.Open(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("manifest: %w", err)
	}
	defer func() { _ = f.Close() }()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK), nil
}

func readManifest(path string) (*Manifest, error) {
	p, err := regular.ReadFile(path, maxManifest)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return decodeManifest(path, p)
}
