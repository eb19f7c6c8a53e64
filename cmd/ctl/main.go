// Ctl is the client program: it checks, plans and runs matrices, and shows their results.
package main

import (
	"os"

	"example.org/lockstep/lockstep/internal/cli"
	_ "example.org/lockstep/lockstep/pkg/drivers/all"
)

func main() {
	ctx, stop := cli.Interruptible(os.Stderr, 2)
	defer stop()
	os.Exit(cli.Ctl(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
