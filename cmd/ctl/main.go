// Ctl is what a person or a cron line types: it checks, plans and runs matrices, and shows what came of them.
package main

import (
	"os"

	"lockstep/internal/cli"
	_ "lockstep/pkg/drivers/all"
)

func main() {
	ctx, stop := cli.Interruptible(os.Stderr, 2)
	defer stop()
	os.Exit(cli.Ctl(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
