// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"strings"
	"time"
)

// Kind is what an event is.
type Kind string

// Kinds. In brackets are the further fields of an event of the kind.
const (
	Start    Kind = "start"    // [Run, Epoch] a job is started, from an epoch if it is not 0
	Opened   Kind = "opened"   // [Run, Token] it owns the directory and can be asked
	End      Kind = "end"      // [Run, Code, Text] its launcher has ended; Code is not 0 after a signal
	Stop     Kind = "stop"     // [Run] the program is asked to come to its end
	Result   Kind = "result"   // [Run, Fine, Text] what it came to is right, or Text says what is not
	Request  Kind = "request"  // [Run, Request, Then]
	Answer   Kind = "answer"   // [Run, Request, Epoch, Text] Epoch 0: there is none
	Silent   Kind = "silent"   // [Run, Request, Text] there was no answer
	Appeared Kind = "appeared" // [Epoch] its manifest is there
	Gone     Kind = "gone"     // [Epoch]
	Verified Kind = "verified" // [Epoch, Fine, Text] every byte was looked at
	Step     Kind = "step"     // [Rank, Step, Text] the program did one; Text is what it came to
	Stands   Kind = "stands"   // [Run, Text] the program makes no more steps, without end
	Log      Kind = "log"      // [Run, Text] a line of the job's log
	Hurt     Kind = "hurt"     // [Text, Deadly, Rank] a fault begins; -1: of no rank in particular
	Healed   Kind = "healed"   // [Text] it has ended
	Unnamed  Kind = "unnamed"  // [Rank] a rank was away for long, and nobody says so
)

// Event is one observation.
type Event struct {
	At      time.Time
	Kind    Kind
	Run     int // jobs are numbered from 1
	Request int // as are requests
	Epoch   int
	Token   uint64
	Rank    int
	Step    int
	Then    string
	Text    string
	Code    int
	Fine    bool
	Deadly  bool // the job may end because of it
}

func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", e.At.Format("15:04:05.000"), e.Kind)
	for _, f := range []struct {
		name  string
		value int
	}{{"run", e.Run}, {"request", e.Request}, {"epoch", e.Epoch}, {"token", int(e.Token)}, {"code", e.Code}} {
		if f.value != 0 {
			fmt.Fprintf(&b, " %s %d", f.name, f.value)
		}
	}
	switch e.Kind {
	case Step:
		fmt.Fprintf(&b, " %d of rank %d", e.Step, e.Rank)
	case Hurt, Unnamed:
		fmt.Fprintf(&b, " rank %d", e.Rank)
	case Result, Verified:
		fmt.Fprintf(&b, " fine %v", e.Fine)
	}
	if e.Then != "" {
		fmt.Fprintf(&b, " then %s", e.Then)
	}
	if e.Deadly {
		b.WriteString(" (deadly)")
	}
	if e.Text != "" {
		fmt.Fprintf(&b, ": %s", strings.ReplaceAll(strings.TrimSpace(e.Text), "\n", " | "))
	}
	return b.String()
}
