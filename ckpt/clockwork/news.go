// SPDX-License-Identifier: Apache-2.0

package clockwork

import (
	"github.com/libckpt/libckpt/collclock"
	"github.com/libckpt/libckpt/vid"
)

// Communicators that the runtime has not told of yet, but put into its ring (vid/news.go). They are taken from there
// before anybody asks for a communicator, and behind the fence of a snapshot: from then on until the pending word is
// taken back the runtime tells of each at once. What is freed when it is taken from the ring was made and freed before
// the snapshot, so its clock comes here as one that all of this rank's calls have returned from.

// Hear takes what is new of communicators. A nil Clock has its tables told by who owns them.
func (w *Clock) Hear() {
	if w == nil || !w.tables.HasNews() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hear()
}

// hear needs mu. It may be called within a step.
func (w *Clock) hear() {
	if !w.tables.HasNews() {
		return
	}
	t := w.tasks[0] // a runtime with several tasks in a process tells of each communicator itself
	w.tables.TakeNews(func(n vid.News) {
		switch {
		case !n.Made:
			w.freedLocked(n.ID, n.Calls)
			return
		case len(n.Members) < 2:
			return // its calls concern nobody else
		}
		at := clockKey{t, clockOf(n.Identity)}
		if !n.Gone {
			w.ids[n.ID], w.comms[at], t.comms[n.ID] = at, n.ID, at.id
		}
		w.feed(t, collclock.Created{Clock: at.id, Group: collclock.Members(n.Members)})
		if n.Gone {
			w.feed(t, collclock.Freed{Clock: at.id, K: n.Calls})
		}
	})
}

// freedLocked says that a communicator is gone, on which so many calls were made.
func (w *Clock) freedLocked(comm vid.ID, calls uint64) {
	at, ok := w.ids[comm]
	if !ok {
		return
	}
	delete(w.ids, comm)
	delete(w.comms, at)
	delete(at.of.comms, comm)
	w.forget(at)
	w.feed(at.of, collclock.Freed{Clock: at.id, K: calls})
}
