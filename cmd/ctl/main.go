// Ctl is the client program: it checks, plans and runs matrices, and shows their results.
package main

import (
	"example.org/lockstep/lockstep/internal/cli"
	_ "example.org/lockstep/lockstep/pkg/drivers/all"
)

func main() { cli.Main(cli.Ctl, 2) }
