package mongodb

import (
	"testing"

	"lockstep/pkg/drivers/drivertest"
	"lockstep/pkg/drivers/internal/labtest"
)

// The server is used by this package alone.
func TestRestart(t *testing.T) {
	h := harness(standIn(t, `{}`), false, []string{"restart"})
	h.Restart = labtest.Restart("mongodb")
	drivertest.Run(t, h)
}
