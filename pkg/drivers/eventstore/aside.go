package eventstore

import (
	"context"
	"encoding/base64"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// basic provides user and password for calls that do not use the library.
type basic security

func (b basic) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Basic " +
		base64.StdEncoding.EncodeToString([]byte(b.user+":"+b.password))}, nil
}

func (basic) RequireTransportSecurity() bool { return true }

// aside returns a connection for requests outside the measured path. Unlike the library's connection, gRPC may reopen
// it when it breaks, because no message uses it.
func (s *session) aside(e endpoint) (*grpc.ClientConn, error) {
	s.asideMu.Lock()
	defer s.asideMu.Unlock()
	if conn := s.asides[e.address]; conn != nil {
		return conn, nil
	}
	if s.asides == nil {
		return nil, errSession
	}
	transport := insecure.NewCredentials()
	if s.security.tls != nil {
		transport = credentials.NewTLS(s.security.tls.Clone())
	}
	dial := s.env.ManagementDialer()
	o := []grpc.DialOption{
		grpc.WithTransportCredentials(transport), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn,
			error) {
			return dial(ctx, "tcp", address)
		}),
	}
	if s.security.user != "" {
		o = append(o, grpc.WithPerRPCCredentials(basic(s.security)))
	}
	conn, err := grpc.NewClient("passthrough:///"+e.address, o...)
	if err != nil {
		return nil, err
	}
	s.asides[e.address] = conn
	return conn, nil
}

func (s *session) closeAsides() {
	s.asideMu.Lock()
	defer s.asideMu.Unlock()
	for _, conn := range s.asides {
		_ = conn.Close() // returns an error only if it is called twice
	}
	s.asides = nil
}
