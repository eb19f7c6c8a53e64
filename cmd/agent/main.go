// Agent is the daemon of a client host. It executes this host's part of every task.
package main

import (
	"os"

	"example.org/lockstep/lockstep/internal/cli"
	_ "example.org/lockstep/lockstep/pkg/drivers/all"
)

func main() {
	ctx, stop := cli.Interruptible(os.Stderr, 2)
	defer stop()
	os.Exit(cli.Agent(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
