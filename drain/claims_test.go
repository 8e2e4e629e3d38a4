// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClaims(t *testing.T) {
	claims := []Claim{
		{Rank: 1, ID: 1 << 40, Comm: 1 << 63, Later: 3, Source: 2, Tag: 1 << 20, State: 1},
		{Rank: 1, ID: 2, Source: -1, Tag: -1},
		{Rank: 4, ID: 3},
	}
	notices := ClaimNotices(append([]Claim{{Rank: -1, ID: 9}}, claims[2], claims[0], claims[1]))
	got, err := ReadClaims(notices)
	if diff := cmp.Diff(claims, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	notices[4] = notices[4][1:]
	if _, err := ReadClaims(notices); err == nil {
		t.Error("a claim that is cut off is accepted")
	}
}
