// SPDX-License-Identifier: Apache-2.0

// Package twophase is the two-phase commit of the first MANA as a baseline: every collective is
// preceded by a rendezvous of all its members (phase 1), and only then done (phase 2), checkpoint or
// not. The state is safe when no rank is in phase 2.
//
// It is the machine of collclock with every call always gated, so that nothing is ever owed. What it
// costs is a round of messages per collective; what it cannot do is a non-blocking collective whose
// initiation must not wait: such programs deadlock. It owns no
// state but the machine's, and may not know anything but collclock.
package twophase
