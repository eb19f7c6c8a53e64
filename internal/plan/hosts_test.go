package plan

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestHostsOfABroker(t *testing.T) {
	for _, x := range []struct {
		options, via string
		want         []string
	}{
		{`{"name":"x","n":5,"t":"10:30 h"}`, "", nil},
		{`{"url":"${env:URL}"}`, "", nil},
		{`{"url":"amqp://u:p@Rabbit.:5672/v","management":"http://rabbit:15672/api?x=http"}`, "", []string{"rabbit"}},
		{`{"url":"amqp://u:${env:PASSWORD}@h:5672"}`, "", []string{"h"}},
		{`{"url":"amqp://u:${file:/run/secret}@h/a,b"}`, "", []string{"h"}},
		{`{"url":"amqp://h"}`, "10.0.0.1:99", []string{"10.0.0.1", "h"}},
		{`{"brokers":["k1:9092","[::1]:9092","k1:9093"]}`, "", []string{"::1", "k1"}},
		{`{"url":"mongodb://u:p@a:1,b,c:3/db?tags=x:1,y"}`, "", []string{"a", "b", "c"}},
		{`{"urls":"nats://a, nats://b,nats://c:1"}`, "", []string{"a", "b", "c"}},
		{`{"url":"nats://:4222"}`, "", []string{"localhost"}},
	} {
		b := Broker{Options: json.RawMessage(x.options), Via: x.via}
		if got := b.Hosts(); !slices.Equal(got, x.want) {
			t.Errorf("hosts of %s via %q are %q, want %q", x.options, x.via, got, x.want)
		}
	}
}
