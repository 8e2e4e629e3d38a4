// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// Program is a program that is run.
type Program struct {
	Name string
	// MPI is the MPI of the launcher and of the program: mpich or openmpi.
	MPI   string
	Ranks int
	// Build compiles the program; empty when the program is installed already. $IN is the folder of the inputs,
	// $BIN an empty folder for what is built.
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
	// Order: the last digits depend on the order in which the MPI adds, and so on the MPI.
	Order bool
	// Proof is a line of the result without which the program did not do its work.
	Proof string
}

// Inputs is the folder of the inputs.
func Inputs() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("where this package lies is not known")
	}
	return filepath.Join(filepath.Dir(file), "testdata"), nil
}

// In is the program with its inputs in one folder, and its built files in another.
func (p Program) In(in, bin string) Program {
	names := strings.NewReplacer("$IN", in, "$BIN", bin)
	for _, words := range []*[]string{&p.Build, &p.Argv, &p.Inputs} {
		filled := make([]string, len(*words))
		for i, w := range *words {
			filled[i] = names.Replace(w)
		}
		*words = filled
	}
	return p
}

// Compile builds the program, if it is not built already; scratch is for files that compilers leave behind.
func (p *Program) Compile(scratch string) error {
	if len(p.Build) == 0 {
		return nil
	}
	cmd := exec.Command(p.Build[0], p.Build[1:]...)
	cmd.Dir = scratch // Fortran's modules
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(p.Build, " "), err, out)
	}
	return nil
}

// Supply copies the inputs into the folder of a run.
func (p *Program) Supply(work string) error {
	for _, input := range p.Inputs {
		text, err := os.ReadFile(input)
		if err != nil {
			return fmt.Errorf("%w: make test installs what Debian packages", err)
		}
		if err := os.WriteFile(filepath.Join(work, filepath.Base(input)), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Outcome is the result of a run.
type Outcome struct {
	Text  string
	Bytes map[string][]byte
}

// Outcome collects what a run in a folder came to, with what it printed.
func (p *Program) Outcome(work, stdout, stderr string) (*Outcome, error) {
	text := stdout
	if p.Stderr {
		text = stderr
	}
	if p.Text != "" {
		b, err := os.ReadFile(filepath.Join(work, p.Text))
		if err != nil {
			return nil, err
		}
		text = string(b)
	}
	if p.Text == "" {
		text = withoutLog(text)
	}
	result, err := p.Result(text)
	if err != nil {
		return nil, fmt.Errorf("%w of\n%s\nstderr: %s", err, text, stderr)
	}
	o := &Outcome{Text: result, Bytes: map[string][]byte{}}
	for _, name := range p.Bytes {
		if o.Bytes[name], err = os.ReadFile(filepath.Join(work, name)); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// logged is a line of ckptrun's log. It shares the standard error with the program, which may have begun a line of
// its own.
var logged = regexp.MustCompile(`(?m)\d\d:\d\d:\d\d\.\d{3}\t(DEBUG|INFO|WARN|ERROR)\tckptrun\S*\t.*\n?`)

// withoutLog is what the program itself has printed.
func withoutLog(text string) string { return logged.ReplaceAllString(text, "") }

// Same describes the first difference of another outcome from the native one.
func (o *Outcome) Same(here *Outcome) error {
	if err := Same(o.Text, here.Text); err != nil {
		return err
	}
	for name, want := range o.Bytes {
		if !bytes.Equal(want, here.Bytes[name]) {
			return fmt.Errorf("%s has other bytes than natively", name)
		}
	}
	return nil
}

// Result is the part of a program's text that can be compared.
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
