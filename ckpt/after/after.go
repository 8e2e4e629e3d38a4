// SPDX-License-Identifier: Apache-2.0

package after

import "fmt"

// Action is what happens to the job once a checkpoint is committed.
type Action string

// The actions. They travel on wires and stand in configuration files.
const (
	Continue Action = "continue" // it goes on
	Exit     Action = "exit"     // it finalizes MPI and ends every rank
	Kill     Action = "kill"     // every rank is killed
)

// Parse reads what a user typed.
func Parse(s string) (Action, error) {
	switch a := Action(s); a {
	case Continue, Exit, Kill:
		return a, nil
	}
	return "", fmt.Errorf("%q is not one of continue, exit, kill", s)
}
