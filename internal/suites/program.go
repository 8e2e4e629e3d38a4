// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"fmt"
	"regexp"
	"strings"
)

// Program is one that is run.
type Program struct {
	Name string
	// MPI is that of the launcher and of the program: mpich or openmpi.
	MPI   string
	Ranks int
	// Build compiles the program; empty when it is there already. $IN is the folder of the inputs, $BIN
	// an empty one for what is built.
	Build []string
	// Argv starts a rank.
	Argv []string
	// Inputs are copied into the folder of the run.
	Inputs []string
	// Text is the file with the result, in the folder of the run; empty: what was printed.
	Text string
	// Stderr: the result is printed there.
	Stderr bool
	// Keep are the lines of the text that are results; nil: all.
	Keep *regexp.Regexp
	// Blank are the parts of lines that may differ from run to run.
	Blank *regexp.Regexp
	// Bytes are files that must be the same to the last bit.
	Bytes []string
	// Proof is a line of the result without which the program did not do its work.
	Proof string
}

// fill puts folders in the place of their names.
func (p *Program) fill(in, bin string) {
	names := strings.NewReplacer("$IN", in, "$BIN", bin)
	for _, words := range []*[]string{&p.Build, &p.Argv, &p.Inputs} {
		filled := make([]string, len(*words))
		for i, w := range *words {
			filled[i] = names.Replace(w)
		}
		*words = filled
	}
}

// Result is what of a program's text can be compared.
func (p *Program) Result(text string) (string, error) {
	var kept strings.Builder
	proved := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		if p.Keep != nil && !p.Keep.MatchString(line) {
			continue
		}
		if p.Blank != nil {
			line = p.Blank.ReplaceAllString(line, "~")
		}
		proved = proved || strings.TrimSpace(line) == p.Proof
		kept.WriteString(line)
		kept.WriteByte('\n')
	}
	if !proved {
		return "", fmt.Errorf("no line %q in the result", p.Proof)
	}
	return kept.String(), nil
}

// Same describes the first line in which two results differ.
func Same(native, here string) error {
	a, b := strings.Split(native, "\n"), strings.Split(here, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Errorf("line %d of the result:\n   natively: %s\n   here:     %s", i+1, a[i], b[i])
		}
	}
	if len(a) != len(b) {
		return fmt.Errorf("%d lines of result, natively %d; the first %d are the same", len(b), len(a), min(len(a), len(b)))
	}
	return nil
}
