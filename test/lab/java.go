package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// javaOptions are options for all Java processes. Little memory and only the C1 compiler let many brokers start on a
// small machine. They make brokers slower.
const javaOptions = "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Djava.net.preferIPv4Stack=true -Dlog4j2.disableJmx=true"

// moreJava is a variable with options that are appended, and therefore override javaOptions.
const moreJava = "LOCKSTEP_LAB_JAVA_OPTIONS"

const log4j = `<Configuration status="WARN">
<Appenders><Console name="c"><PatternLayout pattern="%d{ISO8601} %p %c{1}: %m%n"/></Console></Appenders>
<Loggers><Logger name="org.apache.activemq.audit" level="WARN"/><Root level="${sys:level:-INFO}"><AppenderRef ref="c"/></Root></Loggers>
</Configuration>
`

// jvm is the command line of a Java class.
type jvm struct {
	dir       string   // working folder
	classpath string   // in java's syntax: FOLDER/* means all jars in FOLDER
	options   []string // of the virtual machine
	class     string   // empty: the caller of the script adds it
	args      []string
}

// command writes the log configuration and returns the command line.
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

// process returns a broker that runs in Java.
func (j jvm) process(name string) (*Process, error) {
	line, err := j.command()
	if err != nil {
		return nil, fmt.Errorf("configure %s: %w", name, err)
	}
	return &Process{Name: name, Command: line, Env: os.Environ(), Dir: j.dir, Log: filepath.Join(j.dir, "log")}, nil
}

// script writes a shell script that runs the class with the script's arguments.
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
