// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// printError is the one place where an error becomes text.
func printError(w interface{ Write([]byte) (int, error) }, err error) {
	_, _ = fmt.Fprintf(w, "ckptctl: %v\n", err)
}
