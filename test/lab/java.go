package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// javaOptions are for everything in Java. Little memory and a compiler that is soon done let many brokers start on a
// small machine; they make a broker slower than it can be.
const javaOptions = "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Djava.net.preferIPv4Stack=true -Dlog4j2.disableJmx=true"

// moreJava is the variable whose options come after those, and so win.
const moreJava = "LOCKSTEP_LAB_JAVA_OPTIONS"

const log4j = `<Configuration status="WARN">
<Appenders><Console name="c"><PatternLayout pattern="%d{ISO8601} %p %c{1}: %m%n"/></Console></Appenders>
<Loggers><Logger name="org.apache.activemq.audit" level="WARN"/><Root level="${sys:level:-INFO}"><AppenderRef ref="c"/></Root></Loggers>
</Configuration>
`

// jvm is how a class is run.
type jvm struct {
	dir       string   // its working folder
	classpath string   // as java reads it: FOLDER/* are all jars in it
	options   []string // for the virtual machine
	class     string   // empty: whoever runs the command adds it
	args      []string
}

// command writes the configuration of its log and returns the command line.
func (j jvm) command() ([]string, error) {
	tmp := filepath.Join(j.dir, "tmp")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return nil, err
	}
	if err := write(j.dir, map[string]string{"log4j2.xml": log4j}); err != nil {
		return nil, fmt.Errorf("write the log's configuration: %w", err)
	}
	line := append([]string{"java"}, strings.Fields(javaOptions)...)
	line = append(line, "-Dlog4j2.configurationFile="+filepath.Join(j.dir, "log4j2.xml"), "-Djava.io.tmpdir="+tmp)
	line = append(line, j.options...)
	line = append(line, strings.Fields(os.Getenv(moreJava))...)
	line = append(line, "-cp", j.classpath)
	if j.class == "" {
		return line, nil
	}
	return append(append(line, j.class), j.args...), nil
}

// process is a broker that runs in Java.
func (j jvm) process(name string) (*Process, error) {
	line, err := j.command()
	if err != nil {
		return nil, fmt.Errorf("configure %s: %w", name, err)
	}
	return &Process{Name: name, Command: line, Env: os.Environ(), Dir: j.dir, Log: filepath.Join(j.dir, "log")}, nil
}

// script writes a shell script that runs the class with the arguments that the script is given.
func (j jvm) script(name string) (string, error) {
	line, err := j.command()
	if err != nil {
		return "", err
	}
	for i, word := range line {
		line[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	file := filepath.Join(j.dir, name)
	return file, os.WriteFile(file, []byte("#!/bin/sh\nexec "+strings.Join(line, " ")+" \"$@\"\n"), 0o700)
}
