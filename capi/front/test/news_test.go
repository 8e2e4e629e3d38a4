// SPDX-License-Identifier: Apache-2.0

package test

import (
	"path/filepath"
	"testing"
)

// TestNews: communicators that libckpt has not heard of when all ranks call MPIX_Checkpoint are in the image, with the
// message that is under way on one of them.
func TestNews(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 16 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for abi, other := range map[string]string{"mpich": "openmpi", "openmpi": "mpich"} {
		program := compile(t, abi, "news.c", warnings...)
		t.Run(abi+" program", func(t *testing.T) {
			dir := t.TempDir()
			expect(t, launchTwo(t, abi, ckptrun, "--dir", dir, program, "save"), "news: ok")
			expect(t, launchTwo(t, abi, ckptrun, "--restart", dir), "news: ok, restarted")
			expect(t, launchTwo(t, other, ckptrun, "--restart", dir), "news: ok, restarted")
		})
	}
}
