// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/libckpt/libckpt/ckpt/launch"
)

// version of this build; set by the linker.
var version = "unknown"

func init() {
	register(newManCmd)
	register(newManOptionsCmd)
}

// placeOfOptions is where ckptrun's page, which people write, wants its options, which are written from their table.
const placeOfOptions = "@OPTIONS@\n"

// newManOptionsCmd is for the build too: it puts the options of ckptrun into its page.
func newManOptionsCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "man-options PAGE",
		Short:  "Print ckptrun's man page with its options",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			page, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			before, after, ok := strings.Cut(string(page), placeOfOptions)
			if !ok {
				return fmt.Errorf("%s has no line %q", args[0], strings.TrimSpace(placeOfOptions))
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), before, launch.ManOptions(), after)
			return err
		},
	}
}

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
