// SPDX-License-Identifier: Apache-2.0

package house

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// document finds a file NAME.md that a comment or a document cites, with its path as far as it is given.
var document = regexp.MustCompile(`[A-Za-z0-9_./-]*[A-Za-z0-9_]\.md\b`)

// noCitation are names that stand for what is made elsewhere, not for a document.
var noCitation = map[string]string{
	"bench/report.go": "name.md",                      // what a report is called
	"bench/mpi4py.sh": "here/bench/results/mpi4py.md", // of a variable
}

// TestCitations: every document that a source or another document names is in the repository, so that no
// comment sends its reader to what he cannot have.
func TestCitations(t *testing.T) {
	found := 0
	for _, f := range files(t) {
		if f.data() || strings.HasPrefix(f.name, "bench/results/") || f.name == "internal/house/docs_test.go" {
			continue
		}
		for _, cited := range document.FindAllString(string(f.text), -1) {
			if strings.Contains(cited, "//") || cited == noCitation[f.name] {
				continue // an address, or no document
			}
			found++
			name := strings.TrimLeft(cited, "/") // after a variable, as in $here/docs/x.md
			if !slices.ContainsFunc([]string{"", path.Dir(f.name), "docs", "bench/results"}, func(dir string) bool {
				info, err := os.Stat(filepath.Join(root, dir, name))
				return err == nil && info.Mode().IsRegular()
			}) {
				t.Errorf("%s: cites %s, which is not in the repository", f.name, cited)
			}
		}
	}
	if found < 40 {
		t.Errorf("found only %d citations: the search is broken", found)
	}
}

// pitfall finds a pitfall that is cited by its number.
var pitfall = regexp.MustCompile(`split-process\.md((?:,? P\d+)+)`)

// TestPitfalls: each that a comment cites is explained, and none is cited without its document.
func TestPitfalls(t *testing.T) {
	page := read(t, "docs", "split-process.md")
	cited := 0
	for _, f := range files(t) {
		if f.data() {
			continue
		}
		for _, m := range pitfall.FindAllStringSubmatch(string(f.text), -1) {
			for _, p := range regexp.MustCompile(`P\d+`).FindAllString(m[1], -1) {
				cited++
				if !strings.Contains(page, "\n### "+p+":") {
					t.Errorf("%s: cites %s, which docs/split-process.md does not explain", f.name, p)
				}
			}
		}
		if ext := path.Ext(f.name); ext == ".c" || ext == ".h" || ext == ".S" {
			for _, m := range regexp.MustCompile(`\(P\d+[,)]`).FindAllString(string(f.text), -1) {
				t.Errorf("%s: %s is said without its document", f.name, m)
			}
		}
	}
	if cited < 15 {
		t.Errorf("found only %d pitfalls that are cited: the search is broken", cited)
	}
}

// anchor is the name by which a heading can be linked to.
func anchor(heading string) string {
	heading = strings.ToLower(strings.TrimSpace(heading))
	return strings.ReplaceAll(regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(heading, ""), " ", "-")
}

// headings are the anchors of a document.
func headings(text string) []string {
	var all []string
	for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		all = append(all, anchor(h[1]))
	}
	return all
}

// TestLinks: what a document links to in the repository is there, with the heading.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)|(?m)^\[[^\]]+\]: (\S+)$`)
	for _, f := range files(t) {
		if path.Ext(f.name) != ".md" || f.data() {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(string(f.text), -1) {
			to := m[1] + m[2]
			if strings.Contains(to, "://") {
				continue
			}
			name, part, _ := strings.Cut(to, "#")
			target := path.Join(path.Dir(f.name), name)
			if name == "" {
				target = f.name
			}
			text, err := os.ReadFile(filepath.Join(root, target))
			if part == "" && err != nil {
				_, err = os.Stat(filepath.Join(root, target)) // a folder
			}
			if err != nil {
				t.Errorf("%s: links to %s: %v", f.name, to, err)
			} else if part != "" && !slices.Contains(headings(string(text)), part) {
				t.Errorf("%s: links to %s, which has no such heading", f.name, to)
			}
		}
	}
}

// maxRow is the length of a row in the README's tables of limits.
const maxRow = 120

// TestLimits: README's tables have one short fact a row, each linked to its rule in docs/limits.md; each rule
// there is linked to, and says which tests show it, which exist.
func TestLimits(t *testing.T) {
	readme, limits := read(t, "README.md"), read(t, "docs", "limits.md")
	_, tables, _ := strings.Cut(readme, "\n## Limits\n")
	tables, _, _ = strings.Cut(tables, "\n## ")
	target := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\[([^\]]+)\]: docs/limits\.md#(\S+)$`).FindAllStringSubmatch(tables, -1) {
		target[m[1]] = m[2]
	}
	reference := regexp.MustCompile(`\[[^\]]+\]\[([^\]]+)\]|\[([^\]]+)\]`)
	linked := map[string]bool{}
	rows := 0
	for row := range strings.Lines(tables) {
		row = strings.TrimSuffix(row, "\n")
		if !strings.HasPrefix(row, "| [") {
			continue
		}
		rows++
		if len(row) > maxRow {
			t.Errorf("README.md: a limit of %d characters, at most %d: %s", len(row), maxRow, row)
		}
		what, _, _ := strings.Cut(row[2:], " | ")
		for _, m := range reference.FindAllStringSubmatch(what, -1) {
			to, ok := target[m[1]+m[2]]
			if !ok {
				t.Errorf("README.md: %s: no link to docs/limits.md is defined for it", row)
			}
			linked[to] = true
		}
	}
	if rows < 40 {
		t.Errorf("found only %d rows of limits in README.md: the search is broken", rows)
	}

	defined := map[string]bool{}
	for _, f := range files(t) {
		if strings.HasSuffix(f.name, "_test.go") {
			for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(string(f.text), -1) {
				defined[path.Dir(f.name)+"."+m[1]] = true
			}
		}
	}
	for _, section := range strings.Split(limits, "\n### ")[1:] {
		heading, rule, _ := strings.Cut(section, "\n")
		if !linked[anchor(heading)] {
			t.Errorf("docs/limits.md: no row of README.md links to %q", heading)
		}
		_, shown, ok := strings.Cut(rule, "\nShown by: ")
		if !ok {
			t.Errorf("docs/limits.md: %q does not say what shows it", heading)
			continue
		}
		shown, _, _ = strings.Cut(shown, "\n\n")
		// Tests come before their folder: `TestA` and `TestB` in `folder`.
		var names []string
		folder := ""
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz)\\w+)`|in\\s`([a-z0-9/]+)`|(there)").FindAllStringSubmatch(shown, -1) {
			if m[1] != "" {
				names = append(names, m[1])
				continue
			}
			if m[2] != "" {
				folder = m[2] // else "there": the same again
			}
			for _, name := range names {
				if !defined[folder+"."+name] {
					t.Errorf("docs/limits.md: %q names %s in %s, which does not exist", heading, name, folder)
				}
			}
			names = nil
		}
		if len(names) > 0 {
			t.Errorf("docs/limits.md: %q does not say in which folder %s is", heading, strings.Join(names, ", "))
		}
		if !strings.Contains(shown, "Test") && !strings.Contains(shown, "no test") {
			t.Errorf("docs/limits.md: %q names no test, and does not say so", heading)
		}
	}
}

// TestPaths: files and folders of the repository that a document names are there.
func TestPaths(t *testing.T) {
	quoted := regexp.MustCompile("`((?:bench|capi|ckpt|cmd|collclock|docs|drain|examples|include|internal|rails|scripts|vid)/[A-Za-z0-9_./-]+)`")
	found := 0
	for _, f := range files(t) {
		if path.Ext(f.name) != ".md" || f.data() || f.generated() || f.name == "CHANGELOG.md" {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(string(f.text), -1) {
			found++
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s: names %s, which is not in the repository", f.name, m[1])
			}
		}
	}
	if found < 100 {
		t.Errorf("found only %d paths in documents: the search is broken", found)
	}
}

// TestMessages: what troubleshooting.md explains is said by some source.
func TestMessages(t *testing.T) {
	var sources strings.Builder
	joined := regexp.MustCompile("\"[ \t]*(?:\\+[ \t]*)?\n[ \t]*\"|\" \\+[ \t]*\n[ \t]*\"")
	for _, f := range files(t) {
		if ext := path.Ext(f.name); (ext == ".c" || ext == ".h" || ext == ".go") && !strings.Contains(f.name, "test") {
			sources.WriteString(joined.ReplaceAllString(string(f.text), ""))
		}
	}
	said := sources.String()
	messages := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(read(t, "docs", "troubleshooting.md"), -1)
	if len(messages) < 50 {
		t.Fatalf("found only %d messages in docs/troubleshooting.md: the search is broken", len(messages))
	}
	for _, m := range messages {
		for _, part := range strings.Split(m[1], "...") {
			if part = strings.TrimLeft(strings.TrimSpace(part), "; "); part != "" && !strings.Contains(said, part) {
				t.Errorf("docs/troubleshooting.md: no source says %q of %q", part, m[1])
			}
		}
	}
}
