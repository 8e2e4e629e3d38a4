// SPDX-License-Identifier: Apache-2.0

// Package launch understands what ckptrun is asked to do.
//
// It owns the options (command line over environment over ckpt.toml in the checkpoint directory),
// the search for the program (PATH, scripts, which programs can be loaded), and what the launcher
// says in the environment (which MPI, which rank). It may not know processes, threads, images or the
// network: it turns words into a Plan, or into an error with an exit status.
package launch
