// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	folderName = "lease"
	// recordBytes is the size of every record. It never changes, so that renewing one needs no space.
	recordBytes = 4096
	sumBytes    = 9 // eight digits of CRC-32 and the end of the line
	format      = 1
	nameDigits  = 12
	maxToken    = 999_999_999_999
)

// Default is the time that an owner has when nothing else is asked for.
const Default = time.Minute

// Least and Most bound the time of a lease.
const (
	Least = 500 * time.Millisecond
	Most  = 24 * time.Hour
)

// State is what an owner does with the directory.
type State string

// States; doc.go says what is true in each.
const (
	Starting State = "starting"
	Running  State = "running"
	Ending   State = "ending"
	Released State = "released"
)

// Record says who owns a directory.
type Record struct {
	Format int    `json:"format"`
	Token  uint64 `json:"token"` // of the file's name; greater than that of every owner before
	Beat   uint64 `json:"beat"`  // changes while the owner lives
	State  State  `json:"state"`
	// Brief: the owner needs the directory for moments only, so others wait instead of giving up.
	Brief bool `json:"brief,omitempty"`
	// Seconds is for how long other nodes watch a beat that does not change before they take the
	// directory.
	Seconds float64 `json:"seconds"`

	// Heir: the owner took the directory from a living process of its own job: a wrapper of the program.
	Heir bool `json:"heir,omitempty"`

	Program string    `json:"program"`
	Job     string    `json:"job,omitempty"` // what its launcher calls the job; "": it does not tell
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Since   time.Time `json:"since"` // for people

	Boot   string `json:"boot"`   // of the node: another one after a reboot
	Space  string `json:"space"`  // of process numbers: containers have their own
	Start  uint64 `json:"start"`  // of the process, in the kernel's ticks: numbers are used again
	Locked bool   `json:"locked"` // its file is locked (flock) as long as it lives
}

// Lease is the time for which a beat must stand still.
func (r *Record) Lease() time.Duration {
	return min(max(time.Duration(r.Seconds*float64(time.Second)), Least), Most)
}

// String names the owner.
func (r *Record) String() string {
	if r.Host == "" {
		return "somebody whose record is damaged"
	}
	return fmt.Sprintf("%s (process %d on %s)", r.Program, r.PID, r.Host)
}

// sameProcess tells whether two records are of one owner, at different times.
func (r *Record) sameProcess(o *Record) bool {
	return r.Host == o.Host && r.PID == o.PID && r.Boot == o.Boot && r.Space == o.Space && r.Start == o.Start &&
		r.Since.Equal(o.Since)
}

// encode makes the bytes of a file: JSON, spaces, and a sum. The sum is wrong in a record that was read while it
// was being written.
func (r *Record) encode() ([]byte, error) {
	p, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(p) > recordBytes-sumBytes {
		return nil, fmt.Errorf("a record of %d bytes is too long", len(p))
	}
	p = append(p, bytes.Repeat([]byte{' '}, recordBytes-sumBytes-len(p))...)
	return fmt.Appendf(p, "%08x\n", crc32.ChecksumIEEE(p)), nil
}

var errDamaged = errors.New("the record is damaged")

func decode(p []byte) (Record, error) {
	var r Record
	if len(p) != recordBytes {
		return r, fmt.Errorf("%w: %d bytes, expected %d", errDamaged, len(p), recordBytes)
	}
	body := p[:recordBytes-sumBytes]
	if string(p[len(body):]) != fmt.Sprintf("%08x\n", crc32.ChecksumIEEE(body)) {
		return r, fmt.Errorf("%w: its sum is wrong", errDamaged)
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return Record{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if r.Format != format {
		return Record{}, fmt.Errorf("%w: format %d, this libckpt knows %d", errDamaged, r.Format, format)
	}
	return r, nil
}

func nameOf(token uint64) string { return fmt.Sprintf("%0*d", nameDigits, token) }

func tokenOf(name string) (uint64, bool) {
	n, err := strconv.ParseUint(name, 10, 64)
	return n, err == nil && n >= 1 && n <= maxToken && nameOf(n) == name
}

// tokens lists the records of a folder, highest first, and what else is in it. A missing folder counts as empty.
// When the folder is opened, NFS asks the server whether the folder has changed.
func tokens(folder string) (found []uint64, other []string, err error) {
	d, err := os.Open(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return names(d)
}

// tokensIn lists the records of the folder that root is, whatever its name is now.
func tokensIn(root *os.Root) ([]uint64, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	found, _, err := names(d)
	return found, err
}

// ownNames are those of all files that this package makes: records, temporary files, refusals.
var ownNames = regexp.MustCompile(`^(\d{12}|\d{12}\.[0-9a-f]{16}\.tmp|refused-[0-9a-f]{8}|now\.\d+\.tmp)$`)

// written tells whether a file of this name may be ours, and so may be removed. NFS keeps removed files that are
// open under names of its own, and removes them itself.
func written(name string) bool { return ownNames.MatchString(name) }

// strangers returns an error when the folder holds what this package did not make: then it is not a folder of
// leases, and nothing in it may be touched.
func strangers(folder string) error {
	_, other, err := tokens(folder)
	if err != nil {
		return fmt.Errorf("who owns %s: %w", filepath.Dir(folder), err)
	}
	for _, name := range other {
		if !written(name) && !strings.HasPrefix(name, ".nfs") {
			return fmt.Errorf("%s is not a checkpoint directory: %s in it is not libckpt's; nothing was touched; choose another --dir",
				filepath.Dir(folder), filepath.Join(folderName, name))
		}
	}
	return nil
}

// names reads an open folder, and closes it.
func names(d *os.File) (found []uint64, other []string, err error) {
	names, err := d.Readdirnames(-1)
	err = errors.Join(err, d.Close())
	if errors.Is(err, os.ErrNotExist) { // removed meanwhile
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		if t, ok := tokenOf(name); ok {
			found = append(found, t)
		} else {
			other = append(other, name)
		}
	}
	sortDown(found)
	return found, other, nil
}

// seen is a record as it was read, with its bytes. A damaged record has only its bytes.
type seen struct {
	Record
	raw []byte
	at  time.Time // when it was written, by the clock of the file system
}

// readTries is how often a record that is being written is read again.
const readTries = 20

// newest reads the record with the highest token; nil when there is none.
func newest(folder string) (*seen, error) {
	for range readTries {
		list, _, err := tokens(folder)
		if err != nil || len(list) == 0 {
			return nil, err
		}
		raw, at, err := readAt(filepath.Join(folder, nameOf(list[0])))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESTALE) {
			continue // a newer one is there
		}
		if err != nil {
			return nil, err
		}
		s := &seen{raw: raw, at: at}
		if s.Record, err = decode(raw); err != nil {
			time.Sleep(time.Millisecond)
			if again, _ := readRaw(filepath.Join(folder, nameOf(list[0]))); !bytes.Equal(again, raw) {
				continue // it was being written
			}
			s.Seconds = Default.Seconds()
		}
		s.Token = list[0]
		return s, nil
	}
	return nil, fmt.Errorf("%s: its records do not stand still long enough to be read", folder)
}

// readRaw reads a record. Something else in its place, such as a FIFO, does not hold the reader.
func readRaw(path string) ([]byte, error) {
	raw, _, err := readAt(path)
	return raw, err
}

// readAt also says when it was written.
func readAt(path string) (raw []byte, at time.Time, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, at, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, at, err
	}
	if !st.Mode().IsRegular() {
		return nil, at, fmt.Errorf("%s is not a regular file; remove it when no job runs in the directory", path)
	}
	raw, err = io.ReadAll(io.LimitReader(f, recordBytes+1))
	return raw, st.ModTime(), err
}
