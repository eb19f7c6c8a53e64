// Controller is the daemon that executes runs on a fleet of agents.
package main

import (
	"os"

	"example.org/lockstep/lockstep/internal/cli"
	_ "example.org/lockstep/lockstep/pkg/drivers/all"
)

func main() {
	ctx, stop := cli.Interruptible(os.Stderr, 3)
	defer stop()
	os.Exit(cli.Controller(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
