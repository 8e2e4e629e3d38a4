// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestInterruptible: a signal ends a command in good order, and one that looks at nothing too.
func TestInterruptible(t *testing.T) {
	var out bytes.Buffer
	if status := interruptible(time.Hour, &out, func(context.Context) int { return 7 }); status != 7 || out.Len() > 0 {
		t.Errorf("undisturbed: %d, %s", status, out.String())
	}
	raise := func() {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
	status := interruptible(time.Hour, &out, func(ctx context.Context) int {
		raise()
		<-ctx.Done()
		return 5
	})
	if status != 5 || out.Len() > 0 {
		t.Errorf("in good order: %d, %s", status, out.String())
	}
	never := make(chan struct{})
	defer close(never)
	status = interruptible(time.Millisecond, &out, func(context.Context) int {
		raise()
		<-never
		return exitOK
	})
	if status != exitFailed || !strings.Contains(out.String(), "interrupted") {
		t.Errorf("stuck: %d, %s", status, out.String())
	}
}
