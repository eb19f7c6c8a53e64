package keys

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/wire/subject"
)

// Role is a set of permissions on the control plane. All are defined in this file. The servers refuse everything else.
type Role string

// The roles.
const (
	RoleController Role = "controller" // everything on Lockstep's streams
	// ctl: requests to submit and cancel runs and to edit schedules and baselines, and those of viewers
	RoleClient Role = "client"
	RoleViewer Role = "viewer" // ctl: requests that read records and lists, and change nothing
	// an agent or observer: reports about itself to the controller, and commands from it
	RoleAgent Role = "agent"
)

// InboxPrefix returns the first words of the subjects of a user's answers. No other user may subscribe to them.
func InboxPrefix(key string) string { return subject.Inboxes + key }

// MaxSlots is the maximum number of tasks that an agent executes at the same time.
const MaxSlots = 64

// SlotName returns the name under which a slot of an agent executes tasks. Slots are counted from 0.
func SlotName(agent string, slot int) string {
	if slot == 0 {
		return agent
	}
	return fmt.Sprintf("%s.%d", agent, slot+1)
}

// account is an account of the control plane's servers. The streams are in the controllers' account. Users of other
// accounts cannot reach them by any subject, only through the services that their account imports.
type account struct {
	name  string
	roles []Role
	// imports are the services of the controllers' account that this one may use, exports its own for that account.
	imports, exports []string
	// Limits: connections of all users together, and subscriptions per connection. The server copies an answer for each
	// subscription to its inbox. A client needs one, and an agent one more for each slot.
	connections, subscriptions int
}

// AgentsAccount is the account of all agents.
const AgentsAccount = "AGENTS"

// accounts are all accounts. The controllers' account must be the first.
var accounts = []account{
	{name: "LOCKSTEP", roles: []Role{RoleController}, connections: 500, subscriptions: MaxSubscriptions},
	{name: AgentsAccount, roles: []Role{RoleAgent}, imports: []string{subject.AgentServices + ">"},
		exports: []string{subject.Command("*")}, connections: 25_000, subscriptions: MaxSlots + 8},
	{name: "CLIENTS", roles: []Role{RoleClient}, imports: []string{subject.ClientServices + ">",
		subject.ViewServices + ">"}, connections: 500, subscriptions: 8},
	{name: "VIEWERS", roles: []Role{RoleViewer}, imports: []string{subject.ViewServices + ">"}, connections: 500,
		subscriptions: 8},
}

// allow returns the subjects that a user may publish and subscribe to. The inbox of a user is named after its key. name
// and slots are used only for an agent.
func (r Role) allow(name, key string, slots int) (publish, subscribe []string) {
	subscribe = []string{InboxPrefix(key) + ".>"}
	switch r {
	case RoleController:
		publish = []string{subject.Root + ">", subject.Inboxes + ">", subject.BorderReplies + ">", subject.API + ">",
			"$JS.FC.>", "$KV." + subject.LeaseBucket + ".>", "$KV." + subject.StateBucket + ".>",
			"$KV." + subject.SchedulesBucket + ".>", "$KV." + subject.BaselinesBucket + ".>"}
		subscribe = append(subscribe, subject.Root+">")
	case RoleClient:
		publish = []string{subject.ClientServices + ">", subject.ViewServices + ">"}
	case RoleViewer:
		publish = []string{subject.ViewServices + ">"}
	case RoleAgent:
		for slot := range max(slots, 1) { // one subject per name: a pattern could match the name of another agent
			own := SlotName(name, slot)
			publish = append(publish, subject.AgentServices+"*."+subject.EncodeToken(own))
			subscribe = append(subscribe, subject.Command(own))
		}
	}
	slices.Sort(publish)
	return publish, subscribe
}

// User is a user of the control plane.
type User struct {
	Role Role   `json:"role"`
	Name string `json:"name"` // of the agent; other roles: the role's name
	// Slots is the maximum number of slots of an agent (lockstep-agent --slots); 0: one.
	Slots int       `json:"slots,omitempty"`
	Key   string    `json:"key"` // public key
	Made  time.Time `json:"made"`
}

// File returns the path of the user's seed, relative to the folder.
func (u User) File() string {
	if u.Role == RoleAgent {
		return filepath.Join("agents", subject.EncodeToken(u.Name)+".nk")
	}
	return u.Name + ".nk"
}

// String returns the user's name for messages, such as "agent a1" or "the client".
func (u User) String() string {
	if u.Role == RoleAgent {
		return "agent " + u.Name
	}
	return "the " + u.Name
}

// names returns the names under which the user executes tasks, one per slot.
func (u User) names() []string {
	names := make([]string, max(u.Slots, 1))
	for slot := range names {
		names[slot] = SlotName(u.Name, slot)
	}
	return names
}

// agentName matches the valid names of agents, which follow the rule of label names.
var agentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// CheckName returns an error, with the rule, if an agent's name is invalid.
func CheckName(name string) error {
	if !agentName.MatchString(name) {
		return fmt.Errorf("name %q: invalid; use letters, digits, \".\", \"_\" and \"-\", with a letter or digit first, such as load-1", name)
	}
	return nil
}

// heldBy is the beginning of the line with the user in the file of a seed.
const heldBy = "# Seed of "

// Holder returns the user named in the file of a seed, such as "agent a1"; empty: none.
func Holder(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	defer clear(text)
	_, after, _ := bytes.Cut(text, []byte(heldBy))
	name, _, _ := bytes.Cut(after, []byte("\n"))
	return string(name)
}

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
func configs(c *Credentials) map[string]string {
	users := usersText(c)
	if !c.Cluster {
		return map[string]string{"nats.conf": config(c, "lockstep", "") + users}
	}
	all := map[string]string{}
	for _, host := range c.Hosts {
		all["nats-"+subject.EncodeToken(host)+".conf"] = config(c, "lockstep-"+subject.EncodeToken(host), routes(c)) +
			users
	}
	return all
}

func config(c *Credentials, name, cluster string) string {
	file := func(name string) string { return path.Join(c.At, name) }
	return fmt.Sprintf(`# Made by "ctl fleet"; changes are lost when an agent is added or removed. For nats-server -c, or lockstep-controller --nats-config,
# which uses its own flags for the address and the folder of its streams.
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
func usersText(c *Credentials) string {
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
			publish, subscribe := u.Role.allow(u.Name, u.Key, u.Slots)
			responses := ""
			if u.Role == RoleAgent { // an agent answers commands
				responses = "        allow_responses: true\n"
			}
			fmt.Fprintf(&b,
				"      # %s %s\n      {nkey: %q, permissions: {\n        publish: {allow: [%s]}\n        subscribe: {allow: [%s]}\n%s      }}\n",
				u.Role, subject.EncodeToken(u.Name), u.Key, quote(publish), quote(subscribe), responses)
		}
		b.WriteString("    ]\n  }\n")
	}
	b.WriteString("}\n")
	return b.String()
}

func quote(subjects []string) string {
	quoted := make([]string, len(subjects))
	for i, s := range subjects {
		quoted[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(quoted, ", ")
}
