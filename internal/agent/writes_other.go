//go:build !unix

package agent

import (
	"net"

	"lockstep/pkg/drivers"
)

// newBlockable returns nil: here connections do not say when a write is blocked.
func newBlockable(*net.TCPConn, *drivers.Waiting) net.Conn { return nil }
