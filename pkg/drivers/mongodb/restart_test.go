package mongodb

import (
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// No other package uses this server.
func TestRestart(t *testing.T) {
	h := harness(standIn(t, `{}`), false, []string{"restart"})
	h.Restart = labtest.Restart("mongodb")
	drivertest.Run(t, h)
}
