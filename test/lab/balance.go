package main

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/test/forward"
)

// balance is a small load balancer. It distributes connections round-robin over the nodes of a cluster, and skips nodes
// that do not answer. It runs until its process is killed.
func balance(listen string, nodes []string) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen for clients of the cluster: %w", err)
	}
	var next atomic.Uint64
	for {
		client, err := listener.Accept()
		if err != nil {
			return fmt.Errorf("accept a client of the cluster: %w", err)
		}
		go func() {
			defer client.Close()
			first := next.Add(1)
			for i := range nodes {
				dialer := net.Dialer{Timeout: 2 * time.Second}
				node, err := dialer.DialContext(context.Background(), "tcp",
					nodes[(first+uint64(i))%uint64(len(nodes))])
				if err != nil {
					continue
				}
				forward.Join(client, node)
				_ = node.Close()
				return
			}
		}()
	}
}
