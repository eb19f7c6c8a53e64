package artemis

import (
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// No other package uses this broker.
func TestRestart(t *testing.T) {
	h := harness(driver{}, single(t, `{}`), []string{"restart"})
	h.Restart = labtest.Restart("artemis")
	drivertest.Run(t, h)
}
