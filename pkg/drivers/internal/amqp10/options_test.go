package amqp10

import (
	"strings"
	"testing"
)

func TestEndpoints(t *testing.T) {
	o := options("3s", "amqp://a", "amqps://b/", "amqp://user:p%40ss@[::1]:7")
	all, err := o.endpoints()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		address        string
		tls, anonymous bool
		user, password string
	}{
		{"a:5672", false, true, "", ""}, {"b:5671", true, true, "", ""}, {"[::1]:7", false, false, "user", "p@ss"},
	} {
		if e := all[i]; e.Address != want.address || e.TLS != want.tls || (e.URL.User == nil) != want.anonymous ||
			e.User != want.user || e.Password != want.password {
			t.Errorf("endpoint %d is %+v, want %+v", i, e, want)
		}
	}
}

func TestFaultyOptions(t *testing.T) {
	for url, want := range map[string]string{
		"http://user:hidden@b":       "url number 0",
		"amqp://user:hid%zz@b":       "percent-encode",
		"amqp://user:hidden@b/vhost": "no path",
		"amqp://user:hidden@b?x=1":   "no parameters",
	} {
		o := options("3s", url)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hid") {
			t.Errorf("%s: the error is %v, want one with %q and without the password", url, err, want)
		}
	}
}
