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
