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
		uintptr(Keyval), uintptr(Session), uintptr(Port)}
	var lines []string
	for _, v := range want {
		lines = append(lines, strconv.FormatUint(uint64(v), 16))
	}
	if diff := cmp.Diff(lines, strings.Fields(string(out))); diff != "" {
		t.Errorf("layout (-Go +C):\n%s", diff)
	}
}
