// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// grace is how long a command may take to end in good order after a signal: to withdraw what it asked of a
// job, for one.
const grace = 3 * time.Second

func main() {
	os.Exit(interruptible(grace, os.Stderr, func(ctx context.Context) int {
		return run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}))
}

// interruptible gives f a context that ends with the first SIGINT or SIGTERM. A command that waits for a
// disk that does not answer does not look at it: it is left where it is. A second signal ends it at once.
func interruptible(grace time.Duration, stderr io.Writer, f func(context.Context) int) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	done := make(chan int, 1)
	go func() { done <- f(ctx) }()
	select {
	case status := <-done:
		return status
	case <-ctx.Done():
	}
	stop()
	select {
	case status := <-done:
		return status
	case <-time.After(grace):
		printError(stderr, errors.New("interrupted while something did not answer (a disk?)"))
		return exitFailed
	}
}

// printError is the one place where an error becomes text.
func printError(w interface{ Write([]byte) (int, error) }, err error) {
	_, _ = fmt.Fprintf(w, "ckptctl: %v\n", err)
}
