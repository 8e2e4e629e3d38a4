// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"path/filepath"
	"time"
)

// Sight is what can be seen of a directory's owner from outside.
type Sight struct {
	Owned bool // somebody has it, dead or alive
	Owner Record
	Life  Life
	raw   *seen
	dir   string
}

// Look tells who owns a directory, without changing anything.
func Look(dir string) (Sight, error) { return look(dir, nil) }

func look(dir string, n *node) (Sight, error) {
	s := Sight{dir: dir}
	folder := filepath.Join(dir, folderName)
	top, err := newest(folder)
	if err != nil {
		return s, fmt.Errorf("who owns %s: %w", dir, err)
	}
	if top == nil || top.State == Released {
		return s, nil
	}
	if n == nil {
		if n, err = here(); err != nil {
			return s, err
		}
	}
	s.Owned, s.Owner, s.raw = true, top.Record, top
	s.Life = n.knows(&top.Record, filepath.Join(folder, nameOf(top.Token)))
	return s, nil
}

// Watch is Look, but watches an owner of whom nothing is known here, until the beat changes or the time of two
// beats has passed. Life is Alive if the beat changed, and still Unknown if it did not.
func Watch(dir string) (Sight, error) { return watchFor(dir, nil) }

func watchFor(dir string, n *node) (Sight, error) {
	first, err := look(dir, n)
	if err != nil || !first.Owned || first.Life != Unknown {
		return first, err
	}
	end := time.Now().Add(2*first.Owner.period() + 500*time.Millisecond)
	for {
		s, err := look(dir, n)
		if err != nil || !s.Owned || s.Life != Unknown {
			return s, err
		}
		if s.Owner.Token != first.Owner.Token || s.Owner.Beat != first.Owner.Beat {
			s.Life = Alive
			return s, nil
		}
		if time.Now().After(end) {
			return s, nil
		}
		time.Sleep(poll)
	}
}

// Beats is how long two renewals of the owner take.
func (s *Sight) Beats() time.Duration { return 2 * s.Owner.period() }
