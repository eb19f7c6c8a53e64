package activemq

import (
	"testing"

	"lockstep/pkg/drivers/drivertest"
	"lockstep/pkg/drivers/internal/labtest"
)

// The broker is used by this package alone.
func TestRestart(t *testing.T) {
	h := harness(driver{}, single(t, `{}`), []string{"restart"})
	h.Restart = labtest.Restart("activemq")
	drivertest.Run(t, h)
}
