// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/libckpt/libckpt/ckpt/image"
)

// Pages that the ranks of a node have the same are written once (--same-pages once): the image of the node's first rank
// has them, and those of the others, in the same folder, refer to it. The first rank tells the others while it writes
// (image.Elder); the same folder is the same node's local directory, so an image never needs another node's.
//
//	first rank of the node           the others
//	image.Write ─ Options.Tell ────► Input.Elder ─ image.Write
//	            └ or that it failed ► which fails, too: without the first rank's image there is no epoch

// elders is what this rank has to do with the others of its node in one attempt. The zero value: nothing.
type elders struct {
	elder *image.Elder // of the first rank; nil: this is it, or it is alone
	feed  *feed        // to the others; nil: there are none, or this is one of them
}

// node names the node of this rank to the others; "": this rank writes all its pages.
//
// Not in regions mode, where ranks have nothing in the same place, and not in whole mode, where libraries are the
// program's own matter.
func (j *Job) node() string {
	if j.options.Same != "once" || j.net == nil || j.regional != nil || j.embedded != nil {
		return ""
	}
	if j.levels != nil {
		return j.levels.layout.Names[j.levels.node]
	}
	return j.meta.Host
}

// prepareElder has what the first rank of the node tells kept until this rank writes. It comes before that one hears that
// this rank is captured.
func (a *attempt) prepareElder() {
	a.state.Node = a.j.node()
	if a.state.Node != "" {
		a.setElder(image.NewElder())
	}
}

// meetElders finds the first rank of this node. all is what all ranks said; it is the same on all ranks.
func (a *attempt) meetElders(all []captureReport) {
	mine := all[a.j.group.rank()].Node
	if mine == "" {
		return
	}
	var mates []int
	for r := range all {
		if all[r].Node == mine {
			mates = append(mates, r)
		}
	}
	if mates[0] == a.j.group.rank() {
		a.setElder(nil)
		if others := mates[1:]; len(others) > 0 {
			a.same.feed = newFeed(a.j, a.id, others)
			go a.same.feed.run(a.ctx)
		}
	}
}

// setElder is under the mutex that heardPages holds when it looks for the attempt.
func (a *attempt) setElder(e *image.Elder) {
	a.j.tries.mu.Lock()
	defer a.j.tries.mu.Unlock()
	a.same.elder = e
}

// heardPages takes in what the first rank of the node tells of its image.
func (j *Job) heardPages(_ int, payload []byte) {
	if len(payload) < 9 {
		return
	}
	id := tryID(binary.LittleEndian.Uint64(payload))
	j.tries.mu.Lock()
	var elder *image.Elder
	if a := j.tries.open[id]; a != nil {
		elder = a.same.elder
	}
	j.tries.mu.Unlock()
	if elder == nil { // it is over here
		return
	}
	if rest := payload[9:]; payload[8] == pagesLost {
		elder.Lost(errors.New(string(rest)))
	} else {
		_ = elder.Add(rest) // the writer says what is wrong with it
	}
}

// The byte behind the attempt's number.
const (
	pagesTold = 0
	pagesLost = 1 // and why
)

// feed sends what the writer tells to other ranks, without having it wait.
type feed struct {
	j    *Job
	id   tryID
	to   []int
	mu   sync.Mutex
	news chan struct{} // has a token when there is something to send
	todo [][]byte
	over bool
}

func newFeed(j *Job, id tryID, to []int) *feed {
	return &feed{j: j, id: id, to: to, news: make(chan struct{}, 1)}
}

// run sends until all was told, or the attempt ends: then nobody needs the rest.
func (f *feed) run(ctx context.Context) {
	for {
		select {
		case <-f.news:
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
		todo, over := f.todo, f.over
		f.todo = nil
		f.mu.Unlock()
		for _, msg := range todo {
			for _, r := range f.to {
				if f.j.net.Send(ctx, r, kindPages, msg) != nil {
					return // the network is lost, or the attempt is over
				}
			}
		}
		if over {
			return
		}
	}
}

// put queues a message; the last one ends the feed.
func (f *feed) put(kind byte, told []byte, last bool) {
	msg := binary.LittleEndian.AppendUint64(nil, uint64(f.id))
	f.mu.Lock()
	if !f.over {
		f.todo = append(f.todo, append(append(msg, kind), told...))
		f.over = last
	}
	f.mu.Unlock()
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// tell is image.Options.Tell.
func (f *feed) tell(told []byte) { f.put(pagesTold, told, told[0] == image.TellEnd) }

// noPages tells the other ranks of the node that this one has no image.
func (a *attempt) noPages(why error) {
	if f := a.same.feed; f != nil {
		f.put(pagesLost, fmt.Appendf(nil, "rank %d, whose image has pages of this one, has none: %v", a.j.group.rank(), why), true)
	}
}
