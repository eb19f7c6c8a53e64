// Agent is the daemon on a client host that executes its part of every task.
package main

import (
	"os"

	"lockstep/internal/cli"
	_ "lockstep/pkg/drivers/all"
)

func main() {
	ctx, stop := cli.Interruptible(os.Stderr, 2)
	defer stop()
	os.Exit(cli.Agent(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
