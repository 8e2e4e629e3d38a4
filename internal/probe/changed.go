// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"

	"github.com/libckpt/libckpt/internal/written"
)

// changedPages says how epochs that have what changed find it, which works on every kernel.
func changedPages() (Outcome, string) {
	t, err := written.Open()
	if err != nil {
		return Yes, fmt.Sprintf("by digests of all pages: %v", err)
	}
	if err := t.Close(); err != nil {
		return No, err.Error()
	}
	return Yes, "the kernel notes which pages are written (userfaultfd, PAGEMAP_SCAN); digests for the rest"
}
