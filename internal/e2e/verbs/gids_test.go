// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/libckpt/libckpt/internal/e2e"
)

// gid is an entry of a port's table.
type gid struct{ address, kind string }

const (
	v1, v2 = "IB/RoCE v1", "RoCE v2"
	local  = "fe80:0000:0000:0000:0253:4f46:5400:%04x"
	ipv4   = "0000:0000:0000:0000:0000:ffff:0a09:%04x"
)

// ethernet is the environment in which the adapter is one of Ethernet with these gids.
func ethernet(t *testing.T, gids ...gid) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "sys")
	if said, err := exec.Command("cp", "-r", os.Getenv("SYSFS_PATH"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	port := filepath.Join(dir, "class/infiniband/soft0/ports/1")
	files := map[string]string{"link_layer": "Ethernet", "lid": "0"}
	for i, g := range gids {
		files[fmt.Sprint("gids/", i)], files[fmt.Sprint("gid_attrs/types/", i)] = g.address, g.kind
	}
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(port, name), []byte(text+"\n"), 0o644))
	}
	return "SYSFS_PATH=" + dir
}

// of is the table of one node's port, as a kernel makes it: both types of each address, and what is left of it.
func of(node int, which ...int) []gid {
	all := []gid{{fmt.Sprintf(local, node), v1}, {fmt.Sprintf(local, node), v2}, {fmt.Sprintf(ipv4, node), v1}, {fmt.Sprintf(ipv4, node), v2}}
	var some []gid
	for _, i := range which {
		some = append(some, all[i])
	}
	return some
}

// on is where both ranks are.
func on(w *e2e.Whole, a, b string) { w.RankEnv = map[int][]string{0: {a}, 1: {b}} }

// newGids is a job of edges that has been saved where it goes by the gid of index 3, RoCE v2 and IPv4.
func newGids(t *testing.T) (w *e2e.Whole, letGo func()) {
	t.Helper()
	w, letGo = newEdges(t, "late", 2)
	w.Env = []string{"EDGES_GID=3"}
	on(w, ethernet(t, of(1, 0, 1, 2, 3)...), ethernet(t, of(2, 0, 1, 2, 3)...))
	savedAndKilled(t, w)
	return w, letGo
}

// A program that goes by the gid of an index goes on where another stands there: by the one of its type, or of another type
// where there is no other, if its peer has that, too.
func TestGidOfAnotherType(t *testing.T) {
	need(t)
	for name, tables := range map[string][2][]gid{
		"its type":                 {of(3, 3, 2, 1, 0), of(4, 1, 3)},
		"another type":             {of(5, 2), of(6, 0, 1, 2)},
		"another type and address": {of(7, 0), of(8, 0)},
		"InfiniBand":               {},
	} {
		t.Run(name, func(t *testing.T) {
			w, letGo := newGids(t)
			if on(w, "SOFT=0", "SOFT=0"); len(tables[0]) > 0 {
				on(w, ethernet(t, tables[0]...), ethernet(t, tables[1]...))
			}
			must(t, w.Restart("shell"))
			letGo()
			rightEdges(t, w)
		})
	}
}

// Where peers have gids of different types now the restart is refused, with both; it goes on where they have the same.
func TestGidTypesDiffer(t *testing.T) {
	need(t)
	w, letGo := newGids(t)
	on(w, ethernet(t, of(3, 3)...), ethernet(t, of(4, 2)...))
	refused(t, w, "which is connected to rank 1, cannot be made again: its gid on soft0 is of type RoCE v2, IPv4, and that of its peer of type RoCE v1, IPv4")
	on(w, ethernet(t, of(3, 3)...), ethernet(t, of(4, 1)...))
	refused(t, w, "its gid on soft0 is of type RoCE v2, IPv4, and that of its peer of type RoCE v2, IPv6")
	on(w, ethernet(t, of(3, 3)...), "SOFT=0") // the bed's own device
	refused(t, w, "soft0 is on Ethernet, and its peer on InfiniBand")
	on(w, ethernet(t, of(3, 3)...), ethernet(t, of(4, 3)...))
	must(t, w.Restart("shell"))
	letGo()
	rightEdges(t, w)
}

// Who begins on InfiniBand, by lid, goes on over Ethernet, by gid, and back.
func TestLidBecomesGid(t *testing.T) {
	need(t)
	w, letGo := newEdges(t, "late", 2)
	savedAndKilled(t, w)
	l := life{t: t, w: w}
	on(w, ethernet(t, of(1, 0, 1)...), ethernet(t, of(2, 1, 0)...))
	must(t, w.Restart("shell"))
	if !l.begun() || !l.save("kill") {
		t.Fatalf("it ended too early: %s", w.Said())
	}
	_, err := w.Wait(jobLimit)
	must(t, err)
	w.RankEnv = nil
	must(t, w.Restart("shell"))
	letGo()
	rightEdges(t, w)
}

// Datagrams to and from a peer whose way was a gid, and is one of another type, or a lid.
func TestDatagramsByGids(t *testing.T) {
	need(t)
	w, letGo := newEdges(t, "reply", 2)
	on(w, ethernet(t, of(1, 0, 1)...), ethernet(t, of(2, 0, 1)...))
	savedAndKilled(t, w)
	on(w, ethernet(t, of(3, 1)...), ethernet(t, of(4, 1)...))
	must(t, w.Restart("shell"))
	letGo()
	rightEdges(t, w)
}
