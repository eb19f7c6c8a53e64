// Package accuracy proves that Lockstep's values agree with known values: the options of loopback, the time stamps of
// loopback for each message, and the pauses of real brokers that are stopped. It prints a table of all comparisons.
package accuracy
