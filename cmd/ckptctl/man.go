// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// version of this build; set by the linker.
var version = "unknown"

func init() { register(newManCmd) }

// newManCmd is for the build: it writes the man pages that are installed.
func newManCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "man OUTDIR",
		Short:  "Write the man pages of ckptctl, one a command",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{
				Title:   "CKPTCTL",
				Section: "1",
				Source:  "libckpt " + version,
				Manual:  "libckpt",
			}, args[0])
		},
	}
}
