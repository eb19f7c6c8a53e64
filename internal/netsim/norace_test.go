//go:build !race

package netsim

const raceFactor = 1
