// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the table of options into docs/manual.md")

const manual = "../../docs/manual.md"

// TestManual: the manual's table of options is what the options' own table says.
func TestManual(t *testing.T) {
	const begin, end = "from ckpt/launch/options.go -->\n", "<!-- end of options -->"
	b, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	table, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table of options", manual)
	}
	if table == Table() {
		return
	}
	if !*rewrite {
		t.Fatalf("%s is stale: run make generate", manual)
	}
	if err := os.WriteFile(manual, []byte(before+begin+Table()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestManOptions: each option is there, with its variable, and nothing that man would take for a command of its own.
func TestManOptions(t *testing.T) {
	page := ManOptions()
	for _, s := range settings {
		if !strings.Contains(page, "\n.BI \\-\\-"+strings.ReplaceAll(s.flag, "-", `\-`)+" ") || !strings.Contains(page, " ["+s.env+"]\n") {
			t.Errorf("--%s [%s] is missing", s.flag, s.env)
		}
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !strings.HasPrefix(line, ".TP") && !strings.HasPrefix(line, ".BI ") {
			t.Errorf("a line that is a command: %q", line)
		}
	}
}

// TestHelpRows: lines are no longer than they should be, however long a word of an option is.
func TestHelpRows(t *testing.T) {
	for line := range strings.Lines(Help()) {
		if len(line) > helpWidth+1 {
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
}
