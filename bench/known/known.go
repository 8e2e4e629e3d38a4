// SPDX-License-Identifier: Apache-2.0

package known

import (
	"fmt"
	"os"
	"path"
	"strings"
)

// Reasons are the lines of a file, in its order.
type Reasons []reason

// reason says why programs whose name matches do not pass.
type reason struct{ pattern, why string }

// Read reads lines "PROGRAM: why", with wildcards of path.Match in the first; "#" begins a comment.
func Read(file string) (Reasons, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all Reasons
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, why, ok := strings.Cut(line, ": ")
		if _, err := path.Match(pattern, ""); !ok || err != nil {
			return nil, fmt.Errorf("%s: %q is not \"PROGRAM: why\"", file, line)
		}
		all = append(all, reason{pattern, why})
	}
	return all, nil
}

// Why is the first reason that is given for a program, "" if there is none.
func (all Reasons) Why(program string) string {
	for _, r := range all {
		if ok, _ := path.Match(r.pattern, program); ok {
			return r.why
		}
	}
	return ""
}
