// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strings"
)

// RankFiles are files that the ranks of a job write to, two for each: this path, ".out." or ".err.", and the
// rank. Between a rank and its launcher nobody knows how much was on its way, and what was printed before the
// last checkpoint is another incarnation's; a file of the rank's own is cut back by a restart to what it held
// when the image was made, so that in the end it holds all that the program printed, once.
type RankFiles string

// Argv is a command for the launchers of both MPIs that writes there.
func (f RankFiles) Argv(argv ...string) []string {
	const script = `rank=${PMI_RANK-$OMPI_COMM_WORLD_RANK}; exec "$@" >>"$0.out.$rank" 2>>"$0.err.$rank"`
	return append([]string{"/bin/sh", "-c", script, string(f)}, argv...)
}

// Printed is what all ranks wrote to a stream, "out" or "err", one after the other.
func (f RankFiles) Printed(stream string, ranks int) (string, error) {
	var all strings.Builder
	for rank := range ranks {
		text, err := os.ReadFile(fmt.Sprintf("%s.%s.%d", f, stream, rank))
		if err != nil {
			return "", err
		}
		all.Write(text)
	}
	return all.String(), nil
}
