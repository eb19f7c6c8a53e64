package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
)

var artemis256 = distribution("artemis-2.56.0", "org.apache.artemis:apache-artemis:2.56.0:tar.gz:bin")

func planArtemis(s *site, dir string, ports []int) (*Plan, error) {
	files, err := writeCertificates(dir)
	if err != nil {
		return nil, err
	}
	node := artemisNode{Name: "artemis", Dir: dir, Port: ports[0], TLS: ports[1], Files: files}
	p, err := node.configure(artemis256.in(s))
	if err != nil {
		return nil, fmt.Errorf("configure Artemis: %w", err)
	}
	p.Ready = func(ctx context.Context) error { return answersAMQP(ctx, node.Port) }
	return &Plan{
		Processes: []*Process{p},
		Env: []string{"LOCKSTEP_ARTEMIS_URL=" + node.url(),
			fmt.Sprintf("LOCKSTEP_ARTEMIS_TLS_URL=amqps://localhost:%d", node.TLS),
			"LOCKSTEP_ARTEMIS_TLS_FILES=" + string(files)},
	}, nil
}

// planArtemisPair plans a primary and a backup that replicates the primary's data. A lock in a file decides which one
// is active, so that both are never active. A primary that starts again becomes active again.
func planArtemisPair(s *site, dir string, ports []int) (*Plan, error) {
	locks := filepath.Join(dir, "locks")
	if err := write(locks, nil); err != nil {
		return nil, err
	}
	plan := &Plan{}
	var urls []string
	for i, role := range []string{"primary", "backup"} {
		node := artemisNode{
			Name: "artemis-pair-" + strconv.Itoa(i+1), Dir: filepath.Join(dir, "n"+strconv.Itoa(i+1)),
			Port: ports[i], Peer: ports[1-i], Role: role, Locks: locks,
		}
		p, err := node.configure(artemis256.in(s))
		if err != nil {
			return nil, fmt.Errorf("configure Artemis %s: %w", role, err)
		}
		p.Ready = func(ctx context.Context) error { return pairReady(ctx, plan, ports) }
		plan.Processes = append(plan.Processes, p)
		urls = append(urls, node.url())
	}
	plan.Env = []string{"LOCKSTEP_ARTEMIS_PAIR_URLS=" + strings.Join(urls, ",")}
	return plan, nil
}

// pairReady returns an error until the first running broker is active and, if both run, the other one is in sync. A
// backup does not listen, so only the active broker is checked.
func pairReady(ctx context.Context, plan *Plan, ports []int) error {
	running := plan.running()
	active := 0
	if len(running) > 0 && running[0] != plan.Processes[0] {
		active = 1
	}
	if len(running) < 2 {
		return answersAMQP(ctx, ports[active])
	}
	copied, err := askArtemis(ctx, ports[active], "replicaSync")
	if err != nil {
		return err
	}
	if copied != "[true]" {
		return fmt.Errorf("the backup has not caught up: %s", copied)
	}
	return nil
}

// artemisNode is one broker. Role is set if it is one of a pair.
type artemisNode struct {
	Name, Dir   string
	Port, Peer  int
	Role, Locks string
	TLS         int // port; 0: none
	Files       drivertest.Certificates
}

func (n artemisNode) url() string { return "amqp://" + loopback(n.Port) }

// Permissions returns all permissions of a client.
func (n artemisNode) Permissions() []string {
	return []string{"createAddress", "deleteAddress", "createDurableQueue", "deleteDurableQueue", "createNonDurableQueue",
		"deleteNonDurableQueue", "send", "consume", "browse", "manage"}
}

func (n artemisNode) configure(home string) (*Process, error) {
	var config strings.Builder
	if err := artemisConfig.Execute(&config, n); err != nil {
		return nil, err
	}
	etc := filepath.Join(n.Dir, "etc")
	err := write(etc, map[string]string{
		"broker.xml": config.String(),
		"bootstrap.xml": `<broker xmlns="http://activemq.apache.org/schema"><jaas-security domain="activemq"/><server configuration="file:` +
			filepath.Join(etc, "broker.xml") + `"/></broker>`,
		"management.xml": `<management-context xmlns="http://activemq.apache.org/schema"/>`,
		// clients without a password may do everything; there are no users with passwords
		"login.config": `activemq { org.apache.activemq.artemis.spi.core.security.jaas.GuestLoginModule sufficient ` +
			`credentialsInvalidate=true org.apache.activemq.jaas.guest.user="guest" org.apache.activemq.jaas.guest.role="amq"; };`,
	})
	if err != nil {
		return nil, err
	}
	return jvm{
		dir: n.Dir, classpath: filepath.Join(home, "lib", "artemis-boot.jar"),
		options: []string{
			"--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED",
			"-Dartemis.home=" + home, "-Dartemis.instance=" + n.Dir, "-Dartemis.instance.etc=" + etc,
			"-Ddata.dir=" + filepath.Join(n.Dir, "data"),
			"-Djava.security.auth.login.config=" + filepath.Join(etc, "login.config"),
			"-Djava.library.path=" + filepath.Join(home, "bin", "lib", "linux-x86_64"),
		},
		class: "org.apache.activemq.artemis.boot.Artemis", args: []string{"run"},
	}.process(n.Name)
}

// The confirm of a durable message waits for the journal's sync. The journal's default timer limits the rate of a
// single publisher.
var artemisConfig = template.Must(template.New("broker.xml").Parse(`<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
  <name>{{.Name}}</name>
  <security-settings><security-setting match="#">
    {{- range .Permissions}}<permission type="{{.}}" roles="amq"/>{{end}}
  </security-setting></security-settings>
  <persistence-enabled>true</persistence-enabled>
  <journal-type>NIO</journal-type>
  <journal-datasync>true</journal-datasync>
  <journal-min-files>2</journal-min-files>
  <journal-pool-files>4</journal-pool-files>
  <journal-file-size>4M</journal-file-size>
  <paging-directory>{{.Dir}}/data/paging</paging-directory>
  <bindings-directory>{{.Dir}}/data/bindings</bindings-directory>
  <journal-directory>{{.Dir}}/data/journal</journal-directory>
  <large-messages-directory>{{.Dir}}/data/large</large-messages-directory>
  <max-disk-usage>100</max-disk-usage>
  <global-max-size>100M</global-max-size>
  <acceptors><acceptor name="all">tcp://127.0.0.1:{{.Port}}?protocols=CORE,AMQP,STOMP;amqpCredits=1000;amqpLowCredits=300</acceptor>
  {{- if .TLS}}<acceptor name="tls">tcp://127.0.0.1:{{.TLS}}?protocols=AMQP;sslEnabled=true;needClientAuth=true;keyStoreType=PEM;keyStorePath={{.Files.Broker}};trustStoreType=PEMCA;trustStorePath={{.Files.CA}}</acceptor>{{end}}</acceptors>
{{- if .Role}}
  <cluster-user>pair</cluster-user><cluster-password>pair</cluster-password>
  <connectors>
    <connector name="self">tcp://127.0.0.1:{{.Port}}</connector>
    <connector name="peer">tcp://127.0.0.1:{{.Peer}}</connector>
  </connectors>
  <cluster-connections><cluster-connection name="pair">
    <connector-ref>self</connector-ref>
    <check-period>500</check-period><connection-ttl>3000</connection-ttl>
    <retry-interval>200</retry-interval><reconnect-attempts>-1</reconnect-attempts>
    <static-connectors><connector-ref>peer</connector-ref></static-connectors>
  </cluster-connection></cluster-connections>
  <ha-policy><replication><{{.Role}}>
    <manager>
      <class-name>org.apache.activemq.artemis.lockmanager.file.FileBasedLockManager</class-name>
      <properties><property key="locks-folder" value="{{.Locks}}"/></properties>
    </manager>
    {{- if eq .Role "backup"}}<allow-failback>true</allow-failback>{{end}}
  </{{.Role}}></replication></ha-policy>
{{- end}}
  <addresses>
    <address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>
    <address name="ExpiryQueue"><anycast><queue name="ExpiryQueue"/></anycast></address>
  </addresses>
  <address-settings><address-setting match="#">
    <auto-create-queues>true</auto-create-queues><auto-create-addresses>true</auto-create-addresses>
    <auto-delete-queues>false</auto-delete-queues><auto-delete-addresses>false</auto-delete-addresses>
    <dead-letter-address>DLQ</dead-letter-address><expiry-address>ExpiryQueue</expiry-address>
    <default-address-routing-type>ANYCAST</default-address-routing-type><default-queue-routing-type>ANYCAST</default-queue-routing-type>
    <address-full-policy>PAGE</address-full-policy>
  </address-setting></address-settings>
</core></configuration>
`))
