package plan

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestLiterals(t *testing.T) {
	for text, want := range map[string]string{
		"a\nurl: \"amqp://bench:hunter2@host/\"":          `line 2: the password in amqp://bench:***@`,
		`password: "hunter2"`:                             `line 1: the text in password: "***"`,
		`{"token":"hunter2"}`:                             `line 1: the text in token":"***"`,
		`brokers.x.options.password="hunter2"`:            `the text in password="***"`,
		`url: "amqp://guest:guest@host/"`:                 "",
		`url: "amqp://bench:${env:PASSWORD}@host/"`:       "",
		`url: "amqp://bench:${file:/etc/password}@host/"`: "",
		`url: "amqp://bench:\(_password)@host/"`:          "",
		`password: "${env:PASSWORD}"`:                     "",
		`password: ""`:                                    "",
		`password: "x${env:PASSWORD}"`:                    "the text in",
		`threads: [1, 2]`:                                 "",
	} {
		got := strings.Join(Literals(text), "\n")
		if want == "" && got != "" || !strings.Contains(got, want) || strings.Contains(got, "hunter2") {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// What a matrix puts together is seen once it is.
func TestLiteralsOfARun(t *testing.T) {
	cell := Cell{Broker: Broker{Name: "r", Options: json.RawMessage(`{"url":"amqp://bench:hunter2@host/"}`)}}
	r := Run{Cells: []Cell{cell, cell}, Influx: &Influx{URL: "http://h", Token: "hunter2"}}
	got := r.Literals()
	if len(got) != 2 || !strings.HasPrefix(got[0], "brokers.r: ") || !strings.HasPrefix(got[1], "influx: ") || strings.Contains(strings.Join(got, ""), "hunter2") {
		t.Errorf("%q: want one of the broker and one of influx, without the secret", got)
	}
}

// Groups that contend have brokers of their own.
func TestLiteralsOfGroups(t *testing.T) {
	own := Broker{Name: "other", Options: json.RawMessage(`{"url":"amqp://bench:hunter2@host/"}`), Via: "ssh://bench:hunter2@host"}
	cell := Cell{Broker: Broker{Name: "r", Options: json.RawMessage(`{}`)}, Workload: Workload{Groups: []Group{{Name: "a"}, {Name: "b", Broker: &own}}}}
	got := Run{Cells: []Cell{cell}}.Literals()
	if len(got) != 2 || !strings.HasPrefix(got[0], "brokers.other: ") || !strings.HasPrefix(got[1], "brokers.other.via: ") || strings.Contains(strings.Join(got, ""), "hunter2") {
		t.Errorf("%q: want the options and the way of the group's broker, without the secret", got)
	}
}
