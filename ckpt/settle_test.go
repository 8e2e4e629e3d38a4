// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/internal/needmpi"
	"github.com/libckpt/libckpt/internal/userfault"
)

// settling has two ranks settle on an epoch, and returns what each took, what was logged, and what rank 0 told the user.
func settling(t *testing.T, all []*rank, spec string, fallback bool) (epochs [2]int, errs [2]error, logged, said string) {
	t.Helper()
	o := testOptions(all[0].options.Dir)
	o.Restart, o.Restarts, o.Fallback = spec, "lazy", fallback // the memory of both is in this process already
	o.Files = all[0].options.Files
	core, logs := observer.New(zap.WarnLevel)
	before := len(all[0].host.said)
	together(all, func(r *rank) {
		i := r.rt.rank
		from, err := OpenRestart(spec, fallback)
		if err == nil {
			err = from.settle(r.host, o, r.rt, zap.New(core))
		}
		if errs[i] = err; err == nil {
			epochs[i] = from.manifest.Epoch
			from.ready.drop()
		}
	})
	for _, e := range logs.All() {
		logged += e.Message + "\n"
	}
	return epochs, errs, logged, strings.Join(all[0].host.said[before:], "\n")
}

// needLater skips a test where memory cannot come while the program runs.
func needLater(t *testing.T) {
	t.Helper()
	fd, err := userfault.Open()
	if err != nil {
		needmpi.Skip(t, "no userfaultfd", fmt.Sprintf("the memory of ranks in one process has to come later: %v", err))
	}
	_ = unix.Close(fd)
}

// TestSettle: what is damaged or gone on one rank has both take an older epoch; it is said once, by rank 0, and noted.
func TestSettle(t *testing.T) {
	needLater(t)
	all := ranks(t, 2)
	for range 4 {
		all[0].options.Keep = 9
		try(t, all)
	}
	s := all[0].store
	dir := s.Dir()
	taken := func(spec string, epoch int, words ...string) {
		t.Helper()
		epochs, errs, logged, said := settling(t, all, spec, true)
		if epochs != [2]int{epoch, epoch} || said != "" {
			t.Errorf("took epochs %v, not %d: %v; %q", epochs, epoch, errs, said)
		}
		names(t, logged, words...)
		if n := strings.Count(logged, "taken instead"); n > 1 || (n == 0) != (len(words) == 0) {
			t.Errorf("said %d times what was taken: %q", n, logged)
		}
	}
	refused := func(spec string, fallback bool, words ...string) {
		t.Helper()
		epochs, errs, logged, said := settling(t, all, spec, fallback)
		if epochs != [2]int{} || logged != "" {
			t.Errorf("took epochs %v: %q", epochs, logged)
		}
		for i, err := range errs {
			if !errors.As(err, new(*SaidError)) {
				t.Errorf("rank %d tells the user: %v", i, err)
			}
		}
		names(t, said, words...)
	}
	taken(dir, 4)

	// The last byte is of the digest that all depends on.
	path := s.ImagePath(4, 1)
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	flipAt(t, path, st.Size()-1)
	refused(dir, false, "rank 1: ", path, "an older epoch is there: --restart "+dir+"@3")
	refused(dir+"@4", true, "rank 1: ", path, "an older epoch is there: --restart "+dir+"@3")
	taken(dir, 3, "epoch 4 is lost: rank 1: "+path+": damaged image: ", "; taken instead: epoch 3")
	taken(dir, 3, "an earlier restart has found that epoch 4 is lost: rank 1: ", "; taken instead: epoch 3")
	wantLost(t, s, 4)

	// It is mended, and asked for.
	flipAt(t, path, st.Size()-1)
	taken(dir, 3, "an earlier restart", "epoch 3")
	taken(dir+"@4", 4)
	taken(dir, 4)
	wantLost(t, s)

	// A page rots. Nobody sees it before the program runs, unless it is noted.
	path = s.ImagePath(4, 0)
	flipAt(t, path, page(t, path))
	taken(dir, 4)
	if err := suspect(path, errors.New("a page is damaged")); err != nil {
		t.Fatal(err)
	}
	refused(dir+"@4", true, "rank 0: ", path, "damaged image: pages 0x")
	taken(dir, 3, "epoch 4 is lost: rank 0: "+path+": damaged image: pages 0x", "; taken instead: epoch 3")
	flipAt(t, path, page(t, path))
	epochs, errs, logged, _ := settling(t, all, dir+"@4", true)
	if epochs != [2]int{4, 4} || !strings.Contains(logged, "all of it is sound") || len(suspectsAt(t, path)) > 0 {
		t.Errorf("a page that is sound after all: %v, %v, %q", epochs, errs, logged)
	}

	// Two are lost, then all.
	for n := 4; n >= 2; n-- {
		if err := os.Remove(s.ImagePath(n, 1)); err != nil {
			t.Fatal(err)
		}
	}
	taken(dir, 1, "epoch 4 is lost: rank 1: ", "epoch 3 is lost: ", "epoch 2 is lost: ", "; taken instead: epoch 1")
	if err := os.Remove(s.ImagePath(1, 0)); err != nil {
		t.Fatal(err)
	}
	for n := 2; n <= 4; n++ {
		if err := s.Change(n, func(m *store.Manifest) error { m.SetLost(""); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	refused(dir, true, "epoch 4 is lost: rank 1: ", "epoch 2 is lost: rank 1: ", "and 1 older ones are lost")
	wantLost(t, s)
}

// TestSettleFiles: what is kept of a file that one rank writes is lost, and the file itself is gone. Both ranks take an older
// epoch, and no file is put back before.
func TestSettleFiles(t *testing.T) {
	needLater(t)
	all := ranks(t, 2)
	var paths [2]string
	for i, r := range all {
		r.options.Files, r.options.Keep = "snapshot", 9
		path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", r.host.fd))
		if err != nil {
			t.Fatal(err)
		}
		paths[i] = path
	}
	for n := 1; n <= 4; n++ {
		for i, path := range paths {
			if err := os.WriteFile(path, bytes.Repeat([]byte{byte(i + 1)}, n*5000), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		try(t, all)
	}
	s := all[0].store
	kept := func(epoch int) string { return filepath.Join(s.EpochDir(epoch), "rank-00001-file-000") }
	settled := func(fallback bool, epoch int, words ...string) {
		t.Helper()
		epochs, errs, logged, said := settling(t, all, s.Dir(), fallback)
		if epochs != [2]int{epoch, epoch} || (said == "") != (epoch != 0) || epoch == 0 && logged != "" {
			t.Errorf("took epochs %v, not %d: %v; %q, %q", epochs, epoch, errs, logged, said)
		}
		names(t, logged+said, words...)
		if n := strings.Count(logged, "taken instead"); n != min(1, len(words)) && epoch != 0 {
			t.Errorf("said %d times what was taken: %q", n, logged)
		}
	}
	for n := 1; n <= 4; n++ { // files of their own, as clones are
		b, err := os.ReadFile(kept(n))
		if err = errors.Join(err, os.Remove(kept(n))); err == nil {
			err = os.WriteFile(kept(n), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(kept(4), 19_999); err != nil {
		t.Fatal(err)
	}
	settled(true, 4) // the file itself is as it was
	if err := os.Remove(paths[1]); err != nil {
		t.Fatal(err)
	}
	settled(false, 0, "rank 1: "+kept(4)+", in which "+paths[1]+" is kept, is damaged or lost: has 19999 bytes, fewer than the 20000 it had",
		"--files ignore", "an older epoch is there: --restart "+s.Dir()+"@3")
	flipAt(t, kept(3), 14_999)
	if err := os.Remove(kept(2)); err != nil {
		t.Fatal(err)
	}
	settled(true, 1, "epoch 4 is lost: rank 1: "+kept(4)+", in which ", "; epoch 3 is lost: rank 1: "+kept(3)+", in which "+paths[1]+
		" is kept, is damaged or lost: has other bytes than it had", "; epoch 2 is lost: rank 1: "+kept(2)+", in which ", "; taken instead: epoch 1")
	wantLost(t, s, 2, 3, 4)
	if _, err := os.Lstat(paths[1]); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there before the restart has begun: %v", err)
	}
	all[0].options.Files = "restore" // nothing kept is needed
	settled(true, 1, "an earlier restart has found that epoch 4 is lost: rank 1: "+kept(4))
}

// TestSettleOthers: an epoch of another job is not taken, and what is no damage ends the restart.
func TestSettleOthers(t *testing.T) {
	for _, c := range []struct {
		err    error
		damage bool
	}{
		{&image.CorruptError{}, true},
		{&image.LostError{Err: fs.ErrNotExist}, true},
		{&image.LostError{Err: fs.ErrPermission}, false},
		{&image.VersionError{}, false},
		{&files.LostError{Err: fs.ErrNotExist}, true},
		{&files.LostError{Err: fs.ErrPermission}, false},
		{&files.LostError{Err: errors.New("has fewer bytes")}, true},
		{&fs.PathError{Err: unix.EIO}, true},
		{&fs.PathError{Err: unix.EMFILE}, false},
		{&fs.PathError{Err: unix.ENOENT}, true},
		{errors.New("this processor lacks features"), false},
		{fmt.Errorf("%w: it is incomplete", store.ErrNone), true},
	} {
		if got := isDamage(fmt.Errorf("opening: %w", c.err)); got != c.damage {
			t.Errorf("%#v: %v", c.err, got)
		}
	}
	all := unopened(t, 2)
	two := func(errs ...error) (out [2]error) {
		together(all, func(r *rank) { out[r.rt.rank] = oneVoice(r.rt, 2, errs[r.rt.rank]) })
		return out
	}
	gone := &fs.PathError{Op: "open", Path: "x", Err: unix.ENOENT}
	for _, err := range two(gone, errors.New("no room")) {
		if _, is := lostOf(err); is || err == nil || err.Error() != "rank 1: no room" {
			t.Errorf("%v", err)
		}
	}
	for _, err := range two(nil, gone) {
		if why, is := lostOf(err); !is || !strings.HasPrefix(why, "rank 1: open x: ") {
			t.Errorf("%v", err)
		}
	}
	for _, err := range two(nil, nil) {
		if err != nil {
			t.Error(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "ckpt")
	j := start(t, newTestHost(t), testOptions(dir))
	checkpoint(t, j)
	j.meta.Program = "/bin/other"
	checkpoint(t, j)
	r, err := OpenRestart(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	if c := r.candidates(launch.Options{Fallback: true}, true); len(c.Epochs) != 1 || c.Epochs[0].Epoch != 2 {
		t.Errorf("%+v", c)
	}
}

func flipAt(t *testing.T, path string, at int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		b[at] ^= 1
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// page is where the file of an image has content.
func page(t *testing.T, path string) int64 {
	t.Helper()
	f, err := image.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, c := range f.Chunks() {
		if c.Source == 0 {
			return c.Offset
		}
	}
	t.Fatal("no content")
	return 0
}

func suspectsAt(t *testing.T, path string) []string {
	t.Helper()
	f, err := image.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return suspects(f)
}

// wantLost wants these epochs, and no others, to be noted as lost.
func wantLost(t *testing.T, s *store.Store, want ...int) {
	t.Helper()
	list, err := s.Epochs()
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for i := range list {
		if list[i].Lost() {
			got = append(got, list[i].Number)
		}
	}
	equal(t, "lost epochs", fmt.Sprint(want), fmt.Sprint(got))
}
