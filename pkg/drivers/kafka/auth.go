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

// mechanism is a SASL mechanism in both libraries.
type mechanism struct {
	goes  func(user, password string) (goSASL.Mechanism, error)
	franz func(user, password string) franzSASL.Mechanism
}

var mechanisms = map[string]mechanism{
	"PLAIN": {
		goes: func(user, password string) (goSASL.Mechanism, error) {
			return goPlain.Mechanism{Username: user, Password: password}, nil
		},
		franz: func(user, password string) franzSASL.Mechanism {
			return franzPlain.Auth{User: user, Pass: password}.AsMechanism()
		},
	},
	"SCRAM-SHA-256": {
		goes: func(user, password string) (goSASL.Mechanism, error) {
			return goScram.Mechanism(goScram.SHA256, user, password)
		},
		franz: func(user, password string) franzSASL.Mechanism {
			return franzScram.Auth{User: user, Pass: password}.AsSha256Mechanism()
		},
	},
	"SCRAM-SHA-512": {
		goes: func(user, password string) (goSASL.Mechanism, error) {
			return goScram.Mechanism(goScram.SHA512, user, password)
		},
		franz: func(user, password string) franzSASL.Mechanism {
			return franzScram.Auth{User: user, Pass: password}.AsSha512Mechanism()
		},
	},
}

// goMechanism returns nil without a user. Its error does not contain the password.
func (o *options) goMechanism() (goSASL.Mechanism, error) {
	if o.User == "" {
		return nil, nil
	}
	m, err := mechanisms[o.Mechanism].goes(o.User, o.Password)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: user or password has characters that it does not allow", o.Mechanism)
	}
	return m, nil
}
