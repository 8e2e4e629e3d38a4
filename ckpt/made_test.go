// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"os"
	"path/filepath"
	"testing"
)

// Places in the log stay what they are: when it is opened again, when its end is lost, and when what is before all epochs is given back.
func TestMadeLog(t *testing.T) {
	o := testOptions(filepath.Join(t.TempDir(), "ckpt"))
	o.Files = "snapshot"
	j := start(t, newTestHost(t), o)
	if end := j.noteMade(j.store); end != int64(len(madeMagic)) {
		t.Fatalf("a new log ends at %d", end)
	}
	path := j.madePath(j.store)
	grow := func(bytes int) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			_, err = f.Write(make([]byte, bytes))
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	grow(100)
	end := j.noteMade(j.store)
	if end != int64(len(madeMagic))+100 {
		t.Errorf("it ends at %d", end)
	}
	j.made.file.Close()
	j.made = madeLog{}
	j.meta.Made = end
	if err := os.Truncate(path, 20); err != nil {
		t.Fatal(err)
	}
	if again := j.noteMade(j.store); again != end {
		t.Errorf("after its end was lost it ends at %d", again)
	}
	// An epoch of which nothing is known keeps all of it.
	if err := os.MkdirAll(j.store.EpochDir(1), 0o700); err != nil {
		t.Fatal(err)
	}
	grow(madeBatch)
	end = j.noteMade(j.store)
	j.madeAt(2, end)
	if j.made.freed != 0 {
		t.Errorf("%d bytes are given back", j.made.freed)
	}
	j.madeAt(1, 60)
	j.madeAt(2, end)
	if j.made.freed != 0 && j.made.freed != 60 { // where the file system can
		t.Errorf("%d bytes are given back, of 60", j.made.freed)
	}
	if now := j.noteMade(j.store); now != end {
		t.Errorf("it ends at %d then", now)
	}
}
