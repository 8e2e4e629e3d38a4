// SPDX-License-Identifier: Apache-2.0

package clockwork

import (
	"encoding/json"
	"testing"

	"go.uber.org/zap"
)

// FuzzMeet takes a message as what a rank says of a meeting: whatever it says, this one goes on.
func FuzzMeet(f *testing.F) {
	good, err := json.Marshal(word{Told: true, Comm: 2, Tag: 3, N: 4})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("{}"))
	f.Add([]byte(`{"members":[-1,99],"clock":"AAAA"}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		w := &Clock{log: zap.NewNop(), meet: newMeetings()}
		w.heardMeet(1, payload)
		var said word
		if want := json.Unmarshal(payload, &said) == nil; want != (len(w.meet.words) == 1) {
			t.Errorf("%q is kept: %v", payload, !want)
		}
	})
}
