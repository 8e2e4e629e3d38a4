// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"slices"
	"strings"
)

// Again returns the options, without a program, with which ckptrun runs a program that this program starts. own are
// the options of this process, o is their meaning. The program may have changed its working directory, so Dir and
// Local are absolute. --restart is left out, also for a program that was continued.
func Again(own []string, o Options) []string {
	out := []string{}
	for i := 0; i < len(own); i++ {
		if own[i] == "--" {
			continue
		}
		name, _, _ := strings.Cut(own[i], "=")
		value := i + words(own[i:]) - 1
		if name != "--dir" && name != "--local" && name != "--restart" && name != "--argv0" {
			out = append(out, own[i:value+1]...)
		}
		i = value
	}
	if o.Local != "" {
		out = append(out, "--local", o.Local)
	}
	if o.Several() && !slices.ContainsFunc(out, func(w string) bool { return w == "--ranks" || strings.HasPrefix(w, "--ranks=") }) {
		out = append(out, "--ranks", ranksText(o.Ranks))
	}
	return append(out, "--dir", o.Dir)
}
