//go:build !race

package clients

const memoryFactor = 1
