// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"strings"
	"testing"
)

func TestMixed(t *testing.T) {
	on, over, none := Way{Used: true, Host: "a"}, Way{Used: true, TCP: true, Host: "b"}, Way{}
	for _, all := range [][]Way{{on, on, none}, {over, over}, {none}, nil} {
		if err := Mixed(all); err != nil {
			t.Errorf("%v: %v", all, err)
		}
	}
	err := Mixed([]Way{none, over, on})
	if err == nil || !strings.Contains(err.Error(), "rank 2 (host a) is on an InfiniBand adapter, and rank 1 (host b) goes over TCP") {
		t.Errorf("%v", err)
	}
}
