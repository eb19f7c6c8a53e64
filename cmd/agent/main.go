// Agent is the daemon of a client host. It executes this host's part of every task.
package main

import (
	"example.org/lockstep/lockstep/internal/cli"
	_ "example.org/lockstep/lockstep/pkg/drivers/all"
)

func main() { cli.Main(cli.Agent, 2) }
