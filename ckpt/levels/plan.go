// SPDX-License-Identifier: Apache-2.0

package levels

import (
	"fmt"
	"slices"
	"strings"
)

// Want is a file that a node needs.
type Want struct {
	Epoch int    `json:"e"`
	File  string `json:"f"`
}

// Site is a node of the job that is being restarted: what it has and what it needs.
type Site struct {
	Peer
	Held    map[Want]int64 // bytes of each sound file, as far as is known
	Missing []Want
}

// Action is what one site does in a round: it fetches files from another one or from an object store, or decodes those
// of a group.
type Action struct {
	Site  int
	Epoch int
	Files []File // to be fetched ...
	From  int    // ... from this site ...

	Objects bool // ... or from the object store

	Decode bool
	Group  int
	Lost   []int // nodes of the record whose files are decoded
	Shards []Shard
}

// Shard is where the bytes of one shard are; nil: it is not used.
type Shard []Piece

// Piece is files that follow each other in a shard, and that one site has.
type Piece struct {
	Site  int
	Files []File
}

// Loss is a file that cannot be had.
type Loss struct {
	Want
	Node string // where it was
	Why  string
}

// LostError says that an epoch cannot be had any more.
type LostError struct{ Losses []Loss }

func (e *LostError) Error() string {
	type part struct{ files, nodes []string }
	byWhy := map[string]*part{}
	var order []string
	for _, l := range e.Losses {
		p := byWhy[l.Why]
		if p == nil {
			p = new(part)
			byWhy[l.Why] = p
			order = append(order, l.Why)
		}
		if !slices.Contains(p.files, l.File) {
			p.files = append(p.files, l.File)
		}
		if l.Node != "" && !slices.Contains(p.nodes, l.Node) {
			p.nodes = append(p.nodes, l.Node)
		}
	}
	var parts []string
	for _, why := range order {
		p := byWhy[why]
		text := some(p.files)
		if len(p.nodes) > 0 {
			text += " (of node " + some(p.nodes) + ")"
		}
		parts = append(parts, strings.TrimSpace(text+" "+why))
	}
	return strings.Join(parts, "; ")
}

// some is the beginning of a list, for a sentence.
func some(list []string) string {
	const most = 4
	text := strings.Join(list[:min(len(list), most)], ", ")
	if n := len(list) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// Plan says what has to be done next so that each site gets what it misses; the result is the same on all that are
// given the same. records has all epochs; nil: all its files are in the shared directory. Files that several
// sites miss are decoded by one of them, and fetched by the others in the next round. What no node has and no parity
// gives comes from the object store, where stored says that it is there.
func Plan(sites []Site, records map[int]*Record, stored func(Want) (File, bool)) (actions []Action, losses []Loss) {
	type pair struct{ site, from, epoch int }
	type coded struct{ epoch, group int }
	lost := func(s int, w Want, node, why string) {
		f, is := stored(w)
		if !is {
			losses = append(losses, Loss{w, node, why})
			return
		}
		for i := range actions {
			if a := &actions[i]; a.Objects && a.Site == s && a.Epoch == w.Epoch {
				a.Files = append(a.Files, f)
				return
			}
		}
		actions = append(actions, Action{Site: s, Epoch: w.Epoch, Files: []File{f}, Objects: true})
	}
	fetches := map[pair]int{} // index into actions
	decodes := map[coded]bool{}
	given := make([]int, len(sites)) // files that a site gives
	for s := range sites {
		for _, w := range sites[s].Missing {
			file, node := find(records[w.Epoch], w.File)
			if node < 0 {
				lost(s, w, "", notShared+", and no node had it")
				continue
			}
			if from := holder(sites, w.Epoch, file, s, given); from >= 0 {
				given[from]++
				at, begun := fetches[pair{s, from, w.Epoch}]
				if !begun {
					at = len(actions)
					fetches[pair{s, from, w.Epoch}] = at
					actions = append(actions, Action{Site: s, Epoch: w.Epoch, From: from})
				}
				actions[at].Files = append(actions[at].Files, file)
				continue
			}
			record := records[w.Epoch]
			group := record.Nodes[node].Group
			if decodes[coded{w.Epoch, group}] {
				continue
			}
			a, why := decodeAt(sites, record, w.Epoch, group)
			if why != "" {
				if record.Has(Shared) {
					why = notShared + " any more (level 4), and " + why
				}
				lost(s, w, record.Nodes[node].Name, why)
				continue
			}
			decodes[coded{w.Epoch, group}] = true
			a.Site = s
			actions = append(actions, a)
		}
	}
	return actions, losses
}

// notShared is said of files that were at level Shared; notStored, where that is an object store.
const (
	notShared = "not in the shared directory"
	notStored = "not to be had from the object store"
)

// find looks a file up in a record.
func find(r *Record, name string) (File, int) {
	if r == nil {
		return File{}, -1
	}
	for n := range r.Nodes {
		for _, f := range r.Nodes[n].Files {
			if f.Name == name {
				return f, n
			}
		}
	}
	return File{}, -1
}

// holder is a site that has the file, the one that gives least; -1: none.
func holder(sites []Site, epoch int, f File, but int, given []int) int {
	best := -1
	for s := range sites {
		if s != but && sites[s].Held[Want{epoch, f.Name}] == f.Bytes && (best < 0 || given[s] < given[best]) {
			best = s
		}
	}
	return best
}

// decodeAt finds shards from which all lost files of a group can be computed.
func decodeAt(sites []Site, r *Record, epoch, group int) (a Action, why string) {
	members := r.Members(group)
	k := len(members)
	a = Action{Epoch: epoch, Decode: true, Group: group, Shards: make([]Shard, 2*k)}
	given := make([]int, len(sites))
	have := 0
	for i, n := range members {
		if a.Shards[i] = data(sites, epoch, r.Nodes[n].Files, given); a.Shards[i] == nil {
			a.Lost = append(a.Lost, n)
			continue
		}
		have++
	}
	switch {
	case len(members) < 2 || !r.Has(Partner) && !r.Has(Coded):
		return a, "on no node of the job, and there are no copies (level 1)"
	case !r.Has(Coded):
		return a, "on no node of the job, and neither is a copy (level 2)"
	}
	for i, n := range members {
		p := r.Nodes[n].Parity
		if have == k {
			break
		}
		if p == nil {
			continue
		}
		if s := holder(sites, epoch, p.File, -1, given); s >= 0 {
			a.Shards[k+i] = Shard{{s, []File{p.File}}}
			have++
		}
	}
	if have < k {
		return a, fmt.Sprintf("on no node of the job, and %d of the %d shards that are needed to compute what is missing are left (level 3)", have, k)
	}
	return a, ""
}

// data is where the files of a node are, all of them; nil: some are nowhere.
func data(sites []Site, epoch int, files []File, given []int) Shard {
	var shard Shard
	for _, f := range files {
		s := holder(sites, epoch, f, -1, given)
		if last := len(shard) - 1; last >= 0 && sites[shard[last].Site].Held[Want{epoch, f.Name}] == f.Bytes {
			s = shard[last].Site // one answer has both
		}
		if s < 0 {
			return nil
		}
		if last := len(shard) - 1; last >= 0 && shard[last].Site == s {
			shard[last].Files = append(shard[last].Files, f)
			continue
		}
		shard = append(shard, Piece{s, []File{f}})
	}
	return shard
}

// parities are the names of those that an action uses.
func (a *Action) parities() (list []Piece) {
	for _, s := range a.Shards[len(a.Shards)/2:] {
		list = append(list, s...)
	}
	return list
}

// String says in words what is done.
func (a *Action) describe(sites []Site, records map[int]*Record) string {
	if a.Objects {
		return fmt.Sprintf("%s brought from the object store to node %s", names(a.Files), sites[a.Site].Name)
	}
	if !a.Decode {
		return fmt.Sprintf("%s%s copied from node %s to node %s", names(a.Files), a.of(records), sites[a.From].Name, sites[a.Site].Name)
	}
	var files []File
	var lost []string
	for _, n := range a.Lost {
		files = append(files, records[a.Epoch].Nodes[n].Files...)
		lost = append(lost, records[a.Epoch].Nodes[n].Name)
	}
	return fmt.Sprintf("%s%s (of node %s) computed from parities on node %s", names(files), a.of(records), some(lost), sites[a.Site].Name)
}

// of names the epoch, where there are several.
func (a *Action) of(records map[int]*Record) string {
	if len(records) < 2 {
		return ""
	}
	return fmt.Sprintf(" of epoch %d", a.Epoch)
}

func names(files []File) string {
	var list []string
	for _, f := range files {
		list = append(list, f.Name)
	}
	slices.Sort(list)
	return some(list)
}
