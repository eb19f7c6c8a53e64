package plan

import (
	"slices"
	"testing"
)

func TestObserversMatchByNameOrDriver(t *testing.T) {
	rabbit, other, kafka := Broker{Name: "rabbit", Driver: "rabbitmq"}, Broker{Name: "other", Driver: "rabbitmq"},
		Broker{Name: "kafka", Driver: "kafka"}
	for name, c := range map[string]struct {
		brokers []Broker
		names   []string
		want    []Observation
		unclear []string
	}{
		"by name":   {[]Broker{rabbit}, []string{"rabbit"}, []Observation{{"rabbit", "rabbit"}}, nil},
		"by driver": {[]Broker{rabbit}, []string{"rabbitmq"}, []Observation{{"rabbit", "rabbitmq"}}, nil},
		"name before driver": {[]Broker{rabbit}, []string{"rabbitmq", "rabbit"}, []Observation{{"rabbit", "rabbit"}},
			nil},
		"another": {[]Broker{kafka}, []string{"rabbitmq", "rabbit"}, nil, nil},
		"sideBySide": {[]Broker{rabbit, kafka}, []string{"rabbit", "kafka"},
			[]Observation{{"rabbit", "rabbit"}, {"kafka", "kafka"}}, nil},
		"a driver fits two": {[]Broker{rabbit, other}, []string{"rabbitmq"}, nil, []string{"rabbit", "other"}},
		"the other by driver": {[]Broker{rabbit, other}, []string{"rabbit", "rabbitmq"},
			[]Observation{{"rabbit", "rabbit"}, {"other", "rabbitmq"}}, nil},
		"a driver's own name": {[]Broker{kafka}, []string{"kafka"}, []Observation{{"kafka", "kafka"}}, nil},
	} {
		fit, unclear := Observe(c.brokers, c.names)
		if !slices.Equal(fit, c.want) || !slices.Equal(unclear, c.unclear) {
			t.Errorf("%s: %v, unclear %v; want %v, %v", name, fit, unclear, c.want, c.unclear)
		}
	}
}
