// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strings"
)

// RankFiles are files that the ranks of a job write to, two for each rank: this path, ".out." or ".err.", and the
// rank. Nobody knows how much output was on its way to a launcher that is killed, and output from before the last
// checkpoint went to another incarnation's launcher. But a restart cuts a file of the rank back to its length when the image
// was made, so in the end the file holds all that the program printed, once.
type RankFiles string

// Argv is a command for the launchers of both MPIs, or for one that sets CKPT_RANK or CKPT_E2E_SLOT, that writes there.
func (f RankFiles) Argv(argv ...string) []string {
	const script = `rank=${CKPT_RANK-${PMI_RANK-${OMPI_COMM_WORLD_RANK-$CKPT_E2E_SLOT}}}; exec "$@" >>"$0.out.$rank" 2>>"$0.err.$rank"`
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

// launchers start ranks with the two MPIs of the distribution.
var launchers = map[string][]string{
	"mpich":   {"mpiexec.mpich"},
	"openmpi": {"mpiexec.openmpi", "--oversubscribe"},
}
