// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/posixshm"
	"github.com/libckpt/libckpt/ckpt/snapshot"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/drain"
)

// CheckImage says why no rank can be restarted from an image. Package image checks that the bytes are those that
// were written; this checks what they mean. m is the manifest that lists the image as that of rank; nil for an
// image by itself. The content of pages is not read.
func CheckImage(f *image.File, m *store.Manifest, rank int) error {
	meta, err := readMeta(f)
	if err != nil {
		return err
	}
	if err := meta.check(m, rank); err != nil {
		return fmt.Errorf("%s: section \"meta\": %w", f.Name(), err)
	}
	if meta.Mode == modeRegions {
		return checkTasks(f)
	}
	if err := snapshot.Check(f); err != nil {
		return err
	}
	threads, err := f.Section(sectionThreads)
	if err != nil {
		return err
	}
	if len(threads) == 0 {
		return fmt.Errorf("%s: section %q is empty", f.Name(), sectionThreads)
	}
	if _, err := readFiles(f); err != nil {
		return err
	}
	if _, err := readSockets(f); err != nil && !errors.Is(err, image.ErrNoSection) {
		return err
	}
	if _, err := readSysV(f, meta.Rank, meta.Ranks); err != nil && !errors.Is(err, image.ErrNoSection) {
		return err
	}
	if _, err := posixshm.Restore(f, meta.Rank); err != nil {
		return err
	}
	switch {
	case meta.MPI.Name == "none":
		return nil
	case meta.MPI.ABI == abiWhole:
		if _, err := f.Section(sectionObjects); err != nil {
			return err
		}
		_, err := readSegments(f, meta.Rank, meta.Ranks)
		return err
	}
	for _, name := range []string{sectionObjects, sectionRuntime} {
		if _, err := f.Section(name); err != nil {
			return err
		}
	}
	_, err = readMessages(f)
	return err
}

func readMeta(f *image.File) (Meta, error) {
	b, err := f.Meta()
	if err != nil {
		return Meta{}, err
	}
	m, err := decodeMeta(b)
	if err != nil {
		return Meta{}, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return m, nil
}

func decodeMeta(b []byte) (Meta, error) {
	var m Meta
	if err := json.Unmarshal(b, &m); err != nil {
		return Meta{}, fmt.Errorf("section \"meta\": %w", err)
	}
	if m.Version != metaVersion {
		return Meta{}, fmt.Errorf("was written by libckpt %s (sections of version %d); this is libckpt %s (version %d)",
			m.Libckpt, m.Version, Version, metaVersion)
	}
	return m, nil
}

// check says what in m no rank can have written. manifest, if there is one, must list this image.
func (m *Meta) check(manifest *store.Manifest, rank int) error {
	switch {
	case m.Ranks < 1 || m.Rank < 0 || m.Rank >= m.Ranks:
		return fmt.Errorf("is of rank %d of %d", m.Rank, m.Ranks)
	case m.Epoch < 1:
		return fmt.Errorf("is of epoch %d", m.Epoch)
	case m.MPI.Name == "":
		return fmt.Errorf("does not say which MPI the job had")
	case m.Program == "":
		return fmt.Errorf("does not name the program")
	case !filepath.IsAbs(m.Dir):
		return fmt.Errorf("the working directory %q is not an absolute path", m.Dir)
	case m.Umask < 0 || m.Umask > 0o777:
		return fmt.Errorf("the umask is %o", m.Umask)
	case manifest == nil:
		return nil
	case m.Rank != rank || m.Ranks != manifest.ProcessCount() || m.Epoch != manifest.Epoch:
		return fmt.Errorf("is of rank %d of %d in epoch %d; by the manifest it is of rank %d of %d in epoch %d",
			m.Rank, m.Ranks, m.Epoch, rank, manifest.ProcessCount(), manifest.Epoch)
	case m.Mode != manifest.Mode:
		return fmt.Errorf("has the mode %q, by the manifest %q", m.Mode, manifest.Mode)
	case m.MPI.Name != manifest.MPI.Name:
		return fmt.Errorf("is of a job with the MPI %q, by the manifest %q", m.MPI.Name, manifest.MPI.Name)
	}
	return nil
}

func readFiles(f *image.File) (files.Table, error) {
	b, err := f.Section(sectionFiles)
	if err != nil {
		return files.Table{}, err
	}
	table, err := files.Decode(b)
	if err != nil {
		return files.Table{}, fmt.Errorf("%s: section %q: %w", f.Name(), sectionFiles, err)
	}
	return table, nil
}

func readMessages(f *image.File) ([]byte, error) {
	b, err := f.Section(sectionMessages)
	if err != nil {
		return nil, err
	}
	if _, err := drain.Decode(b); err != nil {
		return nil, fmt.Errorf("%s: section %q: %w", f.Name(), sectionMessages, err)
	}
	return b, nil
}
