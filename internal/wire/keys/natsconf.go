package keys

import (
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/internal/wire/subject"
)

// Ports of the control plane's servers.
const (
	clientPort = 4222
	routePort  = 6222
)

// Limits of each server of the control plane. Accounts have lower limits: see accounts.
const (
	MaxPayload       = 8 << 20 // maximum size of a message in bytes; a server may be configured lower
	MaxConnections   = 30_000  // more than all accounts together: none can use up those of another
	MaxSubscriptions = 4096    // per connection
	// MaxAgentConnections is the maximum number of connections with the key of an agent to an embedded server. An agent
	// has one, and a lost one stays until the server notices. NATS servers have no such limit.
	MaxAgentConnections = 64
	AuthTimeout         = 10              // seconds for a client to authenticate; saturated hosts need more than the default, 2
	MaxControlLine      = 4 << 10         // bytes, including subjects
	MaxPending          = 16 * MaxPayload // bytes for a client that does not read; then it is disconnected
)

// configs returns the configurations of the control plane's servers by file name.
func configs(c *Credentials) (map[string]string, error) {
	users, err := usersText(c)
	if err != nil {
		return nil, err
	}
	if !c.Cluster {
		return map[string]string{"nats.conf": config(c, "lockstep", "") + users}, nil
	}
	all := map[string]string{}
	for _, host := range c.Hosts {
		all["nats-"+subject.EncodeToken(host)+".conf"] = config(c, "lockstep-"+subject.EncodeToken(host), routes(c)) +
			users
	}
	return all, nil
}

func config(c *Credentials, name, cluster string) string {
	file := func(name string) string { return path.Join(c.At, name) }
	return fmt.Sprintf(`# Made by "ctl fleet"; changes are lost when an agent is added or removed. For nats-server -c, or controller --nats-config, which
# uses its own flags for the address and the folder of its streams.
server_name: %q
listen: "0.0.0.0:%d"
max_payload: %d
max_pending: %d
max_connections: %d
max_subscriptions: %d
max_control_line: %d
jetstream {
  store_dir: "/var/lib/lockstep/nats"
  sync_interval: always
}
tls {
  cert_file: %q
  key_file: %q
  min_version: "1.2"
  timeout: %d
}
%s`, name, clientPort, MaxPayload, MaxPending, MaxConnections, MaxSubscriptions, MaxControlLine,
		file("server.crt"), file("server.key"), AuthTimeout, cluster)
}

// routes returns the configuration by which the servers of a cluster connect to each other, with the same certificates.
func routes(c *Credentials) string {
	var urls []string
	for _, h := range c.Hosts {
		urls = append(urls, "nats-route://"+net.JoinHostPort(h, strconv.Itoa(routePort)))
	}
	return fmt.Sprintf(`cluster {
  name: "lockstep"
  listen: "0.0.0.0:%d"
  tls {
    cert_file: %q
    key_file: %q
    ca_file: %q
    verify: true
  }
  routes: [%s]
}
`, routePort, path.Join(c.At, "server.crt"), path.Join(c.At, "server.key"), path.Join(c.At, "ca.crt"), quote(urls))
}

// usersText returns the accounts with their users, and the services between accounts.
func usersText(c *Credentials) (string, error) {
	const export, imported = "      {service: %q, accounts: [%s]}\n",
		"      {service: {account: %[2]s, subject: %[1]q}}\n"
	services := func(format string, subjects []string, account string) (lines string) {
		for _, subject := range subjects {
			lines += fmt.Sprintf(format, subject, account)
		}
		return lines
	}
	var b strings.Builder
	b.WriteString("accounts {\n")
	for i, a := range accounts {
		fmt.Fprintf(&b, "  %s {\n    limits: {max_connections: %d, max_subscriptions: %d}\n", a.name, a.connections,
			a.subscriptions)
		exports, imports := services(export, a.exports, accounts[0].name),
			services(imported, a.imports, accounts[0].name)
		if i == 0 {
			b.WriteString("    jetstream: enabled\n")
			for _, other := range accounts[1:] {
				exports += services(export, other.imports, other.name)
				imports += services(imported, other.exports, other.name)
			}
		}
		fmt.Fprintf(&b, "    exports: [\n%s    ]\n    imports: [\n%s    ]\n", exports, imports)
		b.WriteString("    users: [\n")
		for _, u := range c.Users {
			if !slices.Contains(a.roles, u.Role) {
				continue
			}
			may, err := u.Role.allow(u.Name, u.Key, u.Slots)
			if err != nil {
				return "", err
			}
			responses := ""
			if u.Role == RoleAgent { // an agent answers commands
				responses = "        allow_responses: true\n"
			}
			fmt.Fprintf(&b,
				"      # %s %s\n      {nkey: %q, permissions: {\n        publish: {allow: [%s]}\n        subscribe: {allow: [%s]}\n%s      }}\n",
				u.Role, subject.EncodeToken(u.Name), u.Key, quote(may.Publish), quote(may.Subscribe), responses)
		}
		b.WriteString("    ]\n  }\n")
	}
	b.WriteString("}\n")
	return b.String(), nil
}

func quote(subjects []string) string {
	quoted := make([]string, len(subjects))
	for i, s := range subjects {
		quoted[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(quoted, ", ")
}
