package amqp10

import (
	"strings"
	"testing"
	"time"
)

func TestEndpoints(t *testing.T) {
	o := Options{URLs: []string{"amqp://a", "amqps://b/", "amqp://user:p%40ss@[::1]:7"}, ConnectTimeout: "250ms"}
	s, err := o.settings()
	if err != nil {
		t.Fatal(err)
	}
	want := []endpoint{
		{host: "a", address: "a:5672", anonymous: true},
		{host: "b", address: "b:5671", tls: true, anonymous: true},
		{host: "::1", address: "[::1]:7", user: "user", secret: "p@ss"},
	}
	for i, e := range s.endpoints {
		if e != want[i] {
			t.Errorf("endpoint %d is %+v, want %+v", i, e, want[i])
		}
	}
	if s.timeout != 250*time.Millisecond || s.idle != time.Minute {
		t.Errorf("timeouts are %v and %v, want 250ms and the default of a minute", s.timeout, s.idle)
	}
}

func TestFaultyOptions(t *testing.T) {
	cases := map[string]Options{
		"give url":         {},
		"not both":         {URL: "amqp://a", URLs: []string{"amqp://b"}},
		"number 1 of urls": {URLs: []string{"amqp://a", "http://user:hidden@b"}},
		"percent-encode":   {URL: "amqp://user:hid%zz@b"},
		"read AMQP url":    {URL: "amqp://user:hidden@b/vhost"},
		"connectTimeout":   {URL: "amqp://a", ConnectTimeout: "1ms"},
		"idleTimeout":      {URL: "amqp://a", IdleTimeout: "soon"},
	}
	for want, o := range cases {
		err := o.Check()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hid") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
}
