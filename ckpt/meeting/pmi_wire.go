// SPDX-License-Identifier: Apache-2.0

package meeting

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxPMILine bounds a line of the launcher. The longest has one of our values, which are shorter than maxRequest.
const maxPMILine = 8 << 10

// pmiLine is what the launcher says: "cmd=get_result rc=0 msg=success value=abc".
type pmiLine struct {
	cmd    string
	fields map[string]string
}

// readPMI reads one line.
func readPMI(r *bufio.Reader) (pmiLine, error) {
	text, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return pmiLine{}, fmt.Errorf("the launcher sends a line of more than %d bytes, beginning with %.40q", maxPMILine, text)
	case err == io.EOF && len(text) > 0:
		return pmiLine{}, fmt.Errorf("the launcher's line %.40q ends early: %w", text, io.ErrUnexpectedEOF)
	case err != nil:
		return pmiLine{}, err
	}
	return parsePMI(strings.TrimSuffix(string(text), "\n"))
}

// parsePMI understands one line. Words without "=" belong to the text before them (msg=no such key).
func parsePMI(text string) (pmiLine, error) {
	l := pmiLine{fields: map[string]string{}}
	last := ""
	for i, word := range strings.Fields(text) {
		name, value, ok := strings.Cut(word, "=")
		switch {
		case i == 0 && (!ok || name != "cmd" || value == ""):
			return pmiLine{}, fmt.Errorf("the launcher says %.80q, which is not PMI version 1", text)
		case i == 0:
			l.cmd = value
		case ok && name != "":
			if _, twice := l.fields[name]; twice {
				return pmiLine{}, fmt.Errorf("the launcher says %s twice: %.80q", name, text)
			}
			l.fields[name], last = value, name
		case last != "":
			l.fields[last] += " " + word
		}
	}
	if l.cmd == "" {
		return pmiLine{}, fmt.Errorf("the launcher says %.80q, which is not PMI version 1", text)
	}
	return l, nil
}

// text is a field that must be there.
func (l pmiLine) text(name string) (string, error) {
	v := l.fields[name]
	if v == "" {
		return "", fmt.Errorf("the launcher's %s has no %s", l.cmd, name)
	}
	return v, nil
}

// number is a field that must be there and within bounds.
func (l pmiLine) number(name string, least, most int) (int, error) {
	n, err := strconv.Atoi(l.fields[name])
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("the launcher's %s says %s=%.40q, want a number from %d to %d", l.cmd, name, l.fields[name], least, most)
	}
	return n, nil
}

// ok returns an error if the line says that the request failed. Not every answer has an rc.
func (l pmiLine) ok() error {
	if rc, has := l.fields["rc"]; has && rc != "0" {
		return fmt.Errorf("the launcher's %s says rc=%.20q %.200q", l.cmd, rc, l.fields["msg"])
	}
	return nil
}
