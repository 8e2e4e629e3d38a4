// SPDX-License-Identifier: Apache-2.0

package house

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// optionInSource finds a row of the table of ckptrun's options: flag and environment variable.
var optionInSource = regexp.MustCompile(`(?m)^\t\{"([a-z-]+)", "(CKPT_[A-Z_]+)",`)

// TestEveryOptionIsExplained compares ckptrun's options with the manual and with the man page that is built.
func TestEveryOptionIsExplained(t *testing.T) {
	options := optionInSource.FindAllStringSubmatch(read(t, "ckpt", "launch", "options.go"), -1)
	if len(options) < 10 {
		t.Fatalf("found only %d options in ckpt/launch/options.go: the search is broken", len(options))
	}
	manual := read(t, "docs", "manual.md")
	for _, o := range options {
		if !strings.Contains(manual, "| `--"+o[1]+" ") || !strings.Contains(manual, "`"+o[2]+"`") {
			t.Errorf("docs/manual.md does not explain --%s, %s", o[1], o[2])
		}
	}
	page, err := os.ReadFile(filepath.Join(buildDir(t), "share", "man", "man1", "ckptrun.1"))
	if err != nil {
		t.Fatal(err)
	}
	man := strings.ReplaceAll(string(page), `\-`, "-")
	var variables []string
	for _, o := range options {
		variables = append(variables, o[2])
		if !strings.Contains(man, "--"+o[1]+" ") || !strings.Contains(man, "["+o[2]+"]") {
			t.Errorf("%s does not explain --%s [%s]", "ckptrun(1)", o[1], o[2])
		}
	}
	for _, v := range regexp.MustCompile(`\[(CKPT_[A-Z_]+)\]`).FindAllStringSubmatch(man, -1) {
		if !slices.Contains(variables, v[1]) {
			t.Errorf("ckptrun(1) explains %s, which does not exist", v[1])
		}
	}
}

// functionInHeader finds the functions of a public header.
var functionInHeader = regexp.MustCompile(`(?m)^int (MPIX_[A-Za-z_]+)\(`)

// TestEveryFunctionIsExplained compares what applications may call with the man page, states included.
func TestEveryFunctionIsExplained(t *testing.T) {
	header := read(t, "include", "mpix_checkpoint.h")
	man := read(t, "docs", "man", "MPIX_Checkpoint.3")
	functions := functionInHeader.FindAllStringSubmatch(header, -1)
	if len(functions) < 4 {
		t.Fatalf("found only %d functions in include/mpix_checkpoint.h: the search is broken", len(functions))
	}
	for _, f := range functions {
		if !strings.Contains(man, `"int `+f[1]+`(`) {
			t.Errorf("docs/man/MPIX_Checkpoint.3 has no synopsis of %s", f[1])
		}
	}
	for _, state := range regexp.MustCompile(`MPIX_CR_STATE_[A-Z]+`).FindAllString(header, -1) {
		if !strings.Contains(man, ".B "+state+"\n") {
			t.Errorf("docs/man/MPIX_Checkpoint.3 does not explain %s", state)
		}
	}
}

// TestEveryFunctionOfRuntimesIsExplained compares what runtimes may call with the page that is built: name, type and
// arguments of each function, those that are inline in the two headers too.
func TestEveryFunctionOfRuntimesIsExplained(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(buildDir(t), "share", "man", "man3", "ckpt.h.3"))
	if err != nil {
		t.Fatal(err)
	}
	page := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^\.BI (.*)$`).FindAllStringSubmatch(string(text), -1) {
		page[strings.NewReplacer(`"`, "", " ", "").Replace(line[1])] = true // words and quotes alternate
	}
	prototype := regexp.MustCompile(`(?m)^(?:static inline )?([a-z][\w \t*]*?\bckpt_\w+\([^{};]*\)) ?[;{]`)
	found := 0
	for _, name := range []string{"ckpt.h", "ckpt/rail.h"} {
		for _, m := range prototype.FindAllStringSubmatch(cNoCode.ReplaceAllString(read(t, "include", name), " "), -1) {
			found++
			if want := strings.Join(strings.Fields(m[1]), ""); !page[want] {
				t.Errorf("ckpt.h(3) does not explain, or in another form, %s", strings.Join(strings.Fields(m[1]), " "))
			}
			delete(page, strings.Join(strings.Fields(m[1]), ""))
		}
	}
	if found < 45 {
		t.Errorf("found only %d functions in ckpt.h and ckpt/rail.h: the search is broken", found)
	}
	for left := range page {
		t.Errorf("ckpt.h(3) explains %s, which is not there", left)
	}
	header := read(t, "include", "ckpt.h")
	for _, code := range regexp.MustCompile(`CKPT_E_[A-Z]+\b`).FindAllString(header, -1) {
		if !strings.Contains(string(text), ".B "+code+"\n") {
			t.Errorf("ckpt.h(3) does not explain %s", code)
		}
	}
}
