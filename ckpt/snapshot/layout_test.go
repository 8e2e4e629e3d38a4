// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLayout asks a C compiler what capi/host/arena.h says of the addresses that this package knows too.
func TestLayout(t *testing.T) {
	names := []string{"ARENA", "ARENA_END", "LOW_END", "CKPT_ARENA_BASE", "CKPT_ARENA_END", "ARENA_TABLES", "ARENA_STACK", "ARENA_STACK_END", "ARENA_BRK", "ARENA_BRK_END"}
	var src strings.Builder
	src.WriteString("#include \"arena.h\"\n#include <stdio.h>\nint main(void) {\n")
	for _, n := range names {
		src.WriteString("    printf(\"" + n + " %llu\\n\", (unsigned long long)(" + n + "));\n")
	}
	src.WriteString("    return 0;\n}\n")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "layout")
	build := exec.Command("gcc", "-std=gnu11", "-I"+root+"/include", "-I"+root+"/capi/host", "-o", program, "-xc", "-")
	build.Stdin = strings.NewReader(src.String())
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	c := map[string]uint64{}
	for line := range strings.Lines(string(out)) {
		name, v, _ := strings.Cut(strings.TrimSpace(line), " ")
		if c[name], err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	want := map[string]uint64{
		"ARENA": ArenaStart, "ARENA_END": ArenaEnd, "LOW_END": LowEnd,
		"CKPT_ARENA_BASE": GatePage, "CKPT_ARENA_END": ArenaEnd,
		"ARENA_TABLES": Tables,
		// The tables end where the next thing in the arena begins.
		"ARENA_STACK": Tables + TablesBytes, "ARENA_STACK_END": stackEnd,
		"ARENA_BRK": heapStart, "ARENA_BRK_END": heapEnd,
	}
	if d := cmp.Diff(want, c); d != "" {
		t.Errorf("(-Go +C):\n%s", d)
	}
	if stackStart != Tables+TablesBytes {
		t.Errorf("the stack begins at 0x%x", uint64(stackStart))
	}
	if GatePageEnd != GatePage+uint64(os.Getpagesize()) {
		t.Errorf("the gate page ends at 0x%x", uint64(GatePageEnd))
	}
}
