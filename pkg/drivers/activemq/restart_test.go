package activemq

import (
	"testing"

	"lockstep/pkg/drivers/drivertest"
	"lockstep/pkg/drivers/internal/labtest"
)

// No other package uses this broker.
func TestRestart(t *testing.T) {
	h := harness(driver{}, single(t, `{}`), []string{"restart"})
	h.Restart = labtest.Restart("activemq")
	drivertest.Run(t, h)
}
