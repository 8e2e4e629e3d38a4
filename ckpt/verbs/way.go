// SPDX-License-Identifier: Apache-2.0

package verbs

import "fmt"

// Way is what a rank's queue pairs go over after a restart.
type Way struct {
	Used bool   `json:"used,omitempty"`
	TCP  bool   `json:"tcp,omitempty"`
	Host string `json:"host,omitempty"`
}

// WayOf is that of a rank; d is nil when its program has not asked for devices.
func WayOf(d Device, host string) Way {
	if d == nil {
		return Way{}
	}
	return Way{Used: true, TCP: d.TCP(), Host: host}
}

// Mixed refuses ranks of which some are on an adapter and others go over TCP: they cannot reach each other.
func Mixed(all []Way) error {
	adapter, tcp := -1, -1
	for rank, w := range all {
		switch {
		case !w.Used:
		case w.TCP && tcp < 0:
			tcp = rank
		case !w.TCP && adapter < 0:
			adapter = rank
		}
	}
	if adapter < 0 || tcp < 0 {
		return nil
	}
	return fmt.Errorf("rank %d (host %s) is on an InfiniBand adapter, and rank %d (host %s) goes over TCP: they cannot reach each other; "+
		"start all ranks where there are adapters, or all with CKPT_VERBS=tcp", adapter, all[adapter].Host, tcp, all[tcp].Host)
}
