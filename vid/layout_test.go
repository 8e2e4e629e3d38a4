// SPDX-License-Identifier: Apache-2.0

package vid

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

const layoutC = `
#include <stdio.h>
#include "ckpt/tables.h"
#include "ckpt/private/news.h"
#define P(what) printf("%llx\n", (unsigned long long)(what))
int main(void)
{
    P(sizeof(ckpt_slot)); P(offsetof(ckpt_slot, real)); P(offsetof(ckpt_slot, generation));
    P(offsetof(ckpt_slot, clock)); P(offsetof(ckpt_slot, a)); P(offsetof(ckpt_slot, b)); P(offsetof(ckpt_slot, extra));
    P(sizeof(ckpt_bookmark)); P(offsetof(ckpt_bookmark, received));
    P(sizeof(ckpt_comm_counters)); P(offsetof(ckpt_comm_counters, clock)); P(sizeof(ckpt_clock)); P(offsetof(ckpt_clock, ret)); P(offsetof(ckpt_clock, name)); P(offsetof(ckpt_comm_counters, peer));
    P(sizeof(ckpt_tables)); P(offsetof(ckpt_tables, version)); P(offsetof(ckpt_tables, bytes));
    P(offsetof(ckpt_tables, pending)); P(offsetof(ckpt_tables, pages)); P(offsetof(ckpt_tables, free));
    P(CKPT_TABLES_MAGIC); P(CKPT_TABLES_VERSION); P(CKPT_PAGE_SLOTS); P(CKPT_PAGES); P(CKPT_KINDS);
    P(CKPT_VID_PREDEFINED); P(CKPT_VID_NONE); P(CKPT_VID(CKPT_KIND_SESSION, 5));
    P(CKPT_KIND_COMM); P(CKPT_KIND_GROUP); P(CKPT_KIND_DATATYPE); P(CKPT_KIND_OP); P(CKPT_KIND_MESSAGE);
    P(CKPT_KIND_ERRHANDLER); P(CKPT_KIND_REQUEST); P(CKPT_KIND_INFO); P(CKPT_KIND_WIN); P(CKPT_KIND_FILE);
    P(CKPT_KIND_KEYVAL); P(CKPT_KIND_SESSION); P(CKPT_KIND_PORT);
    P(sizeof(struct news)); P(offsetof(struct news, vid)); P(offsetof(struct news, identity)); P(offsetof(struct news, calls)); P(offsetof(struct news, real));
    P(offsetof(struct news, descriptor)); P(offsetof(struct news, bytes)); P(offsetof(struct news, peers));
    P(offsetof(struct news, members)); P(offsetof(struct news, npeers)); P(offsetof(struct news, nmembers)); P(offsetof(struct news, room));
    P(sizeof(struct news_ring)); P(offsetof(struct news_ring, taken)); P(offsetof(struct news_ring, of)); P(NEWS_RING);
    P(NEWS_MADE); P(NEWS_GONE); P(NEWS_TAKEN); P(NEWS_FREED); P(NEWS_NAMED);
    return 0;
}
`

// TestLayout compares the tables as Go sees them with what the C compiler makes of tables.h.
func TestLayout(t *testing.T) {
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(src, []byte(layoutC), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-I../include", "-o", bin, src).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	out, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	var s slot
	var b bookmark
	var c counters
	var h header
	var r newsRecord
	var ring Ring
	want := []uintptr{unsafe.Sizeof(s), unsafe.Offsetof(s.real), unsafe.Offsetof(s.generation),
		unsafe.Offsetof(s.clock), unsafe.Offsetof(s.a), unsafe.Offsetof(s.b), unsafe.Offsetof(s.extra),
		unsafe.Sizeof(b), unsafe.Offsetof(b.received),
		unsafe.Sizeof(c), unsafe.Offsetof(c.clock), unsafe.Sizeof(c.clock), unsafe.Offsetof(c.clock.ret), unsafe.Offsetof(c.clock.name), unsafe.Sizeof(c),
		unsafe.Sizeof(h), unsafe.Offsetof(h.version), unsafe.Offsetof(h.bytes),
		unsafe.Offsetof(h.pending), unsafe.Offsetof(h.pages), unsafe.Offsetof(h.free),
		tablesMagic, tablesVersion, pageSlots, pagesPerKind, kinds,
		Predefined, uintptr(None), uintptr(MakeID(Session, 5)),
		uintptr(Comm), uintptr(Group), uintptr(Datatype), uintptr(Op), uintptr(Message),
		uintptr(Errhandler), uintptr(Request), uintptr(Info), uintptr(Win), uintptr(File),
		uintptr(Keyval), uintptr(Session), uintptr(Port),
		unsafe.Sizeof(r), unsafe.Offsetof(r.id), unsafe.Offsetof(r.identity), unsafe.Offsetof(r.calls), unsafe.Offsetof(r.real),
		unsafe.Offsetof(r.descriptor), unsafe.Offsetof(r.bytes), unsafe.Offsetof(r.peers),
		unsafe.Offsetof(r.members), unsafe.Offsetof(r.npeers), unsafe.Offsetof(r.nmembers), unsafe.Offsetof(r.room),
		unsafe.Sizeof(ring), unsafe.Offsetof(ring.taken), unsafe.Offsetof(ring.of), ringRecords,
		newsMade, newsGone, newsTaken, newsFreed, newsNamed}
	var lines []string
	for _, v := range want {
		lines = append(lines, strconv.FormatUint(uint64(v), 16))
	}
	if diff := cmp.Diff(lines, strings.Fields(string(out))); diff != "" {
		t.Errorf("layout (-Go +C):\n%s", diff)
	}
}

// TestHotLinesDoNotCompete: what an exchange of messages reads is in different sets of the first cache.
func TestHotLinesDoNotCompete(t *testing.T) {
	tables, err := Open(0, MinWindow)
	if err != nil {
		t.Fatal(err)
	}
	defer tables.Close()
	h := tables.mem.header()
	hot := map[string]unsafe.Pointer{
		"pending word":     unsafe.Pointer(&h.pending),
		"free requests":    unsafe.Pointer(&h.free[Request]),
		"MPI_COMM_WORLD":   unsafe.Pointer(tables.mem.slot(MakeID(Comm, 1))),
		"a datatype":       unsafe.Pointer(tables.mem.slot(MakeID(Datatype, 1))),
		"an operation":     unsafe.Pointer(tables.mem.slot(MakeID(Op, 1))),
		"first request":    unsafe.Pointer(tables.mem.slot(MakeID(Request, Predefined))),
		"of requests":      unsafe.Pointer(tables.mem.directory(Request)),
		"of messages":      unsafe.Pointer(tables.mem.directory(Message)),
		"a message":        unsafe.Pointer(tables.mem.slot(MakeID(Message, Predefined))),
		"of communicators": unsafe.Pointer(tables.mem.directory(Comm)),
	}
	sets := make(map[uintptr]string)
	for name, at := range hot {
		set := uintptr(at) % stagger / lineBytes
		if other, taken := sets[set]; taken {
			t.Errorf("%s and %s are in set %d", name, other, set)
		}
		sets[set] = name
	}
}
