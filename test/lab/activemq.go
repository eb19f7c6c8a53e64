package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

var activemq63 = activemq("6.3.1", "7.0.8")

// jolokia is an agent of the broker's Java process that serves management over HTTP, as the console of ActiveMQ's
// distribution does.
const jolokia = "jolokia-jvm-1.7.2.jar"

// activemq is the broker without its web console. It reads its configuration with spring.
func activemq(version, spring string) program {
	libraries := []string{
		"org.apache.logging.log4j:log4j-slf4j2-impl:2.25.4", "org.springframework:spring-context:" + spring,
		"org.jolokia:jolokia-jvm:1.7.2",
	}
	for _, artifact := range []string{"console", "spring", "kahadb-store", "amqp", "stomp", "jaas"} {
		libraries = append(libraries, "org.apache.activemq:activemq-"+artifact+":"+version)
	}
	return jars("activemq-"+version, libraries, nil)
}

// activemqConfig stores messages in KahaDB, which syncs to disk. A broker whose store is locked by another broker tries
// again five times per second. Clients can request statistics by messages. Nagle's algorithm is off: clients would wait
// 40 ms per round trip. Clients without a password are accepted, and the user lab.
const activemqConfig = `<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:schemaLocation="http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
<bean class="org.springframework.beans.factory.config.PropertyPlaceholderConfigurer"/>
<broker xmlns="http://activemq.apache.org/schema/core" brokerName="lab" useJmx="true" persistent="true" schedulerSupport="false" dataDirectory="${lab.data}">
  <managementContext><managementContext createConnector="false"/></managementContext>
  <persistenceAdapter><kahaDB directory="${lab.data}/kahadb" journalMaxFileLength="8mb">
    <locker><shared-file-locker lockAcquireSleepInterval="200"/></locker>
  </kahaDB></persistenceAdapter>
  <plugins>
    <simpleAuthenticationPlugin anonymousAccessAllowed="true"><users>
      <authenticationUser username="lab" password="lab" groups="users"/>
    </users></simpleAuthenticationPlugin>
    <statisticsBrokerPlugin/>
  </plugins>
  <systemUsage><systemUsage>
    <memoryUsage><memoryUsage limit="64 mb"/></memoryUsage>
    <storeUsage><storeUsage limit="1 gb"/></storeUsage>
    <tempUsage><tempUsage limit="256 mb"/></tempUsage>
  </systemUsage></systemUsage>
  <transportConnectors>
    <transportConnector name="amqp" uri="amqp://127.0.0.1:${lab.amqp}?transport.tcpNoDelay=true&amp;transport.producerCredit=100"/>
    <transportConnector name="stomp" uri="stomp://127.0.0.1:${lab.stomp}"/>
  </transportConnectors>
</broker></beans>
`

// lockedStore is a text that a broker logs when another broker has locked the store.
const lockedStore = "slave mode"

// planActiveMQ plans size brokers on one store. One is active, and the others wait until its process ends.
func planActiveMQ(name string, size int, env func(amqp, stomp, http []int) []string) planFunc {
	return func(s *site, dir string, ports []int) (*Plan, error) {
		amqp, stomp, http := ports[:size], ports[size:2*size], ports[2*size:]
		plan := &Plan{Env: env(amqp, stomp, http)}
		for i := range size {
			own := filepath.Join(dir, "n"+strconv.Itoa(i+1))
			p, err := configureActiveMQ(activemq63.in(s), numbered(name, i+1, size), own, filepath.Join(dir, "data"),
				amqp[i], stomp[i], http[i])
			if err != nil {
				return nil, err
			}
			p.Ready = func(ctx context.Context) error { return activemqReady(ctx, plan, amqp, p) }
			plan.Processes = append(plan.Processes, p)
		}
		return plan, nil
	}
}

func configureActiveMQ(libraries, name, dir, data string, amqp, stomp, http int) (*Process, error) {
	if err := write(dir, map[string]string{"broker.xml": activemqConfig}); err != nil {
		return nil, fmt.Errorf("configure %s: %w", name, err)
	}
	return jvm{
		dir: dir, classpath: libraries + "/*",
		options: []string{
			"-Dactivemq.home=" + dir, "-Dactivemq.base=" + dir, "-Dlab.data=" + data,
			"-javaagent:" + filepath.Join(libraries, jolokia) + "=host=127.0.0.1,port=" + strconv.Itoa(http),
			"-Dlab.amqp=" + strconv.Itoa(amqp), "-Dlab.stomp=" + strconv.Itoa(stomp),
		},
		class: "org.apache.activemq.console.command.ShellCommand",
		args:  []string{"start", "xbean:file:" + filepath.Join(dir, "broker.xml")},
	}.process(name)
}

// activemqReady returns an error until one broker answers and, if p is another broker, p waits for the store. That is
// visible only in the log of p, which does not listen yet.
func activemqReady(ctx context.Context, plan *Plan, ports []int, p *Process) error {
	var silent []error
	for i, port := range ports {
		err := answersAMQP(ctx, port)
		if err == nil && (plan.Processes[i] == p || p.Logged(lockedStore)) {
			return nil
		}
		silent = append(silent, err)
	}
	return errors.Join(append(silent, errors.New("neither active nor waiting for the store"))...)
}

func activemqSingle(amqp, stomp, http []int) []string {
	return []string{
		"LOCKSTEP_ACTIVEMQ_URL=amqp://" + loopback(amqp[0]), "LOCKSTEP_ACTIVEMQ_STOMP=" + loopback(stomp[0]),
		"LOCKSTEP_ACTIVEMQ_JOLOKIA=http://" + loopback(http[0]) + "/jolokia",
	}
}

func activemqPair(amqp, _, http []int) []string {
	var urls, consoles []string
	for i, port := range amqp {
		urls = append(urls, "amqp://"+loopback(port))
		consoles = append(consoles, "http://"+loopback(http[i])+"/jolokia")
	}
	return []string{
		"LOCKSTEP_ACTIVEMQ_PAIR_URLS=" + strings.Join(urls, ","),
		"LOCKSTEP_ACTIVEMQ_PAIR_JOLOKIAS=" + strings.Join(consoles, ","),
	}
}
