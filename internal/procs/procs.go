// Package procs starts and ends child processes together with the processes that they start.
// On Linux a child has a process group or session of its own; on other systems only the child itself is controlled.
package procs
