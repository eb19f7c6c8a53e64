package kit_test

import (
	"strings"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

func TestOneOfURLAndURLs(t *testing.T) {
	for _, c := range []struct {
		addresses kit.Addresses
		want      string // "": no error
		all       int
	}{
		{kit.Addresses{}, `give url: "x://h"`, 0},
		{kit.Addresses{URL: "a"}, "", 1},
		{kit.Addresses{URLs: []string{"a", "b"}}, "", 2},
		{kit.Addresses{URL: "a", URLs: []string{"b"}}, "not both", 2},
	} {
		if err := c.addresses.Required("x://h"); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.addresses, err, c.want)
		}
		if n := len(c.addresses.All()); n != c.all {
			t.Errorf("%+v: %d URLs, want %d", c.addresses, n, c.all)
		}
	}
}

func TestEndpoints(t *testing.T) {
	type plain struct {
		address, base, user, password string
		tls                           bool
	}
	for text, want := range map[string]plain{
		"http://h":                     {"h:80", "http://h", "", "", false},
		"https://h/a/":                 {"h:443", "https://h/a", "", "", true},
		"http://u:p%40ss@[::1]:7?a=1":  {"[::1]:7", "http://[::1]:7?a=1", "u", "p@ss", false},
		"https://only-a-user@h:8443//": {"h:8443", "https://h:8443/", "only-a-user", "", true},
	} {
		all, err := kit.Endpoints("o", "http://host", kit.Web, text)
		if err != nil || len(all) != 1 {
			t.Fatalf("%s: %v, %v", text, all, err)
		}
		e := all[0]
		if got := (plain{e.Address, e.Base(), e.User, e.Password, e.TLS}); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
	for _, text := range []string{"", "hunter2", "user:hunter2@h", "ftp://user:hunter2@h", "http://user:hunter2%zz@h",
		"http://:1/hunter2", "http://user:hunter2 @h", "//user:hunter2@h"} {
		_, err := kit.Endpoints("url", "http://host", kit.Web, "http://h", text)
		if err == nil || !strings.Contains(err.Error(), `url number 1 is not of the form "http://host"`) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want its number and the form, without the password", text, err)
		}
	}
}

func TestEncrypted(t *testing.T) {
	for url, want := range map[string]bool{"amqp://h": false, "amqps://h": true, "": false, "https://h": true,
		"http://hs": false} {
		if got := kit.Encrypted("http://h", url); got != want {
			t.Errorf("%q: encrypted %t, want %t", url, got, want)
		}
	}
}
