//go:build race

package clients

// memoryFactor is what the race detector adds to the memory of a program: five
// to ten times, says its manual.
const memoryFactor = 10
