package drivertest

import (
	"context"
	"strings"
	"time"
)

// WrongPassword is the password of Harness.WrongCredentials.
const WrongPassword = "wr0ng-passw0rd"

// checkCredentials opens a session with a wrong password. There must be an error, in time, that does not contain the
// password.
func checkCredentials(c *check) {
	if c.h.WrongCredentials == nil {
		c.notApplicable("the harness has no wrong credentials")
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.wait)
	defer cancel()
	c.within(c.wait+5*time.Second, "Open with a wrong password", func() {
		err := c.tryAll(ctx, c.h.WrongCredentials)
		switch {
		case err == nil:
			c.errorf("Open, Setup and Publisher succeed with a wrong password")
		case strings.Contains(err.Error(), WrongPassword):
			c.errorf("the error contains the password: %v", err)
		default:
			c.logf("%v", err)
		}
		if ctx.Err() != nil {
			c.errorf("the error came only when its context ended: %v", err)
		}
	})
}
