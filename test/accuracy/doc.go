// Package accuracy proves Lockstep's numbers against truths that are known: what loopback was told to do, what it saw
// itself of every message, and real brokers that are stopped for a time that the test measures. It prints a table of
// them.
package accuracy
