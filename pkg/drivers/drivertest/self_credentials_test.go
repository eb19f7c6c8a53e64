package drivertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
)

func TestWrongCredentials(t *testing.T) {
	for name, x := range map[string]struct {
		err    error
		after  time.Duration
		passes bool
	}{
		"rejects it":             {errors.New("the user or the password is wrong"), 0, true},
		"accepts it":             {nil, 0, false},
		"prints it":              {errors.New(WrongPassword + " is wrong"), 0, false},
		"waits for another user": {errors.New("the user or the password is wrong"), 3 * time.Second, false},
	} {
		d := faulty{open: func(raw json.RawMessage) (json.RawMessage, error) {
			if !bytes.Contains(raw, []byte(WrongPassword)) {
				return raw, nil
			}
			time.Sleep(x.after)
			return raw, x.err
		}}
		r := runOne(t, d, "open/credentials", func(h *Harness) {
			h.WrongCredentials = schematest.Fill(t, d, `{"name":"`+WrongPassword+`"}`)
		})
		if (len(r.failures) == 0) != x.passes || r.inapplicable != "" {
			t.Errorf("a driver that gets a wrong password and %s: %v %s", name, r.failures, r.inapplicable)
		}
	}
}
