// Controller is the daemon that executes runs on a fleet of agents.
package main

import (
	"example.org/lockstep/lockstep/internal/cli"
	_ "example.org/lockstep/lockstep/pkg/drivers/all"
)

func main() { cli.Main(cli.Controller, 3) }
