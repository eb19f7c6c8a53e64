package plan

import (
	"net/url"
	"strings"
	"testing"
)

func TestUnfilledOptionsContainAddresses(t *testing.T) {
	got := string(Unfilled([]byte(`{"url":"amqp://u:${env:A}@h:1/","key":"${file:/k}","n":1}`)))
	if !strings.Contains(got, `"key":"${file:/k}"`) || strings.Contains(got, "env:A") {
		t.Errorf("unfilled: %s", got)
	}
	address := strings.Split(strings.SplitAfter(got, `"url":"`)[1], `"`)[0]
	if u, err := url.Parse(address); err != nil || u.Host != "h:1" {
		t.Errorf("%s is no address: %v", address, err)
	}
}
