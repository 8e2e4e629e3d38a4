// SPDX-License-Identifier: Apache-2.0

// Command ckptctl looks at checkpoints and steers running jobs.
//
// Every subcommand is a file: it registers a constructor, parses its flags, calls packages that do
// the work, and prints, as text for people or, with --json, for programs.
//
// Exit status: 0 done; 1 failed, nothing lost; 2 usage; 3 no committed checkpoint.
//
// Owns: the command line, what is printed. May not know: formats, protocols (it imports them).
package main
