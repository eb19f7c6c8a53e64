package kafka

import (
	"fmt"

	goSASL "github.com/segmentio/kafka-go/sasl"
	goPlain "github.com/segmentio/kafka-go/sasl/plain"
	goScram "github.com/segmentio/kafka-go/sasl/scram"
	franzSASL "github.com/twmb/franz-go/pkg/sasl"
	franzPlain "github.com/twmb/franz-go/pkg/sasl/plain"
	franzScram "github.com/twmb/franz-go/pkg/sasl/scram"
)

// mechanism is a SASL mechanism in both libraries. Its fields are nil without a user.
type mechanism struct {
	goes  goSASL.Mechanism
	franz franzSASL.Mechanism
}

// mechanism returns the mechanism of the options. Its error does not contain the password.
func (o *options) mechanism() (m mechanism, err error) {
	if o.User == "" {
		return m, nil
	}
	scram := franzScram.Auth{User: o.User, Pass: o.Password}
	switch o.Mechanism {
	case "PLAIN":
		m.goes = goPlain.Mechanism{Username: o.User, Password: o.Password}
		m.franz = franzPlain.Auth{User: o.User, Pass: o.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		m.goes, err = goScram.Mechanism(goScram.SHA256, o.User, o.Password)
		m.franz = scram.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		m.goes, err = goScram.Mechanism(goScram.SHA512, o.User, o.Password)
		m.franz = scram.AsSha512Mechanism()
	}
	if err != nil {
		err = fmt.Errorf("prepare %s: user or password has characters that it does not allow", o.Mechanism)
	}
	return m, err
}
